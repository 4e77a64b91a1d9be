"""Modes of counting: a meter's mode → what an event adds, and whether it is ever taken back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One mode."""

    units: int | None
    """What every event must bring; None for whatever it brings."""
    signed: bool
    """Whether amounts can be taken back. If not, no levels: their entries are differences."""
    rule: str
    """What an event breaks that brings something else."""

    def takes(self, units: int) -> bool:
        """Whether usage of that much can be counted."""
        return self.units is None or units == self.units


AGGREGATIONS: Final[Mapping[str, Aggregation]] = {
    "sum": Aggregation(None, True, ""),
    "count": Aggregation(1, False, "a count meter counts events, so the quantity must be 1"),
}
"""By their names in meters.toml. One whose level is no sum needs a rule of its own in level.py."""
