"""A tenant's usage as recorded, and what became of it → one line a metric and window that foots.

In: events of the registry, what the ledger says of the same windows, parked items of the same
events, the catalogue. Out: lines with recorded + corrected + moved = billed + pending + held +
review + rejected + dead + doubtful, or the difference; and where each single event is.

Events of a meter that adds up are not single rows in the ledger. Its level holds the digest of all
that it counted, so the events listed are proven to be those exactly, or are not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from streams.core.audit import Tally
from streams.core.audit_names import Identity, name_surplus
from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.identity import DIGEST_MODULUS
from streams.core.instant import MINUTE_US
from streams.core.quantity import to_units
from streams.core.statement_line import RIGHT, Line, Span
from streams.core.window import assign

Where = Literal["accepted", "review", "approved", "rejected", "dead"]

_PARKED: Final[tuple[Where, ...]] = ("review", "approved", "rejected", "dead")


class Event(NamedTuple):
    """One first recording of usage, as the service's registry has it."""

    event_id: str
    event_key: str
    metric: str
    quantity: str
    occurred_us: int
    received_us: int
    content: int
    """Summand of digests."""


class Item(NamedTuple):
    """A record that was not counted by itself; of a skipped one the name that it was given."""

    item: int
    kind: str
    reason: str
    state: str
    event_id: str
    units: int | None
    metric: str
    occurred_us: int | None
    """None where the record itself could not be read."""


class Told(NamedTuple):
    """What the ledger holds of a window; amounts in the meter's units."""

    events: int
    """Accepted by themselves."""
    total: int
    """Their units."""
    digest: int
    corrected: int
    approved: int
    """Of entries of approvals, wherever their usage belongs."""
    shifted: int
    """Of entries that carry amounts out of a window and into another."""
    settled: int
    pending: int
    held: int
    dead: int
    doubtful: int


NOTHING: Final = Told(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Placed(NamedTuple):
    """Where an event is; `item` names what is parked of it."""

    event: Event
    span: Span
    units: int | None
    where: Where
    item: int | None


@dataclass(slots=True)
class _Sums:
    """What adds up of one window while events and items are read."""

    events: int = 0
    recorded: int = 0
    unusable: int = 0
    content: int = 0
    """Of events that are not parked."""
    newest_us: int | None = None
    items: int = 0
    """Events that are parked."""
    units: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_PARKED, 0))
    parked: list[Placed] = field(default_factory=list)
    """Some may be copies, beyond the horizon or skipped, of what was accepted before."""


_WHERE: Final[Mapping[tuple[str, str], Where]] = {
    ("review", "open"): "review",
    ("review", "approved"): "approved",
    ("review", "rejected"): "rejected",
    ("dead", "rejected"): "rejected",
}
NO_AMOUNT: Final = frozenset({"conflict", "correction_limit"})
"""Reasons of items that stand beside a recorded event, not for one."""


class Statement:
    """Takes events one by one, then gives the lines.

    Args:
        catalogue: the rule book, complete for every event.
        told: what the ledger holds, by window.
        items: parked items of usage in these windows, in the order in which they were parked.
    """

    def __init__(
        self, catalogue: Catalogue, told: Mapping[Span, Told], items: Iterable[Item]
    ) -> None:
        self._catalogue = catalogue
        self._told = told
        self._items: dict[str, Item] = {}
        for item in items:
            if item.reason not in NO_AMOUNT:
                self._items.setdefault(item.event_id, item)
        self._sums: dict[Span, _Sums] = {}
        self._copies: set[str] = set()
        self._read = False

    def place(self, event: Event) -> Placed:
        """Adds an event to its window and says where it is."""
        self._read = True
        span, units = self._window(event.metric, event.occurred_us, event.quantity)
        sums = self._of(span)
        sums.events += 1
        sums.newest_us = max(event.received_us, sums.newest_us or event.received_us)
        if units is None:
            sums.unusable += 1
        else:
            sums.recorded += units
        item = self._items.get(event.event_id)
        if item is None:
            sums.content += event.content
            return Placed(event, span, units, "accepted", None)
        amount = units if item.units is None else item.units
        placed = Placed(event, span, amount, _where(item), item.item)
        sums.items += 1
        sums.units[placed.where] += amount or 0
        sums.parked.append(placed)
        return placed

    def told_only(self) -> None:
        """Takes the ledger's word for what was recorded, where no registry is read."""
        for span, told in self._told.items():
            sums = self._of(span)
            sums.events, sums.recorded = told.events, told.total
        for item in self._items.values():
            if item.occurred_us is None:
                continue
            span, _ = self._window(item.metric, item.occurred_us, "0")
            sums, units = self._of(span), item.units
            sums.events += 1
            sums.items += 1
            if units is None:
                sums.unusable += 1
            else:
                sums.recorded += units
                sums.units[_where(item)] += units

    def lines(self) -> list[Line]:
        """One a window, in order of metric and time. Ask once, after the last event."""
        spans = sorted({*self._sums, *self._told})
        return [self._line(span) for span in spans]

    def finally_placed(self, placed: Placed) -> Placed:
        """Where an event is, once `lines` was asked: accepted, where only a copy was parked."""
        if placed.event.event_id in self._copies:
            return placed._replace(where="accepted", item=None)
        return placed

    def _of(self, span: Span) -> _Sums:
        return self._sums.setdefault(span, _Sums())

    def _window(self, metric: str, occurred_us: int, quantity: str) -> tuple[Span, int | None]:
        meter = self._catalogue.at(metric, occurred_us)
        if not isinstance(meter, MeterVersion):
            return Span(metric, *assign(occurred_us, MINUTE_US)), None
        try:
            units = to_units(quantity, meter.scale)
        except ValueError:
            units = None
        return Span(metric, *assign(occurred_us, meter.window_us)), units

    def _line(self, span: Span) -> Line:
        sums, told = self._of(span), self._told.get(span, NOTHING)
        self._leave_out_copies(sums, told)
        moved = told.approved - sums.units["approved"] + told.shifted
        line = Line(
            span, sums.events, sums.recorded, told.corrected, moved,
            told.settled, told.pending, told.held, sums.units["review"], sums.units["rejected"],
            told.dead + sums.units["dead"], told.doubtful, sums.unusable,
            difference=0,
            missing=sums.events - sums.items - told.events,
            proven=_same(sums.content, told.digest) if self._read else None,
            newest_us=sums.newest_us,
        )  # fmt: skip
        left = line.recorded + line.corrected + line.moved
        return line._replace(difference=left - sum(getattr(line, name) for name in RIGHT))

    def _leave_out_copies(self, sums: _Sums, told: Told) -> None:
        """An event that was accepted, and a copy of it parked, counts once: the digest tells."""
        surplus = Tally(
            told.events - (sums.events - sums.items),
            (told.digest - sums.content) % DIGEST_MODULUS,
        )
        parked = {placed.event.event_id: placed for placed in sums.parked}
        among = [
            Identity(event_id, "usage", "", placed.event.event_key, placed.event.content)
            for event_id, placed in parked.items()
        ]
        for identity in name_surplus(among, surplus):
            placed = parked[identity.event_id]
            sums.items -= 1
            sums.content += identity.content
            sums.units[placed.where] -= placed.units or 0
            self._copies.add(identity.event_id)


def _where(item: Item) -> Where:
    return _WHERE.get((item.kind, item.state), "dead")


def _same(left: int, right: int) -> bool:
    return (left - right) % DIGEST_MODULUS == 0
