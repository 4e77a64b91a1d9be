"""Goals with what was measured → build/bench/summary.json, one entry a goal.

Beside it `sizes.json` has what a size is reckoned from, as numbers. Each benchmark puts in its own
and leaves those of the others, so that both are whole when all have run, in whatever order.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from tests.bench.output import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER: Final = Path(__file__).parents[2] / "build" / "bench"
SUMMARY: Final = "summary.json"
SIZES: Final = "sizes.json"


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
    _write(folder / SUMMARY, {**load(folder), **entries})


def tell(reached: Mapping[str, Goal], folder: Path = FOLDER) -> None:
    """Writes what a benchmark reached, and says it: by each goal a line."""
    put(reached, folder)
    for name, goal in reached.items():
        said = {True: "met", False: "MISSED", None: "not run"}[goal.met]
        say(f"{name}: {goal.goal}: {goal.figure} {said}{f'; {goal.why}' if goal.why else ''}")


def load(folder: Path = FOLDER) -> dict[str, Goal]:
    """Every entry so far; empty before the first."""
    summary = folder / SUMMARY
    if not summary.exists():
        return {}
    return msgspec.json.decode(summary.read_bytes(), type=dict[str, Goal])


def put_sizes(figures: Mapping[str, float], folder: Path = FOLDER) -> None:
    """Writes figures that sizes are reckoned from, beside those of other benchmarks."""
    _write(folder / SIZES, {**load_sizes(folder), **figures})


def load_sizes(folder: Path = FOLDER) -> dict[str, float]:
    """Every such figure so far, its unit in its name."""
    sizes = folder / SIZES
    return msgspec.json.decode(sizes.read_bytes(), type=dict[str, float]) if sizes.exists() else {}


def _write(path: Path, content: Mapping[str, Goal] | Mapping[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(dict(sorted(content.items()))))
    # Replaced whole: a benchmark that is ended leaves what others have measured.
    staged = path.with_name(f"{path.name}.part")
    staged.write_bytes(encoded + b"\n")
    staged.replace(path)


def spread(values: Sequence[float], unit: str) -> str:
    """Minimum / median / maximum."""
    if not values:
        return "no exact round"
    return " / ".join(f"{v:.2f}{unit}" for v in (min(values), median(values), max(values)))
