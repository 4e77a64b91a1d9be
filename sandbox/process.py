"""A command → a process that can be found again, and only that one is ever signalled.

A process id alone is re-used by the machine. So a process is known by its id and its birth (boot
and start tick), written to a pid file, and by a mark in its environment: the pid file finds it
after the supervisor was killed, the mark if the supervisor died before it wrote the file.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]  # its stubs are a package of their own

from sandbox.paths import Paths, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MARK = "SANDBOX_PART_OF"
"""Environment variable of every process started here: `<directory>|<part>`."""

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """One process of this machine, not to be confused with a later one of the same id."""

    pid: int
    birth: str


@dataclass(frozen=True, slots=True)
class Command:
    """How a part is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path


@dataclass(frozen=True, slots=True)
class StopStep:
    """One signal and how long the process has to obey it."""

    signal: signal.Signals
    grace_s: float


SUPERVISOR = "supervisor"
"""The mark of the supervisor itself: found by it before it has registered."""

GENTLE = (StopStep(signal.SIGTERM, 15.0), StopStep(signal.SIGKILL, 5.0))
KILL = (StopStep(signal.SIGKILL, 5.0),)


def birth_of(pid: int) -> str | None:
    """Boot and start time of a living process; None if it is gone, or a zombie nobody reaped."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        if stat.exists():
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            return None if fields[0] in {"Z", "X"} else f"{boot}:{fields[19]}"
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{process.create_time():.2f}"
    except (OSError, psutil.Error, IndexError):
        return None


def ref_of(pid: int) -> ProcessRef | None:
    """The process that has this id now."""
    birth = birth_of(pid)
    return None if birth is None else ProcessRef(pid, birth)


def alive(ref: ProcessRef) -> bool:
    """Whether this very process still runs."""
    return birth_of(ref.pid) == ref.birth


def living(record: Mapping[str, Any] | None) -> ProcessRef | None:
    """The process that a record names by `pid` and `birth`, if that very one still lives."""
    if record is None:
        return None
    ref = ProcessRef(int(record["pid"]), str(record["birth"]))
    return ref if alive(ref) else None


def spawn(paths: Paths, part: str, command: Command) -> tuple[subprocess.Popen[bytes], ProcessRef]:
    """Starts a part in its own session, output appended to its log, and writes its pid file.

    Raises:
        OSError: The program does not exist or may not be executed.
    """
    env = {**command.env, MARK: f"{paths.dir}|{part}"}
    with paths.log(part).open("ab") as log:
        child = subprocess.Popen(
            command.argv,
            env=env,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # A process that is gone already has no birth: the empty one matches nothing.
    ref = ref_of(child.pid) or ProcessRef(child.pid, "")
    write_json(paths.pid_file(part), {"pid": ref.pid, "birth": ref.birth, "part": part})
    return child, ref


def send(ref: ProcessRef, number: signal.Signals) -> bool:
    """Signals the process and its group if it is still the one that was started.

    Returns:
        Whether the signal was sent.
    """
    if not alive(ref):
        return False
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(ref.pid) == ref.pid:
            os.killpg(ref.pid, number)
        else:
            os.kill(ref.pid, number)
    return True


def wake(ref: ProcessRef) -> None:
    """Lets a process go on that somebody has suspended: it hears nothing else meanwhile."""
    send(ref, signal.SIGCONT)


def stop(ref: ProcessRef, steps: Sequence[StopStep]) -> str:
    """Signals in order until the process and its children are gone; blocks for at most the graces.

    The group is waited for, not only its leader: a child that is still dying holds its port. A
    suspended process is woken, because it would sleep through every signal but the last.

    Returns:
        The name of the signal that ended it, or `gone` if it had ended before.

    Raises:
        StillRunningError: Even the last signal did not end it.
    """
    family = _family(ref)
    if not family:
        return "gone"
    for step in steps:
        for each in (ref,) if ref in family else family:
            send(each, step.signal)
            wake(each)
        deadline = time.monotonic() + step.grace_s
        while time.monotonic() < deadline:
            family = _family(ref) | {each for each in family if alive(each)}
            if not family:
                return step.signal.name
            time.sleep(POLL_S)
    ids = ", ".join(str(each.pid) for each in sorted(family, key=lambda each: each.pid))
    message = f"process {ids} survived {steps[-1].signal.name}; it may wait for a dead disk"
    raise StillRunningError(message)


def _family(ref: ProcessRef) -> frozenset[ProcessRef]:
    """The process and the living members of its group; empty once the process itself is gone."""
    if not alive(ref):
        return frozenset()
    group = frozenset(_group(ref.pid))
    return group | {ref}


def _group(leader: int) -> Iterator[ProcessRef]:
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            member = ref_of(pid) if os.getpgid(pid) == leader else None
            if member is not None:
                yield member


class StillRunningError(Exception):
    """A process outlived the last signal. Look at it with `ps -o pid,stat,wchan -p PID`."""


def left_behind(paths: Paths) -> Iterator[tuple[str, ProcessRef]]:
    """Living processes of this sandbox: by pid file, and by the mark in their environment."""
    found: set[int] = set()
    for file in sorted(paths.run.glob("*.pid")):
        record = read_json(file)
        ref = living(record)
        if record is not None and ref is not None:
            found.add(ref.pid)
            yield str(record["part"]), ref
    for process in psutil.process_iter():
        part = _marked_part(process, paths.dir)
        ref_now = None if part is None or process.pid in found else ref_of(process.pid)
        if part is not None and ref_now is not None:
            yield part, ref_now


def _marked_part(process: psutil.Process, directory: Path) -> str | None:
    try:
        mark = process.environ().get(MARK, "")
    except (psutil.Error, OSError):
        return None
    owner, _, part = mark.rpartition("|")
    return part if owner == str(directory) else None
