"""`build/sim/summary.json`: seeds, hours, violations, and what became of each planted bug.

Seeds and planted bugs are run apart and stand in one file; each run writes its own part of it.
"""

import json
from pathlib import Path
from typing import Final, TypedDict

import msgspec


class MutantFigures(TypedDict):
    """What became of one planted bug."""

    caught: bool
    seeds: int
    """Seeds that were tried, the one that noticed included."""
    invariant: str
    """Name of the violation that noticed; empty for a survivor."""
    rule: str
    """The rule that was switched off."""
    layers_off: list[str]
    """Rules that hide it, which were off as well."""
    alone: str
    """The invariant that notices it with all other rules on; empty where they make it good."""


class Summary(TypedDict, total=False):
    """The whole file."""

    seeds: int
    hours: float
    """Simulated."""
    violations: int
    seeds_per_s: float
    strikes: dict[str, int]
    """How often each fault has met something."""
    mutants: dict[str, MutantFigures]


SUMMARY: Final = Path("build/sim/summary.json")


def write(part: Summary, path: Path = SUMMARY) -> None:
    """Puts a part into the file; what it does not name stays as the last run left it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = Summary(seeds=0, hours=0.0, violations=0, seeds_per_s=0.0, strikes={}, mutants={})
    if path.exists():
        known.update(msgspec.json.decode(path.read_bytes(), type=Summary))
    known.update(part)
    path.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
