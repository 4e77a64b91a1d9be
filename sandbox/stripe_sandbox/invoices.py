"""Subscriptions and what was recorded → invoices: what is billed, and what is billed by nobody.

In: the state and a time. Out: one line per customer, name and period. An invoice becomes final at
the end of its period plus the grace, and what is received later for that period is accepted,
counted in the summaries, and on no invoice at all. A negative quantity is invoiced as nothing.
Everything follows from the facts, so it does not matter when one asks.
"""

import calendar
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from sandbox.stripe_sandbox.errors import Body
from sandbox.stripe_sandbox.fact import Meter, Recorded, Subscription
from sandbox.stripe_sandbox.settings import US_PER_S
from sandbox.stripe_sandbox.state import State
from sandbox.stripe_sandbox.summaries import aggregate

GRACE_S_MAX: Final = 72 * 3_600
_INTERVALS_S: Final = {"hour": 3_600, "day": 86_400, "week": 7 * 86_400}


@dataclass(frozen=True, slots=True)
class Period:
    """One billing period, `[start_s, end_s)`."""

    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class Line:
    """One name on one invoice."""

    subscription: str
    customer: str
    event_name: str
    period: Period
    final_at_us: int
    final: bool
    quantity: Decimal
    """What the invoice charges for, never below 0."""
    usage: Decimal
    """What arrived before the invoice became final; may be negative."""
    unbilled: Decimal
    """What arrived afterwards: on no invoice."""

    def body(self) -> Body:
        """As the control API shows it."""
        return {
            "subscription": self.subscription,
            "customer": self.customer,
            "event_name": self.event_name,
            "period_start": self.period.start_s,
            "period_end": self.period.end_s,
            "final_at_us": self.final_at_us,
            "final": self.final,
            "quantity": f"{self.quantity:f}",
            "usage": f"{self.usage:f}",
            "unbilled": f"{self.unbilled:f}",
        }


def boundary(subscription: Subscription, number: int) -> int:
    """Start of the period with that number, whole seconds; months keep the anchor's day."""
    number *= subscription.interval_count
    if subscription.interval != "month":
        return subscription.anchor_s + number * _INTERVALS_S[subscription.interval]
    anchor = datetime.fromtimestamp(subscription.anchor_s, UTC)
    months = anchor.year * 12 + anchor.month - 1 + number
    year, month = divmod(months, 12)
    day = min(anchor.day, calendar.monthrange(year, month + 1)[1])
    return int(anchor.replace(year=year, month=month + 1, day=day).timestamp())


def periods(subscription: Subscription, until_s: int) -> Iterator[Period]:
    """All periods that have begun by then."""
    number = 0
    start_s = boundary(subscription, 0)
    while start_s <= until_s:
        number += 1
        end_s = boundary(subscription, number)
        yield Period(start_s, end_s)
        start_s = end_s


def lines(state: State, subscription: Subscription, now_us: int) -> Iterator[Line]:
    """The invoice lines of a subscription; periods without any usage are left out."""
    for event_name in subscription.event_names:
        meter = next((m for m in state.meters.values() if m.event_name == event_name), None)
        events = list(state.received(subscription.customer, event_name))
        if meter is None or not events:
            continue
        last_s = max(event.timestamp_s for event in events)
        for period in periods(subscription, last_s):
            inside = [e for e in events if period.start_s <= e.timestamp_s < period.end_s]
            if inside:
                yield _line(state, subscription, meter, period, inside, now_us)


def _line(
    state: State,
    subscription: Subscription,
    meter: Meter,
    period: Period,
    events: Iterable[Recorded],
    now_us: int,
) -> Line:
    final_at_us = (period.end_s + subscription.grace_s) * US_PER_S
    before = [event for event in events if event.received_us < final_at_us]
    after = [event for event in events if event.received_us >= final_at_us]
    # A cancellation takes usage off an invoice only while that is not final.
    usage = aggregate(meter, (e for e in before if not _cancelled(state, e, final_at_us)))
    return Line(
        subscription=subscription.id,
        customer=subscription.customer,
        event_name=meter.event_name,
        period=period,
        final_at_us=final_at_us,
        final=now_us >= final_at_us,
        quantity=max(Decimal(0), usage),
        usage=usage,
        unbilled=aggregate(meter, (event for event in after if state.counts(event))),
    )


def _cancelled(state: State, event: Recorded, before_us: int) -> bool:
    at_us = state.cancelled.get(event.identifier)
    return at_us is not None and at_us < before_us


def subscription_body(subscription: Subscription, now_s: int) -> Body:
    """A subscription as Stripe's API shows it: the anchor and the period it is in."""
    current = Period(subscription.anchor_s, boundary(subscription, 1))
    for period in periods(subscription, now_s):
        current = period
    return {
        "id": subscription.id,
        "object": "subscription",
        "customer": subscription.customer,
        "billing_cycle_anchor": subscription.anchor_s,
        "livemode": False,
        "status": "active",
        "items": {
            "object": "list",
            "data": [
                {
                    "id": f"si_{subscription.id}",
                    "object": "subscription_item",
                    "current_period_start": current.start_s,
                    "current_period_end": current.end_s,
                    "price": {
                        "object": "price",
                        "recurring": {
                            "interval": subscription.interval,
                            "interval_count": subscription.interval_count,
                        },
                    },
                }
            ],
            "has_more": False,
            "url": "/v1/subscription_items",
        },
    }
