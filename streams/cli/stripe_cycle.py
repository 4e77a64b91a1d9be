"""A customer's subscriptions at Stripe → the billing cycle of its mapping, or why it is unknown."""

import asyncio

from streams.adapters.stripe import StripeSink, StripeUnreadableError
from streams.adapters.stripe_cycles import StripeCycle, read_cycles
from streams.cli import terminal
from streams.core.billing import BillingCycle, Offered, agreed_cycle
from streams.core.instant import SECOND_US
from streams.settings import Settings
from streams.stripe_access import command_settings


def cycle_at_stripe(settings: Settings, customer: str, now_us: int) -> BillingCycle | None:
    """The one cycle of a customer's subscriptions; None, and said why, where there is none.

    Its grace is Stripe's own default: the API tells nobody the one in force.
    """
    if not settings.stripe_api_key:
        terminal.say("billing cycle: not read from Stripe, TAILRACE_STRIPE_API_KEY is not set")
        return None
    try:
        found = asyncio.run(_ask(settings, customer))
    except StripeUnreadableError as error:
        terminal.say(f"billing cycle: not read from Stripe: {error}")
        return None
    offered = [Offered(c.anchor_s * SECOND_US, c.interval, c.interval_count) for c in found]
    agreed = agreed_cycle(offered, now_us)
    if isinstance(agreed, str):
        terminal.say(f"billing cycle: not known from Stripe: {agreed}")
        return None
    return agreed


async def _ask(settings: Settings, customer: str) -> tuple[StripeCycle, ...]:
    async with StripeSink(command_settings(settings)) as sink:
        return await read_cycles(sink, customer)
