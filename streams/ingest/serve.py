"""The ingestion process: settings → an endpoint for producers, until it is told to stop.

It holds nothing that a crash could lose: what was answered is committed, and what was not is sent
again. Any number of them may run beside each other.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

from streams.adapters.clock import SystemClock
from streams.adapters.metrics import exposition
from streams.adapters.metrics_page import MetricsPage
from streams.adapters.web import WebServer
from streams.ingest.app import Ingest, Readiness, build
from streams.ingest.figures import Figures
from streams.ingest.keys import KeysError, KeysFile
from streams.ingest.limits import Rates
from streams.ingest.recorder import WAITING_PER_CONNECTION, Recorder
from streams.settings import Settings, SettingsError

REQUIRED_BY_INGEST = ("ingest_dsn", "ingest_keys_file")
STOP_S = 20
"""Calls in hand at SIGTERM are answered within that; longer than a key is waited for."""
log = structlog.get_logger("ingest")


async def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Takes calls until SIGTERM or SIGINT.

    Args:
        settings: with everything of `REQUIRED_BY_INGEST`.
        ready: told the address once it listens.

    Raises:
        SettingsError: a port is taken, or the file of keys cannot be used.
    """
    recorder = Recorder(
        settings.ingest_dsn,
        connections_max=settings.ingest_connections,
        timeout_s=settings.ingest_timeout_s,
    )
    clock = SystemClock()
    ingest = Ingest(
        _keys(settings.ingest_keys_file),
        Rates(settings.ingest_events_per_s, clock),
        recorder,
        Readiness(recorder, clock),
        settings.ingest_body_kib * 1024,
        settings.ingest_connections * (1 + WAITING_PER_CONNECTION),
        Figures(clock),
    )
    told = exposition(ingest.figures.samples, "ingest")

    async def render() -> bytes:
        return told()

    page = MetricsPage(settings.metrics_host, settings.metrics_port, render)
    with _bound(ingest, settings) as server:
        await _started(page, settings)
        await recorder.open()
        try:
            await server.serve(STOP_S, ready)
        finally:
            await page.stop()
            await recorder.close()


def _keys(file: str) -> KeysFile:
    keys = KeysFile(Path(file))
    try:
        log.info("keys", count=len(keys.holders()))
    except KeysError as error:
        raise SettingsError([f"TAILRACE_INGEST_KEYS_FILE: {error}"]) from error
    return keys


def _bound(ingest: Ingest, settings: Settings) -> WebServer:
    try:
        return WebServer(build(ingest), settings.ingest_host, settings.ingest_port)
    except OSError as error:
        problem = f"TAILRACE_INGEST_PORT {settings.ingest_port}: {error.strerror}"
        raise SettingsError([problem]) from error


async def _started(page: MetricsPage, settings: Settings) -> None:
    try:
        log.info("metrics", address=await page.start())
    except OSError as error:
        problem = f"TAILRACE_METRICS_PORT {settings.metrics_port}: {error}"
        raise SettingsError([problem]) from error
