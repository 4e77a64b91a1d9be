"""Stripe's answers, asked for once: apart from the checks, so that they load Stripe when needed."""

import asyncio
from dataclasses import replace
from typing import Final

from streams.adapters.stripe import DEFAULT_API_BASE, StripeSink, StripeUnreadableError
from streams.cli.checkup.check import AwayError, Fix
from streams.core.live_meter import LiveMeter
from streams.core.observation import Observation, in_words, is_refusal, is_silence
from streams.settings import Settings
from streams.stripe_access import command_settings

DEADLINE_S: Final = 5.0
"""Somebody sits before it, and what it asks is small."""
BACK: Final = "try again when `tailrace status` does not say any more that Stripe is down"


def meters(settings: Settings, *, sandbox: bool) -> tuple[LiveMeter, ...]:
    """All meters of the account; blocks for five seconds at the most.

    Raises:
        AwayError: Stripe was not reached, did not answer, or refused the key.
        StripeUnreadableError: it answered something else.
    """
    reach = replace(command_settings(settings), deadline_s=DEADLINE_S)

    async def read() -> tuple[LiveMeter, ...]:
        async with StripeSink(reach) as sink:
            return await sink.meters()

    try:
        return asyncio.run(read())
    except StripeUnreadableError as error:
        seen = error.observation
        if not is_silence(seen):
            raise
        raise away(seen, settings.stripe_api_base, sandbox=sandbox) from None


def away(seen: Observation, base: str, *, sandbox: bool) -> AwayError:
    """What is told, and typed, about a Stripe that gave no answer."""
    if is_refusal(seen):
        fix = Fix("settings", "TAILRACE_STRIPE_API_KEY=…  # one that is valid")
        return AwayError(in_words(seen), fix=fix, again="correct TAILRACE_STRIPE_API_KEY first")
    if sandbox:
        # It names a fault that is armed at the stand-in, and how to end it.
        fix = Fix("shell", "tailrace sandbox status")
    elif base == DEFAULT_API_BASE:
        fix = Fix(
            "stripe", "https://status.stripe.com  # workers go on by themselves once it is back"
        )
    else:
        fix = Fix(
            "settings", f"TAILRACE_STRIPE_API_BASE={DEFAULT_API_BASE}  # or what answers there"
        )
    return AwayError(in_words(seen), fix=fix, again=BACK)
