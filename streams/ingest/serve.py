"""The ingestion process: settings → an endpoint for producers, until it is told to stop.

It holds nothing that a crash could lose: what was answered is committed, and what was not is sent
again. Any number of them may run beside each other.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

import structlog
import uvicorn

from streams.adapters.clock import SystemClock
from streams.adapters.metrics import exposition
from streams.adapters.metrics_page import MetricsPage
from streams.ingest.app import Ingest, Readiness, build
from streams.ingest.keys import KeysError, KeysFile
from streams.ingest.limits import Rates
from streams.ingest.recorder import WAITING_PER_CONNECTION, Recorder
from streams.settings import Settings, SettingsError

REQUIRED_BY_INGEST = ("ingest_dsn", "ingest_keys_file")
STOP_S = 20
"""Calls in hand at SIGTERM are answered within that; longer than a key is waited for."""
log = structlog.get_logger("ingest")


class _Server(uvicorn.Server):
    """Says when it listens, and leaves signals to us: its own way ends before we have closed."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
    )
    config = uvicorn.Config(
        build(ingest),
        host=settings.ingest_host,
        port=settings.ingest_port,
        log_config=None,
        access_log=False,
        server_header=False,
        # Nothing here asks where a call comes from.
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=STOP_S,
    )
    told = exposition(ingest.figures.samples, "ingest")

    async def render() -> bytes:
        return told()

    page = MetricsPage(settings.metrics_host, settings.metrics_port, render)
    listening = _listening(config, settings.ingest_port)
    with listening:
        await _started(page, settings)
        await recorder.open()
        try:
            await _until_told(config, listening, ready)
        finally:
            await page.stop()
            await recorder.close()


async def _until_told(
    config: uvicorn.Config, listening: socket, ready: Callable[[str], None]
) -> None:
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    server = _Server(config, lambda: ready(address))

    def stop() -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    await server.serve(sockets=[listening])


def _keys(file: str) -> KeysFile:
    keys = KeysFile(Path(file))
    try:
        log.info("keys", count=len(keys.holders()))
    except KeysError as error:
        raise SettingsError([f"TAILRACE_INGEST_KEYS_FILE: {error}"]) from error
    return keys


def _listening(config: uvicorn.Config, port: int) -> socket:
    try:
        return config.bind_socket()
    except SystemExit as error:
        problem = f"TAILRACE_INGEST_PORT {port}: it is taken, or the address is not ours"
        raise SettingsError([problem]) from error


async def _started(page: MetricsPage, settings: Settings) -> None:
    try:
        log.info("metrics", address=await page.start())
    except OSError as error:
        problem = f"TAILRACE_METRICS_PORT {settings.metrics_port}: {error}"
        raise SettingsError([problem]) from error
