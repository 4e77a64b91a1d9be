"""Settings → how Stripe is reached.

Apart from `worker`, so that what asks Stripe does not load Kafka's clients and the engine first.
"""

from dataclasses import replace

from streams.adapters.stripe import StripeSettings
from streams.settings import Settings


def command_settings(settings: Settings) -> StripeSettings:
    """How a command reaches Stripe: it asks one thing after the other, once."""
    return StripeSettings(
        api_key=settings.stripe_api_key,
        api_base=settings.stripe_api_base,
        connect_timeout_s=settings.stripe_connect_timeout_ms / 1_000,
        read_timeout_s=settings.stripe_read_timeout_ms / 1_000,
    )


def stripe_settings(settings: Settings) -> StripeSettings:
    """How a process that goes on reaches Stripe."""
    return replace(
        command_settings(settings),
        deadline_s=request_s_max(settings),
        connections_max=max(settings.publish_lanes, 1),
    )


def request_s_max(settings: Settings) -> float:
    """Longest that one request lasts, in seconds."""
    return (settings.stripe_connect_timeout_ms + settings.stripe_read_timeout_ms) / 1_000
