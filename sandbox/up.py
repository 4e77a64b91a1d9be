"""`up`: the wishes of a person → a supervisor that is started or attached to, and followed."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

from sandbox import wanted
from sandbox.control import addresses, running, state
from sandbox.follow import Follower
from sandbox.paths import unwritable
from sandbox.process import send, wake
from sandbox.starting import started, starter, starting
from streams.cli.errors import CONFIGURATION, INTERRUPTED

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
            if unwritable(paths.dir) is not None:
                return _launch(paths, asked, environ, console, follow)  # which says so
            with starting(paths) as other:
                if other is None:
                    return _launch(paths, asked, environ, console, follow)
                console.say(f"another `up` (process {other.pid}) is starting it already; waiting")
                _await_supervisor(paths, other)


def _launch(
    paths: Paths, asked: Wanted, environ: Mapping[str, str], console: Console, follow: bool
) -> int:
    from sandbox.launch import launch  # noqa: PLC0415 - takes long, and `down` must see us before

    supervisor = launch(paths, asked, environ, console)
    if supervisor is None:
        return CONFIGURATION
    return _watch(paths, Follower(paths, supervisor, console.say), console, follow)


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
        for name, address in addresses(value):
            console.say(f"  {name:<16} {address}")
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


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM stops a start in the same order as Ctrl-C; `down` sends it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
