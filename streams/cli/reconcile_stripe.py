"""Stripe's sums within a budget of reads: days first, and hours only of days that matter.

In: pairs of customer and event name, and the ledger's sums. Out: Stripe's sum of every cell that
was looked at closely, the days that were equal as a whole, and what was not asked.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

from streams.core.instant import SECOND_US
from streams.core.retry import Bucket

DAY_S: Final = 86_400
HOUR_S: Final = 3_600
HOURS_A_READ: Final = 96
"""Four days of hours fit on one page, and so cost one read."""

Grain = Literal["hour", "day"]


def day_of(at_us: int) -> int:
    """Start of the UTC day, in seconds."""
    return at_us // SECOND_US // DAY_S * DAY_S


class Pair(NamedTuple):
    """A customer on a meter, by its event name."""

    customer: str
    event_name: str


class CellKey(NamedTuple):
    """One cell; bounds in seconds since 1970."""

    customer: str
    event_name: str
    start_s: int
    end_s: int

    @property
    def pair(self) -> Pair:
        """Whose it is."""
        return Pair(self.customer, self.event_name)

    @property
    def values(self) -> dict[str, Any]:
        """As the ledger's statements name it."""
        return {
            "customer": self.customer,
            "event_name": self.event_name,
            "start_us": self.start_s * SECOND_US,
            "end_us": self.end_s * SECOND_US,
        }

    @property
    def days(self) -> range:
        """The UTC days it touches, by their starts."""
        return range(self.start_s // DAY_S * DAY_S, self.end_s, DAY_S)


Ask = Callable[[Pair, int, int, Grain], Awaitable[Mapping[int, Decimal]]]
"""One read: sums by the start of their bucket; buckets without usage are missing."""


class BudgetSpentError(Exception):
    """No more reads are left; what was not asked is named."""


class ReadBudget:
    """So many reads in all, and so many a second."""

    def __init__(self, reads_left: int, per_s: int, elapsed_s: Callable[[], float]) -> None:
        self.used = 0
        self._left = reads_left
        self._elapsed_s = elapsed_s
        self._bucket = Bucket.full(per_s, per_s, int(elapsed_s() * 1_000_000))

    async def take(self) -> None:
        """One read; waits for its turn.

        Raises:
            BudgetSpentError: none is left.
        """
        if self.used >= self._left:
            raise BudgetSpentError
        while True:
            self._bucket, wait_us = self._bucket.take(int(self._elapsed_s() * 1_000_000))
            if wait_us == 0:
                break
            await asyncio.sleep(wait_us / 1_000_000)
        self.used += 1


@dataclass(frozen=True, slots=True)
class LedgerSide:
    """What is asked about: the ledger's units by cell, and the cells that matter anyway."""

    recorded: Mapping[CellKey, int]
    needed: frozenset[CellKey]
    """Cells in doubt: asked closely, equal day or not."""
    cell_s: Mapping[str, int]
    """Length of a cell by event name."""

    def by_pair(self) -> dict[Pair, LedgerSide]:
        """Each pair's own part: a walk over all cells, so once a run and not once a pair."""
        recorded: defaultdict[Pair, dict[CellKey, int]] = defaultdict(dict)
        needed: defaultdict[Pair, set[CellKey]] = defaultdict(set)
        for cell, units in self.recorded.items():
            recorded[cell.pair][cell] = units
        for cell in self.needed:
            needed[cell.pair].add(cell)
        return {
            pair: LedgerSide(recorded[pair], frozenset(needed[pair]), self.cell_s)
            for pair in {*recorded, *needed}
        }


@dataclass
class Observed:
    """What Stripe said."""

    sums: dict[CellKey, Decimal] = field(default_factory=dict)
    """Of each cell that was looked at closely; 0 where Stripe shows nothing."""
    equal_cells: int = 0
    """Cells of the ledger inside days that were equal as a whole."""
    not_asked: list[Pair] = field(default_factory=list)
    """Pairs that the budget did not reach."""


async def observe(
    pairs: Iterable[Pair], span: range, side: LedgerSide, ask: Ask, budget: ReadBudget
) -> Observed:
    """Asks pair by pair until all are asked or the budget is spent.

    Args:
        pairs: those that matter most first.
        span: seconds, from and to on UTC days.
        side: the ledger's sums.
        ask: one read.
        budget: the reads.
    """
    found = Observed()
    parts, unknown = side.by_pair(), LedgerSide({}, frozenset(), side.cell_s)
    for pair in pairs:
        try:
            await _observe_pair(pair, span, parts.get(pair, unknown), ask, budget, found)
        except BudgetSpentError:
            found.not_asked.append(pair)
    return found


async def _observe_pair(
    pair: Pair, span: range, side: LedgerSide, ask: Ask, budget: ReadBudget, found: Observed
) -> None:
    await budget.take()
    days = await ask(pair, span.start, span.stop, "day")
    close = _close_days(days, side)
    found.equal_cells += sum(cell.days[0] not in close for cell in side.recorded)
    if side.cell_s.get(pair.event_name, HOUR_S) >= DAY_S:
        for day in close:
            found.sums[CellKey(*pair, day, day + DAY_S)] = days.get(day, Decimal(0))
        return
    for start_s, end_s in _runs(sorted(close)):
        await budget.take()
        hours = await ask(pair, start_s, end_s, "hour")
        for hour_s in range(start_s, end_s, HOUR_S):
            found.sums[CellKey(*pair, hour_s, hour_s + HOUR_S)] = hours.get(hour_s, Decimal(0))


def _close_days(days: Mapping[int, Decimal], side: LedgerSide) -> set[int]:
    """Days to look at closely: they differ, or something in them is in doubt."""
    known: dict[int, int] = {}
    for cell, units in side.recorded.items():
        known[cell.days[0]] = known.get(cell.days[0], 0) + units
    differing = {day for day in (*known, *days) if days.get(day, 0) != known.get(day, 0)}
    return differing.union(*(cell.days for cell in side.needed))


def _runs(days: list[int]) -> list[tuple[int, int]]:
    """Days that follow each other, as few ranges of at most one page of hours."""
    runs: list[tuple[int, int]] = []
    for day in days:
        if runs and runs[-1][1] == day and day + DAY_S - runs[-1][0] <= HOURS_A_READ * HOUR_S:
            runs[-1] = (runs[-1][0], day + DAY_S)
        else:
            runs.append((day, day + DAY_S))
    return runs
