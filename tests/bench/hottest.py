"""The product's worker under a profiler → where its time goes, in a line."""

from __future__ import annotations

import pstats
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMED: Final = 6
Place = tuple[str, int, str]
"""File, line, name of a function."""


def hottest(record: Path, named: int = NAMED) -> str:
    """The functions that took most of the main thread's time, callees left out."""
    table = cast("Mapping[Place, tuple[int, int, float, float, object]]", _table(record))
    own_s = {place: row[2] for place, row in table.items() if not _waits(place)}
    all_s = sum(own_s.values()) or 1.0
    first = sorted(own_s, key=own_s.__getitem__, reverse=True)[:named]
    return ", ".join(f"{_called(place)} {own_s[place] / all_s:.0%}" for place in first)


def shares(threads: Mapping[str, float]) -> str:
    """Whose the CPU time is, by name of thread."""
    all_s = sum(threads.values()) or 1.0
    first = sorted(threads, key=threads.__getitem__, reverse=True)
    return ", ".join(f"{name} {threads[name] / all_s:.0%}" for name in first[:NAMED])


def _table(record: Path) -> object:
    return pstats.Stats(str(record)).stats  # type: ignore[attr-defined]  # not in its stub


def _waits(place: Place) -> bool:
    """Waiting for events takes no CPU time, but the profiler's clock runs."""
    return place[2].endswith(("'select.epoll' objects>", "Loop.run_forever>", "_Loop.run>"))


def _called(place: Place) -> str:
    file, _, name = place
    # What is built in has no file: `<method 'write' of 'Rdict' objects>`.
    return name.strip("<>") if file == "~" else f"{Path(file).stem}.{name}"
