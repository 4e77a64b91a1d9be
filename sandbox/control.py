"""A running stack → what it says of itself, and what a person wants changed in it."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sandbox import clock, wanted
from sandbox.paths import Paths, read_json
from sandbox.process import SUPERVISOR, ProcessRef, left_behind, living
from sandbox.starting import starter
from sandbox.wanted import Wanted
from streams.cli.errors import (
    FINDING,
    CommandError,
    TryAgainError,
    UnavailableError,
    UsageProblemError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

READY_S = 120.0
ADDRESSES = (
    "postgres_dsn",
    "writer_dsn",
    "ledger_dsn",
    "kafka_bootstrap",
    "connect_url",
    "stripe_url",
    "webhook_url",
)


class NotRunningError(UnavailableError):
    """There is no running sandbox in this directory."""


class LeftBehindError(CommandError):
    """The supervisor was killed; its parts still run, and nobody looks after them."""

    exit_code = FINDING


class StartingError(TryAgainError):
    """A start is under way and there is nothing to ask yet."""


class NotReachedError(TryAgainError):
    """The supervisor did not get there in time."""


@dataclass(frozen=True, slots=True)
class Console:
    """Where a command tells people what happens."""

    say: Callable[[str], None]
    complain: Callable[[str], None]


def running(paths: Paths) -> ProcessRef | None:
    """The supervisor of this directory, if one lives."""
    return living(read_json(paths.pid_file_of_supervisor))


def state(paths: Paths) -> dict[str, Any]:
    """The content of sandbox.json of a running stack.

    Raises:
        NotRunningError: Nothing runs.
        LeftBehindError: A killed supervisor left parts that still run.
        StartingError: It is being started.
    """
    supervisor = running(paths)
    value = read_json(paths.sandbox_json) if supervisor is not None else None
    if value is not None:
        return value
    begun = supervisor or starter(paths)
    if begun is not None:
        message = f"{paths.dir}: a start is under way (process {begun.pid}), nothing runs yet"
        raise StartingError(message, fix=f"wait for it, or `{paths.command('down')}`")
    left = orphans(paths)
    if left:
        listed = ", ".join(f"{part} (process {ref.pid})" for part, ref in left.items())
        message = f"{paths.dir}: the supervisor was killed and left behind {listed}"
        raise LeftBehindError(message, fix=f"`{paths.command('down')}` ends them")
    raise NotRunningError(f"no sandbox runs in {paths.dir}", fix=f"`{paths.command('up')}`")


def orphans(paths: Paths) -> dict[str, ProcessRef]:
    """Parts that outlived their supervisor, each with its first process."""
    found: dict[str, ProcessRef] = {}
    for part, ref in left_behind(paths):
        found.setdefault(part, ref)
    return found


def unregistered(paths: Paths) -> ProcessRef | None:
    """A supervisor that was started and does not hold the directory yet."""
    return orphans(paths).get(SUPERVISOR)


def change(paths: Paths, wish: Callable[[Wanted], Wanted]) -> None:
    """Changes what is wanted; the supervisor follows within a fraction of a second.

    Raises:
        NotRunningError: Nothing runs.
    """
    state(paths)
    wanted.write(paths.wanted_json, wish(wanted.read(paths.wanted_json) or Wanted()))


def set_workers(paths: Paths, number: int) -> None:
    """Scales the workers; blocks until the new number is ready.

    Raises:
        NotRunningError: Nothing runs.
        NotReachedError: They did not become ready in time.
    """
    change(paths, lambda has: replace(has, workers=number))

    def reached(parts: Mapping[str, Any]) -> bool:
        workers = [name for name in parts if name.startswith("worker-")]
        ready = [name for name in workers if parts[name]["state"] == "ready"]
        return len(workers) == len(ready) == number

    _await(paths, reached, f"{number} workers are not ready")


def hold(paths: Paths, part: str) -> None:
    """Stops one part until `release`; blocks until its process is gone.

    Raises:
        NotRunningError: Nothing runs.
        UsageProblemError: There is no such part.
        NotReachedError: It did not stop in time.
    """
    _known(paths, part)
    change(paths, lambda has: has.hold(part))
    _await(paths, lambda parts: parts[part]["state"] == "held", f"{part} did not stop")


def release(paths: Paths, part: str) -> None:
    """Starts a held part; blocks until it is ready.

    Raises:
        NotRunningError: Nothing runs.
        UsageProblemError: There is no such part.
        NotReachedError: It did not become ready in time.
    """
    _known(paths, part)
    change(paths, lambda has: has.release(part))
    _await(paths, lambda parts: parts[part]["state"] == "ready", f"{part} is not ready")


def shift_clock(paths: Paths, seconds: int) -> None:
    """Sets the offset of the stack's wall clock.

    Raises:
        NotRunningError: Nothing runs.
        UsageProblemError: The stack runs on the machine's own clock.
    """
    state(paths)
    has = wanted.read(paths.wanted_json)
    if has is None or not has.shift_clock:
        fix = f"`{paths.command('down')}`, then `{paths.command('up --shift-clock')}`"
        raise UsageProblemError("this stack runs on the machine's clock", fix=fix)
    clock.set_offset(paths.clock, seconds)


def wipe(paths: Paths) -> bool:
    """Deletes a stopped sandbox. Refuses a directory that no sandbox made.

    Returns:
        Whether there was anything to delete.

    Raises:
        UsageProblemError: It is not a sandbox, or still runs.
    """
    if not paths.dir.exists():
        return False
    made_here = paths.ports_json.exists() or paths.wanted_json.exists()
    if running(paths) is not None or not (made_here or _empty(paths.dir)):
        message = f"{paths.dir} is no stopped sandbox; nothing was deleted"
        raise UsageProblemError(message, fix="name the directory of a sandbox with --dir")
    shutil.rmtree(paths.dir)
    return True


def _empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def describe_state(value: Mapping[str, Any]) -> list[str]:
    """One line per part of a running stack, then the addresses."""
    pids = value["pids"]
    of_part = {name: pid for name, pid in pids.items() if name != "workers"}
    of_part |= {f"worker-{number}": each["pid"] for number, each in enumerate(pids["workers"])}
    lines = [f"stack {value['state']} (supervisor {value['supervisor_pid']})"]
    for name, part in value["parts"].items():
        pid = of_part.get(name)
        process = f"pid {pid}" if pid else "-"
        restarts = f"restarts {part['restarts']}"
        lines.append(f"  {name:<12} {part['state']:<9} {process:<12} {restarts}  {part['text']}")
    return lines + [f"  {name:<16} {address}" for name, address in addresses(value)]


def addresses(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The addresses of a running stack that people use, by name."""
    return [(name, value[name]) for name in ADDRESSES if value[name] is not None]


def _known(paths: Paths, part: str) -> None:
    pids = state(paths)["pids"]
    names = [name for name in pids if name != "workers"]
    names += [f"worker-{number}" for number in range(len(pids["workers"]))]
    if part not in names:
        raise UsageProblemError(f"no part {part!r}", fix=f"name one of {', '.join(names)}")


def _await(paths: Paths, reached: Callable[[Mapping[str, Any]], bool], otherwise: str) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if reached(state(paths)["parts"]):
            return
        time.sleep(0.05)
    message = f"{otherwise} after {READY_S:.0f} s"
    raise NotReachedError(message, fix=f"`{paths.command('status')}`, and the logs in {paths.logs}")
