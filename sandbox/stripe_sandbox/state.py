"""The fold of all facts: meters, identifiers, stored answers and what counts.

In: facts, in order. Out: look-ups. Nothing is decided here.
"""

from collections import defaultdict
from collections.abc import Iterator
from decimal import Context, Decimal, Inexact
from typing import Final

from sandbox.stripe_sandbox.fact import (
    Cancelled,
    Delivered,
    Fact,
    Meter,
    Recorded,
    Reported,
    Session,
    StoredAnswer,
    Subscription,
)

EXACT: Final = Context(prec=200, traps=[Inexact])
"""Sums of 15-digit values never round; if one ever did, it would be an error, not a cent."""

ERROR_REPORT: Final = "v1.billing.meter.error_report_triggered"
NO_METER_FOUND: Final = "v1.billing.meter.no_meter_found"
VALIDATION_US: Final = 10_000_000
"""What one error report sums up."""

Group = tuple[str, str | None, int]
"""Type, meter and start of the validation window of an error report."""


class State:
    """Everything the stand-in remembers."""

    def __init__(self) -> None:
        self.meters: dict[str, Meter] = {}
        self.recorded: list[Recorded] = []
        self.answers: dict[str, StoredAnswer] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.held_since_us: dict[str, int] = {}
        """When each identifier was last recorded."""
        self.spent: dict[str, bool] = {}
        """Whether each identifier was last recorded for nothing: refused afterwards."""
        self.cancelled: dict[str, int] = {}
        self.unreported: list[Recorded] = []
        """Refused afterwards, and in no report yet."""
        self.reports: dict[str, Reported] = {}
        """Events by id, in the order in which they were made."""
        self.delivered: set[str] = set()
        self.sessions: dict[str, int] = {}
        """When each token of the stream expires."""
        self._by_cell: dict[tuple[str, str], list[Recorded]] = defaultdict(list)

    def apply(self, fact: Fact) -> None:  # noqa: C901 - one case a fact
        """Folds in one fact."""
        match fact:
            case Meter():
                self.meters[fact.id] = fact
            case Recorded():
                self._record(fact)
            case Cancelled():
                self.cancelled[fact.identifier] = fact.at_us
            case StoredAnswer():
                self.answers[fact.idempotency_key] = fact
            case Subscription():
                self.subscriptions[fact.id] = fact
            case Reported():
                self._report(fact)
            case Delivered():
                self.delivered.add(fact.event_id)
            case Session():
                self.sessions[fact.token] = fact.expires_us

    def _record(self, fact: Recorded) -> None:
        self.recorded.append(fact)
        self.held_since_us[fact.identifier] = fact.received_us
        self.spent[fact.identifier] = fact.refused is not None
        self._by_cell[fact.customer, fact.event_name].append(fact)
        if fact.refused is not None:
            self.unreported.append(fact)

    def _report(self, fact: Reported) -> None:
        self.reports[fact.id] = fact
        told = (fact.kind, fact.meter_id, fact.window_us)
        self.unreported = [event for event in self.unreported if self.report_of(event) != told]

    def report_of(self, event: Recorded) -> Group:
        """The report that tells of something refused afterwards."""
        window_us = event.received_us - event.received_us % VALIDATION_US
        if event.meter_id is None:
            return NO_METER_FOUND, None, window_us
        return ERROR_REPORT, event.meter_id, window_us

    def meter_ever_named(self, event_name: str) -> Meter | None:
        """The active meter that listens to the name, else the last that did."""
        found = [meter for meter in self.meters.values() if meter.event_name == event_name]
        return self.meter_named(event_name) or (found[-1] if found else None)

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
