"""The launch of a stack: a machine that has what it takes → a supervisor that holds the directory.

Loading this takes half a second; `up` notes before that a start is under way.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from sandbox import machine, prerequisites, wanted
from sandbox.control import running
from sandbox.process import MARK, SUPERVISOR, ref_of
from sandbox.stack import part_environment
from sandbox.stripe import ROOT
from sandbox.supervisor import sweep
from sandbox.training import train
from streams.cli.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.control import Console
    from sandbox.paths import Paths
    from sandbox.process import ProcessRef
    from sandbox.wanted import Wanted

POLL_S = 0.02


def launch(
    paths: Paths, asked: Wanted, environ: Mapping[str, str], console: Console
) -> ProcessRef | None:
    """Starts the supervisor; blocks for as long as jars are fetched and archives made.

    Returns:
        The supervisor, or None if this machine lacks something: all of it was told, with fixes, and
        nothing was written.

    Raises:
        JarsError: They could not be fetched, or are not as the lock says.
        UnavailableError: The supervisor ended at once.
    """
    for line in sweep(paths):
        console.say(f"cleaned up after a killed supervisor: {line}")
    problems = prerequisites.find_problems(machine.probe(paths, environ))
    if problems:
        console.complain(prerequisites.render(problems))
        return None
    paths.make()
    found = machine.machine(environ, console.say)
    train(paths, found, part_environment(environ), console.say)
    wanted.write(paths.wanted_json, asked)
    paths.progress.write_text("", encoding="utf-8")
    # What a killed supervisor said of its own stack must not be taken for this one's.
    paths.sandbox_json.unlink(missing_ok=True)
    return _spawn(paths, environ)


def _spawn(paths: Paths, environ: Mapping[str, str]) -> ProcessRef:
    """The supervisor in its own session, once it holds the directory."""
    with (paths.logs / "supervisor.log").open("ab") as log:
        child = subprocess.Popen(
            (sys.executable, "-m", "sandbox", "supervise", "--dir", str(paths.dir)),
            cwd=ROOT,
            env={**environ, MARK: f"{paths.dir}|{SUPERVISOR}"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    ref = ref_of(child.pid)
    try:
        while ref is not None and child.poll() is None:
            if running(paths) == ref:
                return ref
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise
    message = f"the supervisor ended at once with {child.poll()}"
    raise UnavailableError(message, fix=f"see {paths.logs}/supervisor.log")
