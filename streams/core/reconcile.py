"""Reconcile: a cell's figures in the ledger and Stripe's sums of it → its class, and what follows.

In: `Figures` of one (customer, meter, hour or day) and Stripe's readings of it, oldest first. Out:
how the two compare (`compare`) and a `Decision` (`decide`): nothing, wait, settle, or report.

Stripe shows sums only, late and without a mark of freshness. So a sum proves something when it
stood still for long enough after the last attempt can have ended, and when the ledger explains it
to the unit: by requests whose answers were lost, or, after a ledger went back in time, by what it
has forgotten. A sum that is lower where Stripe told of rejections that it did not name is explained
by requests that add up to what is missing: they are taken back. Whatever is not explained is
somebody else's usage or an unknown rejection: it is reported and never corrected by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, Literal, NamedTuple, assert_never

CellClass = Literal["equal", "missing", "lower", "higher", "open"]

SUMS_MAX: Final = 50_000
"""Sums of requests in doubt that are looked at; with more of them only "none" and "all" are known
besides, and a cell in between is reported."""


class Doubtful(NamedTuple):
    """A request that Stripe may have counted and that is never sent again as it is."""

    meter_event_id: int
    units: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What the ledger says of one cell."""

    recorded: int
    """Units that Stripe has confirmed, or that were proven to be there."""
    doubtful: tuple[Doubtful, ...] = ()
    """In the order of their ids."""
    in_flight: int = 0
    """Requests whose answer may still come, or that are still tried again."""
    waiting: int = 0
    """Units of entries that are held back because this ledger may have forgotten sending them."""
    waiting_negative: int = 0
    """The part of `waiting` that takes back: it may have been sent without the rest, or the rest
    without it."""
    adopted: bool = False
    """Whether the ledger went back in time over this cell: what it holds was cut anew, so only
    sums can be compared."""
    reported: tuple[Doubtful, ...] = ()
    """Confirmed requests of a cell about which a report of Stripe's counts more than it names."""
    noted: bool = False
    """Whether somebody noted a reason to doubt the cell, such as a report of Stripe's."""
    unready: str = ""
    """Why these figures are not the last word on the cell; empty where they are."""
    quiet_from_us: int = 0
    """From here on no attempt at the cell can be in flight any more; microseconds."""
    late: bool = False
    """Whether the invoice of something that it owes has closed."""

    @property
    def waits(self) -> bool:
        """Whether anything waits for Stripe's sum of this cell."""
        return bool(self.doubtful or self.waiting or self.adopted or self.noted)

    @property
    def owed(self) -> int:
        """Units that are in Stripe's sum or not, besides what is recorded."""
        return sum(event.units for event in self.doubtful) + self.waiting


class Reading(NamedTuple):
    """Stripe's sum of a cell, as it was read at an instant of the ledger's clock (microseconds)."""

    at_us: int
    value: Decimal


@dataclass(frozen=True, slots=True)
class Nothing:
    """Both sides say the same, and nothing waits for this cell."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is proven yet."""

    why: str
    until_us: int | None
    """When the same reading would prove it; None where that cannot be said."""


@dataclass(frozen=True, slots=True)
class Settle:
    """The cell is proven: write it down, and send what is missing as one net meter event.

    Also where the invoice has closed: what is there is proven all the same, and what is missing is
    carried to the next invoice or billed elsewhere by itself, never beside what is there.
    """

    present: tuple[int, ...]
    """Requests in doubt that Stripe has counted."""
    absent: tuple[int, ...]
    """Requests in doubt that Stripe has not counted: superseded."""
    adopted_units: int
    """Units that Stripe has and this ledger has forgotten; only where the ledger went back."""
    net_units: int
    """Units that Stripe lacks."""
    late: bool = False
    """Whether those would be on no invoice any more: they are not sent, but wait as carry."""


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Stripe rejected as much after it had confirmed it: these requests count nothing."""

    requests: tuple[int, ...]
    """Confirmed ones that add up to what is missing. Which of equal sum they were makes no
    difference: what takes their place is counted once, and the cell holds the same."""
    units: int


@dataclass(frozen=True, slots=True)
class Report:
    """Stripe has something that nothing here explains: a person looks."""

    cell_class: CellClass
    by: Decimal
    """Stripe's sum less the nearest that could be explained; negative: Stripe has less."""


Decision = Nothing | Wait | Settle | TakeBack | Report


def compare(figures: Figures, observed: Decimal) -> CellClass:
    """How Stripe's sum relates to the ledger's; `missing` is missing exactly what is in doubt."""
    if figures.in_flight or figures.unready:
        return "open"
    excess = observed - figures.recorded
    if _explained(figures, excess):
        return "equal" if excess == figures.owed else "missing"
    low, _ = _bounds(figures)
    return "lower" if excess < low else "higher"


def decide(figures: Figures, readings: Sequence[Reading], still_us: int) -> Decision:
    """What follows from the readings of one cell.

    Args:
        figures: the ledger's side, read after the last reading.
        readings: oldest first, at least one.
        still_us: how long Stripe's sum must have been the same.
    """
    observed = readings[-1].value
    taken = _taken_back(figures, observed - figures.recorded)
    match compare(figures, observed):
        case "open":
            return Wait(figures.unready or "requests are in flight", None)
        case "lower" | "higher" if readings[-1].at_us < figures.quiet_from_us:
            return Wait("its last attempt is too young", figures.quiet_from_us)
        case "lower" if taken is not None:
            pass
        case "lower" | "higher" as cell_class:
            return Report(cell_class, _unexplained(figures, observed - figures.recorded))
        case "equal" if not figures.waits:
            return Nothing()
        case "equal" | "missing":
            pass
        case _ as unreachable:
            assert_never(unreachable)
    moving = _moving(figures, readings, still_us)
    return moving or taken or _settled(figures, int(observed) - figures.recorded)


def has_room(figures: Figures, observed: Decimal, meter_event_id: int) -> bool:
    """Whether Stripe's sum may hold this request in doubt, alone or beside others of its cell.

    A sum that nothing here explains has room where it goes beyond what the others can take back.
    """
    (own,) = (event for event in figures.doubtful if event.meter_event_id == meter_event_id)
    others = replace(figures, doubtful=tuple(e for e in figures.doubtful if e is not own))
    sums, excess = _sums(others.doubtful), observed - figures.recorded
    if len(sums) <= SUMS_MAX and (excess in sums or excess - own.units in sums):
        return excess - own.units in sums
    low, high = _bounds(others)
    return excess - own.units >= low if own.units > 0 else excess - own.units <= high


def _moving(figures: Figures, readings: Sequence[Reading], still_us: int) -> Wait | None:
    """Until when the sum must stand still; None where it has."""
    since_us = _still_since_us(readings, figures.quiet_from_us)
    if since_us is None:
        why = "an attempt could have been in flight when it was read"
        return Wait(why, figures.quiet_from_us + still_us)
    if readings[-1].at_us - since_us < still_us:
        return Wait("Stripe's sum has not stood still for long enough", since_us + still_us)
    return None


def _taken_back(figures: Figures, excess: Decimal) -> TakeBack | None:
    """The confirmed requests that explain what is missing; None where others could as well."""
    missing = -int(excess)
    if figures.doubtful or figures.waiting or figures.adopted or excess >= 0 or missing != -excess:
        return None
    if missing not in _sums(figures.reported):
        return None
    return TakeBack(_witness(figures.reported, missing), missing)


def _still_since_us(readings: Sequence[Reading], quiet_from_us: int) -> int | None:
    """Since when the last value has been read again and again; None: never after the last attempt.

    A reading before that instant proves nothing of later ones, so it is not counted.
    """
    since_us = None
    for reading in reversed(readings):
        if reading.value != readings[-1].value or reading.at_us < quiet_from_us:
            break
        since_us = reading.at_us
    return since_us


def _settled(figures: Figures, excess: int) -> Settle:
    ids = tuple(event.meter_event_id for event in figures.doubtful)
    net = figures.owed - excess
    late = figures.late and net != 0
    if figures.adopted:
        return Settle((), ids, excess, net, late)
    present = _witness(figures.doubtful, excess)
    absent = tuple(event for event in ids if event not in present)
    return Settle(present, absent, 0, net, late)


def _explained(figures: Figures, excess: Decimal) -> bool:
    if excess != int(excess):
        return False
    if figures.adopted:
        low, high = _bounds(figures)
        return low <= excess <= high
    return int(excess) in _sums(figures.doubtful)


def _unexplained(figures: Figures, excess: Decimal) -> Decimal:
    """What is beyond the nearest bound; what lies between two explainable sums counts from 0."""
    low, high = _bounds(figures)
    if excess < low:
        return excess - low
    return excess - high if excess > high else excess


def _bounds(figures: Figures) -> tuple[int, int]:
    """The least and the greatest that Stripe can have beyond what is recorded."""
    units = [event.units for event in figures.doubtful]
    low, high = sum(u for u in units if u < 0), sum(u for u in units if u > 0)
    if figures.adopted:
        low += figures.waiting_negative
        high += figures.waiting - figures.waiting_negative
    return low, high


def _sums(doubtful: Sequence[Doubtful]) -> dict[int, tuple[int, ...]]:
    """Every sum that some of the requests make, with the places of those that make it.

    Which requests of equal sum they were makes no difference: none of them is sent again, and both
    ways the cell holds the same.
    """
    sums: dict[int, tuple[int, ...]] = {0: ()}
    for place, event in enumerate(doubtful):
        if len(sums) > SUMS_MAX:
            break
        for total, places in list(sums.items()):
            sums.setdefault(total + event.units, (*places, place))
    sums.setdefault(sum(event.units for event in doubtful), tuple(range(len(doubtful))))
    return sums


def _witness(doubtful: Sequence[Doubtful], total: int) -> tuple[int, ...]:
    """Ids of requests that add up to the total; all of them where they do."""
    if total == sum(event.units for event in doubtful):
        return tuple(event.meter_event_id for event in doubtful)
    return tuple(doubtful[place].meter_event_id for place in _sums(doubtful)[total])
