"""`up`: the wishes of a person → a supervisor that is started or attached to, and followed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from sandbox import machine, prerequisites, wanted
from sandbox.control import ADDRESSES, running, state
from sandbox.follow import Follower
from sandbox.process import MARK, SUPERVISOR, ref_of, send, wake
from sandbox.stack import part_environment
from sandbox.starting import started, starter, starting
from sandbox.stripe import ROOT
from sandbox.supervisor import sweep
from sandbox.training import train
from streams.cli.errors import INTERRUPTED, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sandbox.control import Console
    from sandbox.paths import Paths
    from sandbox.process import ProcessRef
    from sandbox.wanted import Wanted

POLL_S = 0.05


def up(
    paths: Paths, asked: Wanted, environ: Mapping[str, str], console: Console, follow: bool
) -> int:
    """Starts the stack, or attaches to the one that runs.

    Returns:
        0 once everything is ready, 78 for missing prerequisites, 1 if the start failed, 130 after
        Ctrl-C or SIGTERM (everything stopped again).
    """
    with _terminated_like_interrupted():
        while True:
            supervisor = running(paths)
            if supervisor is not None:
                return _attach(paths, supervisor, asked, console, follow)
            if machine.unwritable(paths.dir) is not None:
                return _refused(paths, environ, console)
            with starting(paths) as other:
                if other is None:
                    return _start(paths, asked, environ, console, follow)
                console.say(f"another `up` (process {other.pid}) is starting it already; waiting")
                _await_supervisor(paths, other)


def _start(
    paths: Paths, asked: Wanted, environ: Mapping[str, str], console: Console, follow: bool
) -> int:
    for line in sweep(paths):
        console.say(f"cleaned up after a killed supervisor: {line}")
    problems = prerequisites.find_problems(machine.probe(paths, environ))
    if problems:
        console.complain(prerequisites.render(problems))
        return prerequisites.EXIT_CODE
    paths.make()
    found = machine.machine(environ, console.say)
    train(paths, found, part_environment(environ), console.say)
    wanted.write(paths.wanted_json, asked)
    paths.progress.write_text("", encoding="utf-8")
    # What a killed supervisor said of its own stack must not be taken for this one's.
    paths.sandbox_json.unlink(missing_ok=True)
    follower = Follower(paths, _spawn(paths, environ), console.say)
    return _watch(paths, follower, console, follow)


def _refused(paths: Paths, environ: Mapping[str, str], console: Console) -> int:
    """Says what is missing, the permission to write among it, without having written anything."""
    problems = prerequisites.find_problems(machine.probe(paths, environ))
    console.complain(prerequisites.render(problems))
    return prerequisites.EXIT_CODE


def _await_supervisor(paths: Paths, other: ProcessRef) -> None:
    """Waits until another `up` has its supervisor, or is gone."""
    while running(paths) is None and starter(paths) == other:
        time.sleep(POLL_S)


def _attach(
    paths: Paths, supervisor: ProcessRef, asked: Wanted, console: Console, follow: bool
) -> int:
    console.say(f"already running (supervisor {supervisor.pid}, {paths.dir})")
    has = wanted.read(paths.wanted_json)
    for line in wanted.differences(has, asked, paths.command) if has else []:
        console.say(f"differs: {line}")
    return _watch(paths, Follower(paths, supervisor, console.say), console, follow)


def _watch(paths: Paths, follower: Follower, console: Console, follow: bool) -> int:
    """Follows a start; Ctrl-C stops in order."""
    try:
        event = follower.until("ready", "failed")
        if event.event != "ready":
            follower.until("gone")
            console.complain(_why(paths, event.text))
            return 1
        started(paths)
        value = state(paths)
        for name in ADDRESSES:
            console.say(f"  {name:<16} {value[name]}")
        console.say(f"  sandbox.json     {paths.sandbox_json}")
        if follow:
            console.say("Ctrl-C stops everything in order")
            follower.until("gone")
    except KeyboardInterrupt:
        console.say("stopping in order")
        send(follower.supervisor, signal.SIGTERM)
        wake(follower.supervisor)
        follower.until("gone")
        return 0 if follow else INTERRUPTED
    return 0


def _why(paths: Paths, text: str) -> str:
    said = (paths.logs / "supervisor.log").read_text(encoding="utf-8").splitlines()
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    what = text or f"the supervisor ended; {errors[-1] if errors else 'it said nothing'}"
    return f"the sandbox did not start: {what}\nEverything was stopped again. Logs: {paths.logs}"


def _spawn(paths: Paths, environ: Mapping[str, str]) -> ProcessRef:
    """Starts the supervisor in its own session and waits until it holds the directory.

    Raises:
        UnavailableError: It ended at once.
    """
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


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM stops a start in the same order as Ctrl-C; `down` sends it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
