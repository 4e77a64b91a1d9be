"""`tailrace exporter`: metrics of what is one for all workers, for whoever scrapes.

A process of its own: a worker knows what it does itself, and there may be none. It reads as
commands do, needs no Kafka group and no disk, and writes nothing; two beside each other are safe.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import structlog
import typer

from connectors import names
from connectors.guard_findings import Start
from connectors.observation import read_slot, read_written_lsn
from streams.adapters.group_lag import read_lag
from streams.adapters.metrics import Sample, exposition
from streams.adapters.metrics_page import MetricsPage
from streams.adapters.signals import on_stop
from streams.cli import terminal
from streams.cli.capture_access import Reach, capture_of, connect_client, source_settings
from streams.cli.database import Connection, connected, ledger_rows, plain, rows
from streams.cli.exporter_figures import (
    audit_samples,
    guard_samples,
    lag_samples,
    ledger_samples,
    slot_samples,
    window_samples,
)
from streams.cli.flow_read import read_flow
from streams.cli.options import Dir
from streams.cli.scrape import Read, Scrape
from streams.cli.stack import Stack, resolve
from streams.cli.status_read import canary_under_way, read_figures
from streams.kafka_access import client_config
from streams.logs import configure_logging
from streams.settings import SettingsError
from streams.topics import EVENTS

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SCRAPE_S: Final = 8.0
"""How long a scrape waits for a part; Prometheus gives up after ten."""
STATEMENT_MS: Final = 5_000
PATIENCE_S: Final = 4.0
"""How long Connect is asked again."""
log = structlog.get_logger("exporter")


@app.command()
def exporter(directory: Dir = None) -> None:
    """Serve /metrics and /healthz of what is one for all workers, until SIGTERM or Ctrl-C.

    Ledger, slot, connector, canaries, the group's lag: each part that is set is read when somebody
    scrapes, and one that is away costs its own figures alone: usage_exporter_up says which. It
    listens on TAILRACE_EXPORTER_HOST and _PORT, on this computer only unless told otherwise.
    Workers serve their own figures at TAILRACE_METRICS_PORT: scrape both.
    """
    stack = resolve(directory)
    settings = stack.need("ledger_dsn")
    configure_logging(settings.log_level)
    parts = parts_of(stack)
    terminal.say(f"reads: {', '.join(parts)}")
    asyncio.run(_serve(Scrape(parts, SCRAPE_S), settings.exporter_host, settings.exporter_port))


async def _serve(scrape: Scrape, host: str, port: int) -> None:
    stopped = asyncio.Event()
    on_stop(stopped.set)

    async def render() -> bytes:
        samples = await scrape.samples()
        return exposition(lambda: samples, "exporter")()

    page = MetricsPage(host, port, render)
    try:
        terminal.data(f"exporter ready: {await page.start()}")
        await stopped.wait()
    except OSError as error:
        raise SettingsError([f"TAILRACE_EXPORTER_PORT {port}: {error}"]) from error
    finally:
        await page.stop()
        scrape.close()


def parts_of(stack: Stack) -> dict[str, Read]:
    """What these settings let somebody read, each part on its own."""
    settings = stack.settings
    parts: dict[str, Read] = {
        "ledger": partial(_ledger, stack),
        "windows": partial(_windows, stack),
    }
    if settings.source_dsn:
        parts |= {"slot": partial(_slot, stack), "canary": partial(_canary, stack)}
    if settings.connect_url:
        parts["connect"] = partial(_connect, stack)
    if settings.source_dsn and settings.connect_url:
        parts["guard"] = partial(_guard, stack)
    if settings.kafka_bootstrap:
        parts["kafka"] = partial(_kafka, stack)
    return parts


@contextmanager
def _ledger_of(stack: Stack) -> Iterator[Connection]:
    with connected(stack.settings.ledger_dsn, "the ledger", STATEMENT_MS) as ledger:
        yield ledger


def _ledger(stack: Stack) -> Iterator[Sample]:
    with _ledger_of(stack) as ledger:
        figures = read_figures(ledger)
        yield from ledger_samples(figures | read_flow(stack, ledger, figures))
        yield from audit_samples(ledger_rows(ledger, "last_audits"))


def _windows(stack: Stack) -> Iterator[Sample]:
    with _ledger_of(stack) as ledger:
        yield from window_samples(rows(ledger, "incomplete_windows"))


def _slot(stack: Stack) -> Iterator[Sample]:
    wanted = source_settings(stack, Reach())
    dsn = stack.settings.source_dsn
    with connected(dsn, "the service's database", STATEMENT_MS) as connection:
        source = plain(connection)
        slot, written = read_slot(source, wanted.slot), read_written_lsn(source)
    yield from slot_samples(wanted.source, slot, written)


def _canary(stack: Stack) -> Iterator[Sample]:
    with _ledger_of(stack) as ledger:
        came = ledger_rows(ledger, "canary_ages")
    dsn = stack.settings.source_dsn
    with connected(dsn, "the service's database", STATEMENT_MS) as source:
        name, age_s = canary_under_way(source, came)
    yield "usage_canary_under_way_seconds", name, age_s or 0


def _connect(stack: Stack) -> Iterator[Sample]:
    source = stack.settings.source
    with connect_client(stack, PATIENCE_S) as client:
        running = client.status(names.connector_name(source)).all_running
    yield "usage_connector_running", source, int(running)


def _guard(stack: Stack) -> Iterator[Sample]:
    with capture_of(stack, Reach(), PATIENCE_S) as capture:
        yield from guard_samples(capture.look(Start.GO_ON))


def _kafka(stack: Stack) -> Iterator[Sample]:
    settings = stack.settings
    yield from lag_samples(read_lag(client_config(settings), EVENTS, settings.group))


APPS = {"exporter": app}
