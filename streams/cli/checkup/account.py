"""Stripe's answers, asked for once: apart from the checks, so that they load Stripe when needed."""

import asyncio

from streams.adapters.stripe import StripeSink
from streams.core.live_meter import LiveMeter
from streams.settings import Settings
from streams.stripe_access import command_settings


def meters(settings: Settings) -> tuple[LiveMeter, ...]:
    """All meters of the account.

    Raises:
        StripeUnreadableError: Stripe was not reached or refused.
    """

    async def read() -> tuple[LiveMeter, ...]:
        async with StripeSink(command_settings(settings)) as sink:
            return await sink.meters()

    return asyncio.run(read())
