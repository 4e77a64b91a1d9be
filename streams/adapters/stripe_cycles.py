"""A customer's subscriptions at Stripe → the billing cycles that they are invoiced by."""

from dataclasses import dataclass

import stripe

from streams.adapters.stripe import StripeSink


@dataclass(frozen=True, slots=True)
class StripeCycle:
    """How one subscription is invoiced. Stripe tells nobody its finalisation grace."""

    subscription: str
    """Stripe's id of it."""
    anchor_s: int
    """Start of any of its billing periods, whole seconds since 1970 UTC."""
    interval: str | None
    """day, week, month or year, as its prices say; None where none recurs or they differ."""
    interval_count: int
    """Intervals in a period."""


async def read_cycles(sink: StripeSink, customer: str) -> tuple[StripeCycle, ...]:
    """The cycles of a customer's subscriptions that are not cancelled.

    Raises:
        StripeUnreadableError: Stripe was not reached, or the key may not read subscriptions.
    """
    async with sink.reading(f"subscriptions of {customer}"):
        page = await sink.client.v1.subscriptions.list_async({"customer": customer, "limit": 100})
        return tuple([_cycle(found) async for found in page.auto_paging_iter()])


def _cycle(subscription: stripe.Subscription) -> StripeCycle:
    recurring = [item.price.recurring for item in subscription.items.data]
    lengths = {(each.interval, each.interval_count) for each in recurring if each is not None}
    interval, count = lengths.pop() if len(lengths) == 1 else (None, 1)
    return StripeCycle(subscription.id, subscription.billing_cycle_anchor, interval, count)
