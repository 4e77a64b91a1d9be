"""The product's worker under a profiler → where its time goes, in a line."""

from __future__ import annotations

import pstats
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMED: Final = 8
Place = tuple[str, int, str]
"""File, line, name of a function."""


def hottest(record: Path, named: int = NAMED) -> str:
    """The modules, and the functions of C, that took most of the main thread's own time."""
    own_s: dict[str, float] = {}
    for place, row in _table(record).items():
        name = _called(place)
        own_s[name] = own_s.get(name, 0.0) + row[2]
    return shares(own_s, named)


def shares(spent: Mapping[str, float], named: int = NAMED) -> str:
    """Those who spent most, with their share of all; without those below one in a hundred."""
    all_s = sum(spent.values()) or 1.0
    first = sorted(spent, key=spent.__getitem__, reverse=True)[:named]
    return ", ".join(f"{n} {spent[n] / all_s:.0%}" for n in first if spent[n] >= 0.01 * all_s)


def _table(record: Path) -> Mapping[Place, tuple[int, int, float, float, object]]:
    stats: object = pstats.Stats(str(record)).stats  # type: ignore[attr-defined]  # not in its stub
    return cast("Mapping[Place, tuple[int, int, float, float, object]]", stats)


def _called(place: Place) -> str:
    file, _, name = place
    # What is of C has no file: `<method 'write' of 'Rdict' objects>`.
    return name.strip("<>") if file == "~" else Path(file).name
