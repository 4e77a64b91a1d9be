"""The fold of all facts: meters, identifiers, stored answers and what counts.

In: facts, in order. Out: look-ups. Nothing is decided here.
"""

from collections import defaultdict
from collections.abc import Iterator
from decimal import Context, Decimal, Inexact
from typing import Final

from sandbox.stripe_sandbox.fact import Cancelled, Fact, Meter, Recorded, StoredAnswer, Subscription

EXACT: Final = Context(prec=200, traps=[Inexact])
"""Sums of 15-digit values never round; if one ever did, it would be an error, not a cent."""


class State:
    """Everything the stand-in remembers."""

    def __init__(self) -> None:
        self.meters: dict[str, Meter] = {}
        self.recorded: list[Recorded] = []
        self.answers: dict[str, StoredAnswer] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.held_since_us: dict[str, int] = {}
        """When each identifier was last recorded."""
        self.cancelled: dict[str, int] = {}
        self._by_cell: dict[tuple[str, str], list[Recorded]] = defaultdict(list)

    def apply(self, fact: Fact) -> None:
        """Folds in one fact."""
        match fact:
            case Meter():
                self.meters[fact.id] = fact
            case Recorded():
                self.recorded.append(fact)
                self.held_since_us[fact.identifier] = fact.received_us
                self._by_cell[fact.customer, fact.event_name].append(fact)
            case Cancelled():
                self.cancelled[fact.identifier] = fact.at_us
            case StoredAnswer():
                self.answers[fact.idempotency_key] = fact
            case Subscription():
                self.subscriptions[fact.id] = fact

    def meter_named(self, event_name: str) -> Meter | None:
        """The active meter that listens to the name."""
        for meter in self.meters.values():
            if meter.event_name == event_name and meter.active:
                return meter
        return None

    def counts(self, event: Recorded) -> bool:
        """Whether it is part of any sum."""
        return event.refused is None and event.identifier not in self.cancelled

    def counted(self, customer: str, event_name: str) -> Iterator[Recorded]:
        """What counts for a customer under a name, in the order of receipt."""
        return filter(self.counts, self._by_cell.get((customer, event_name), ()))

    def received(self, customer: str, event_name: str) -> Iterator[Recorded]:
        """What was not refused, cancelled or not, in the order of receipt."""
        events = self._by_cell.get((customer, event_name), ())
        return (event for event in events if event.refused is None)


def add_up(values: Iterator[str]) -> Decimal:
    """The exact sum of decimal texts."""
    total = Decimal(0)
    for value in values:
        total = EXACT.add(total, Decimal(value))
    return total
