"""Goals with what was measured → build/bench/summary.json, one entry a goal.

Each benchmark puts in its own and leaves those of the others, so that the file is whole when all
have run, in whatever order.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER: Final = Path(__file__).parents[2] / "build" / "bench"
SUMMARY: Final = "summary.json"


class Goal(msgspec.Struct, frozen=True):
    """One goal with what was measured."""

    goal: str
    """What is asked, with its unit."""
    figure: str
    """What was reached: minimum / median / maximum where it ran several times."""
    met: bool | None
    """None where it could not be measured."""
    why: str = ""
    """Of a goal that is not met or was not measured: where the time goes, or what was missing."""


def put(entries: Mapping[str, Goal], folder: Path = FOLDER) -> None:
    """Writes entries beside those of other benchmarks; an entry of the same name is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    after = {**load(folder), **entries}
    content = msgspec.json.format(msgspec.json.encode(dict(sorted(after.items()))))
    # Replaced whole: a benchmark that is ended leaves what others have measured.
    staged = folder / f"{SUMMARY}.part"
    staged.write_bytes(content + b"\n")
    staged.replace(folder / SUMMARY)


def load(folder: Path = FOLDER) -> dict[str, Goal]:
    """Every entry so far; empty before the first."""
    summary = folder / SUMMARY
    if not summary.exists():
        return {}
    return msgspec.json.decode(summary.read_bytes(), type=dict[str, Goal])


def spread(values: Sequence[float], unit: str) -> str:
    """Minimum / median / maximum."""
    if not values:
        return "no exact round"
    return " / ".join(f"{v:.2f}{unit}" for v in (min(values), median(values), max(values)))
