"""The webhook process: settings → an endpoint for Stripe's calls, until it is told to stop.

A process of its own and not a page of the workers: Stripe calls one address that stays, through
whatever ends TLS, while workers come and go with the partitions and listen on loopback. It needs
no Kafka and no data directory, holds nothing that a crash could lose, and two of them beside each
other are safe, because the ledger knows each report by its id. Workers sweep all the same: without
any webhook reports are only slower.
"""

import asyncio
from collections.abc import Callable

import structlog

from streams.adapters.clock import SystemClock
from streams.adapters.ledger_pool import LedgerPool
from streams.adapters.ledger_rejections import LedgerRejections
from streams.adapters.metrics import exposition
from streams.adapters.probe import Probe
from streams.adapters.signals import on_stop
from streams.adapters.stripe import StripeSink
from streams.adapters.stripe_events import StripeEvents, open_notification
from streams.adapters.webhook import WebhookServer
from streams.agents.rejections import Rejections, report_samples
from streams.core.instant import SECOND_US
from streams.settings import Settings, SettingsError
from streams.stripe_access import stripe_settings

REQUIRED_BY_WEBHOOK = ("ledger_dsn", "stripe_api_key", "stripe_webhook_secret")
log = structlog.get_logger("webhook")


async def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Takes calls and sweeps until SIGTERM or SIGINT.

    Args:
        settings: with everything of `REQUIRED_BY_WEBHOOK`.
        ready: told the address once it listens.

    Raises:
        SettingsError: a port is taken.
    """
    stopped = asyncio.Event()
    on_stop(stopped.set)
    clock = SystemClock()
    pool = LedgerPool(settings.ledger_dsn)
    async with StripeSink(stripe_settings(settings)) as sink:
        rejections = Rejections(LedgerRejections(pool), StripeEvents(sink), clock)

        async def receive(body: bytes, signature: str | None) -> tuple[int, str]:
            opened = open_notification(
                body,
                signature,
                settings.stripe_webhook_secret,
                settings.webhook_tolerance_s,
                clock.now_us() // SECOND_US,
            )
            receipt = await rejections.receive(opened)
            return receipt.status, receipt.text

        server = WebhookServer(settings.webhook_host, settings.webhook_port, receive)
        probe = Probe(
            settings.metrics_host,
            settings.metrics_port,
            lambda: None,
            exposition(lambda: report_samples(rejections.figures)),
        )
        await pool.open()
        sweeping = asyncio.create_task(rejections.keep_sweeping(settings.report_sweep_s))
        try:
            address = await _started(server, probe, settings)
            ready(address)
            await stopped.wait()
        finally:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
            await server.stop()
            await probe.stop()
            await pool.close()


async def _started(server: WebhookServer, probe: Probe, settings: Settings) -> str:
    try:
        address = await server.start()
    except OSError as error:
        problem = f"TAILRACE_WEBHOOK_PORT {settings.webhook_port}: {error}"
        raise SettingsError([problem]) from error
    try:
        log.info("probe", address=await probe.start())
    except OSError as error:
        problem = f"TAILRACE_METRICS_PORT {settings.metrics_port}: {error}"
        raise SettingsError([problem]) from error
    return address
