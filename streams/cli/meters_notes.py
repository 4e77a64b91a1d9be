"""A meters file beside the ledger and Stripe → what is no problem of it, and worth a word.

A meter that the file lacks stays in force, since the catalogue only grows; a meter that Stripe
lacks turns its first usage into dead letters.
"""

import asyncio
from collections.abc import Iterator, Sequence
from importlib import import_module

from streams.cli.stack import Stack
from streams.core.catalogue import MeterVersion
from streams.core.meters_file import Meters


def notes(stack: Stack, meters: Meters, in_force: Sequence[MeterVersion]) -> Iterator[str]:
    """Sentences for people; Stripe is asked where its address and key are known."""
    wanted = {version.metric for version, _ in meters.wanted}
    for version in in_force:
        if version.metric not in wanted:
            yield (
                f"{version.metric} is in force and not in this file: it stays, a catalogue only "
                "grows"
            )
    settings = stack.settings
    if not (settings.stripe_api_base and settings.stripe_api_key):
        yield "not compared with Stripe: its address or key is not set"
        return
    # Loaded for this alone: they bring Stripe's library.
    stripe = import_module("streams.adapters.stripe")
    access = import_module("streams.stripe_access")

    async def active() -> set[str]:
        async with stripe.StripeSink(access.command_settings(settings)) as sink:
            return {meter.event_name for meter in await sink.meters() if meter.active}

    try:
        there = asyncio.run(active())
    except stripe.StripeUnreadableError:
        yield "not compared with Stripe: it cannot be read just now"
        return
    for name in sorted({version.event_name for version, _ in meters.wanted} - there):
        yield (
            f"Stripe has no active meter with the event name {name}: create it before usage comes, "
            "else the first usage is dead until it is redriven"
        )
