"""CPU time and memory of a process with its descendants, from `/proc`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process tree used since its start."""

    cpu_s: float
    """All threads, user and system, children that have ended included."""
    rss_peak_mb: float
    """Sum of each living process' own peak."""


def usage(pid: int) -> Usage:
    """Of a process and everything below it. A process that is gone counts as nothing."""
    cpu_s = rss_mb = 0.0
    for one in _tree(pid):
        try:
            stat = (_PROC / str(one) / "stat").read_text(encoding="ascii", errors="replace")
            status = (_PROC / str(one) / "status").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The name in parentheses may hold anything; utime is the 12th field after it.
        ticks = stat.rpartition(")")[2].split()[11:15]
        cpu_s += sum(map(int, ticks)) * _TICK_S
        rss_mb += sum(
            int(line.split()[1]) / 1024 for line in status.splitlines() if line[:6] == "VmHWM:"
        )
    return Usage(cpu_s, rss_mb)


def postmaster(backend: int) -> int:
    """The process that all of a PostgreSQL server's are children of, by any of these."""
    stat = (_PROC / str(backend) / "stat").read_text(encoding="ascii", errors="replace")
    return int(stat.rpartition(")")[2].split()[1])


def threads(pid: int) -> dict[str, float]:
    """CPU seconds of one process' living threads by name, the same names together."""
    found: dict[str, float] = {}
    for task in (_PROC / str(pid) / "task").iterdir():
        try:
            stat = (task / "stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        head, _, tail = stat.rpartition(")")
        name = head.partition("(")[2].rstrip("0123456789")
        found[name] = found.get(name, 0.0) + sum(map(int, tail.split()[11:13])) * _TICK_S
    return found


def _tree(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for task in (_PROC / str(one) / "task").glob("*/children"):
            try:
                waiting += map(int, task.read_text(encoding="ascii").split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found
