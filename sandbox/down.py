"""`down`: whatever runs of a sandbox, at whatever point of its life → nothing left of it."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from sandbox.control import running, unregistered
from sandbox.follow import Follower
from sandbox.process import KILL, alive, send, stop, wake
from sandbox.starting import starter
from sandbox.supervisor import sweep

if TYPE_CHECKING:
    from sandbox.control import Console
    from sandbox.paths import Paths
    from sandbox.process import ProcessRef

POLL_S = 0.05
START_S = 60.0
"""How long a start may take to stop what it has started."""
ORDERED_S = 150.0
"""How long a supervisor may take: above the graces of all parts that are stopped one by one."""


def down(paths: Paths, console: Console) -> None:
    """Stops everything in order, and what a killed supervisor or start left behind.

    Raises:
        StillRunningError: A process outlives even SIGKILL.
    """
    begun = starter(paths)
    if begun is not None:
        console.say(f"a start is under way (process {begun.pid}); stopping it")
        _end_start(begun)
    supervisor = running(paths) or unregistered(paths)
    if supervisor is not None:
        _end_supervisor(paths, supervisor, console)
    lines = sweep(paths)
    if paths.sandbox_json.exists():
        paths.sandbox_json.unlink()
    for line in lines:
        console.say(line)
    if begun is None and supervisor is None and not lines:
        console.say(f"nothing runs in {paths.dir}")


def _end_start(begun: ProcessRef) -> None:
    """Has the `up` stop its own start, as on Ctrl-C; what is left then is stopped afterwards."""
    try:
        # Not its group: in a script that is the script, and everything else it has started.
        os.kill(begun.pid, signal.SIGTERM)
        os.kill(begun.pid, signal.SIGCONT)
    except ProcessLookupError:
        return
    deadline_s = time.monotonic() + START_S
    while alive(begun) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)


def _end_supervisor(paths: Paths, supervisor: ProcessRef, console: Console) -> None:
    said = paths.progress.stat().st_size if paths.progress.exists() else 0
    send(supervisor, signal.SIGTERM)
    wake(supervisor)
    follower = Follower(paths, supervisor, console.say, said)
    if follower.until("gone", within_s=ORDERED_S).event == "late":
        console.say(f"the supervisor does not end within {ORDERED_S:.0f} s; killing it")
        stop(supervisor, KILL)
