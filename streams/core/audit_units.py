"""Units recorded against units counted, a tenant, metric and window at a time → what differs.

In: what the service's registry holds of each window and what the ledger holds of it, both with the
digest of their contents. Out: windows that are equal, and each that is not, with by how much.

An identity whose minute of `received_at` is equal on both sides is certainly in the ledger; one of
a minute that moves may be. So certain ⊆ counted ⊆ certain + moving. Where the digest says that the
ledger counted exactly the certain ones, or all, their units must be the same to the last one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from typing import Final, Literal, NamedTuple

from streams.core.audit import NOTHING, Group, Judgment, Tally

UnitsVerdict = Literal["equal", "units", "short", "over", "mixed", "open"]
Side = Literal["certain", "moving", "counted"]

LISTED_MAX: Final = 100
"""More differences are counted, and not listed one by one."""


class Series(NamedTuple):
    """Whose usage of what; `kind` is usage, correction or conflict."""

    kind: str
    tenant_id: str
    metric: str


class Part(NamedTuple):
    """What one side holds of a window, in the order in which both sides come."""

    series: Series
    start_us: int
    side: Side
    tally: Tally
    units: int


class Amount(NamedTuple):
    """How many identities, which, and what they come to in the meter's units."""

    tally: Tally = NOTHING
    units: int = 0

    def plus(self, tally: Tally, units: int) -> "Amount":
        """Both together."""
        return Amount(self.tally.plus(tally), self.units + units)


class Window(NamedTuple):
    """One window of a series as both sides have it."""

    series: Series
    start_us: int
    certain: Amount
    recorded: Amount
    """The certain ones and those that may be under way."""
    counted: Amount


class Difference(NamedTuple):
    """A window, or with `start_us` None all of a series that differ, and how."""

    series: Series
    start_us: int | None
    verdict: UnitsVerdict
    recorded: Amount
    """The nearest that the ledger may hold by what the registry says."""
    counted: Amount

    @property
    def more_units(self) -> int:
        """What the ledger has too much; negative: too little."""
        return self.counted.units - self.recorded.units

    @property
    def lost(self) -> int:
        """Identities of which something is not counted, at least."""
        if self.verdict == "short":
            return self.recorded.tally.count - self.counted.tally.count
        return int(self.verdict == "mixed" or (self.verdict == "units" and self.more_units < 0))

    @property
    def double(self) -> int:
        """Identities of which too much is counted, at least."""
        if self.verdict == "over":
            return self.counted.tally.count - self.recorded.tally.count
        return int(self.verdict == "mixed" or (self.verdict == "units" and self.more_units > 0))


@dataclass(slots=True)
class UnitsFound:
    """What a comparison came to."""

    equal: int = 0
    """Windows of a tenant and metric with the very units that were recorded."""
    open: int = 0
    """Windows that usage was on its way to."""
    shared: int = 0
    """Windows that other sources' usage is in, too: their own registries are not read."""
    differences: list[Difference] = field(default_factory=list)
    unlisted: int = 0
    """Differences beyond the listed ones, with what is lost and double of those of usage."""
    unlisted_lost: int = 0
    unlisted_double: int = 0


def moving_minutes(judgments: Iterable[Judgment], group: Group) -> list[int]:
    """Minutes whose identities are not certainly in the ledger."""
    return [j.minute_us for j in judgments if j.group == group and j.verdict != "equal"]


def compare_units(parts: Iterable[Iterable[Part]], *, again: bool, shared: bool) -> UnitsFound:
    """Every window of both sides, judged.

    Args:
        parts: of each side, in order of series and start.
        again: whether the registry recorded identities again after a restore. Such a one may be
            dated anew there, so windows of a series that differ are judged together, too.
        shared: whether other sources' usage is in the ledger's windows.
    """
    found = UnitsFound()
    for _, windows in groupby(_windows(parts), lambda window: window.series):
        differing = list(_differing(found, windows, shared=shared))
        if again and _judged_together(found, [window for window, _ in differing]):
            continue
        for window, verdict in differing:
            _list(found, _difference(window, verdict, start_us=window.start_us))
    return found


def judge_units(window: Window) -> UnitsVerdict:
    """Holds certain ⊆ counted ⊆ recorded, and are the units those of what was counted?"""
    certain, recorded, counted = window.certain, window.recorded, window.counted
    for side in (certain, recorded):
        if counted.tally == side.tally:
            return "equal" if counted.units == side.units else "units"
    if counted.tally.count < certain.tally.count:
        return "short"
    if counted.tally.count > recorded.tally.count:
        return "over"
    if certain.tally.count < counted.tally.count < recorded.tally.count:
        return "open"
    return "mixed"


def _differing(
    found: UnitsFound, windows: Iterable[Window], *, shared: bool
) -> Iterator[tuple[Window, UnitsVerdict]]:
    """Counts those of a series that are in order, and gives the others."""
    for window in windows:
        verdict = judge_units(window)
        if verdict == "equal":
            found.equal += 1
        elif verdict == "open":
            found.open += 1
        elif shared and verdict in ("over", "mixed"):
            found.shared += 1
        else:
            yield window, verdict


def _judged_together(found: UnitsFound, windows: list[Window]) -> bool:
    """Whether windows that differ one by one hold the same events in all."""
    if len(windows) < 2:
        return False
    together = _together(windows)
    verdict = judge_units(together)
    if verdict == "equal":
        found.equal += len(windows)
    elif verdict == "units":
        _list(found, _difference(together, verdict, start_us=None))
    return verdict in ("equal", "units")


def _windows(parts: Iterable[Iterable[Part]]) -> Iterator[Window]:
    together = merge(*parts, key=lambda part: part[:2])
    for (series, start_us), held in groupby(together, lambda part: (part.series, part.start_us)):
        certain = recorded = counted = Amount()
        for part in held:
            if part.side == "counted":
                counted = counted.plus(part.tally, part.units)
                continue
            recorded = recorded.plus(part.tally, part.units)
            if part.side == "certain":
                certain = certain.plus(part.tally, part.units)
        yield Window(series, start_us, certain, recorded, counted)


def _together(windows: list[Window]) -> Window:
    first, *rest = windows
    certain, recorded, counted = first.certain, first.recorded, first.counted
    for window in rest:
        certain = certain.plus(*window.certain)
        recorded = recorded.plus(*window.recorded)
        counted = counted.plus(*window.counted)
    return Window(first.series, first.start_us, certain, recorded, counted)


def _difference(window: Window, verdict: UnitsVerdict, *, start_us: int | None) -> Difference:
    counted = window.counted
    is_of_certain = verdict == "short" or counted.tally == window.certain.tally
    nearest = window.certain if is_of_certain else window.recorded
    return Difference(window.series, start_us, verdict, nearest, counted)


def _list(found: UnitsFound, difference: Difference) -> None:
    if len(found.differences) < LISTED_MAX:
        found.differences.append(difference)
        return
    found.unlisted += 1
    if difference.series.kind == "conflict":
        return
    found.unlisted_lost += difference.lost
    found.unlisted_double += difference.double
