"""`tailrace rejections list|sweep`: what Stripe accepted and took back, and what stays open."""

import asyncio
from typing import Annotated, Any

import msgspec
import typer

from streams.adapters.clock import SystemClock
from streams.adapters.ledger_pool import LedgerPool
from streams.adapters.ledger_rejections import LedgerRejections
from streams.adapters.stripe import StripeSink
from streams.adapters.stripe_events import StripeEvents
from streams.agents.rejections import Rejections
from streams.cli import terminal
from streams.cli.database import connected, ledger_rows
from streams.cli.document import instant_text
from streams.cli.options import Dir, Json, new_app
from streams.cli.stack import resolve
from streams.logs import configure_logging
from streams.settings import Settings
from streams.stripe_access import stripe_settings

app = new_app("What Stripe accepted and took back later.")

Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Rows shown of each, at most.")]


@app.callback()
def rejections() -> None:
    """What Stripe accepted and took back later."""


@app.command("list")
def list_reports(directory: Dir = None, limit: Limit = 100, as_json: Json = False) -> None:
    """Stripe's error reports, youngest first, and the cells that wait for reconciliation.

    The meter events that a report names are dead letters: see `tailrace dead list`. Errors beyond
    its samples name nobody: whatever may be meant is marked as a cell in doubt. Named requests that
    this ledger does not know are listed until it does: after it was restored from a backup they
    are of what it forgot, and what Stripe lacks of that is sent when its cells are reconciled.
    """
    settings = resolve(directory).need("ledger_dsn")
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        reports = ledger_rows(ledger, "reports", {"limit": limit})
        unknown = ledger_rows(ledger, "unknown_requests", {"limit": limit})
        doubts = ledger_rows(ledger, "doubts", {"limit": limit})
        [state] = ledger_rows(ledger, "sweep_state")
    document = _document(reports, doubts, unknown, state[0])
    if as_json:
        terminal.emit_json(document)
        return
    for line in _lines(document):
        terminal.data(line)
    terminal.say(
        f"{len(reports)} of {state[1]} reports, {len(doubts)} of {state[2]} cells in doubt, "
        f"{len(unknown)} of {state[3]} requests unknown; "
        f"Stripe's list read up to {document['swept_until'] or 'never'}"
    )


@app.command("sweep")
def sweep(directory: Dir = None) -> None:
    """Reads Stripe's list of error reports now and notes what no webhook has told.

    Workers and webhooks do this every TAILRACE_REPORT_SWEEP_S by themselves. Harmless twice.
    """
    settings = resolve(directory).need("ledger_dsn", "stripe_api_key")
    configure_logging(settings.log_level)
    missing, rejected = asyncio.run(_sweep(settings))
    terminal.data(f"noted {missing} reports; {rejected} meter events rejected")
    if rejected:
        terminal.say("  next: `tailrace dead list`")


async def _sweep(settings: Settings) -> tuple[int, int]:
    pool = LedgerPool(settings.ledger_dsn, connections_max=2)
    await pool.open()
    try:
        async with StripeSink(stripe_settings(settings)) as sink:
            desk = Rejections(LedgerRejections(pool), StripeEvents(sink), SystemClock())
            missing = await desk.sweep(0.0)
            return missing or 0, desk.figures.taken_back
    finally:
        await pool.close()


def _document(
    reports: list[tuple[Any, ...]],
    doubts: list[tuple[Any, ...]],
    unknown: list[tuple[Any, ...]],
    swept_us: int | None,
) -> dict[str, Any]:
    return {
        "swept_until": instant_text(swept_us),
        "reports": [
            {
                "event_id": event_id,
                "event_type": event_type,
                "event_name": event_name,
                "validation_start": instant_text(start_us),
                "validation_end": instant_text(end_us),
                "error_count": error_count,
                "named": named,
                "unnamed": unnamed,
                "meter_events": meter_events,
                "codes": msgspec.json.decode(codes),
                "noted_by": noted_by,
                "noted_at": instant_text(noted_us),
            }
            for (
                event_id, event_type, event_name, start_us, end_us, error_count, unnamed, noted_by,
                noted_us, named, meter_events, codes,
            ) in reports
        ],
        "doubts": [
            {
                "customer": customer,
                "event_name": event_name,
                "window_start": instant_text(start_us),
                "window_end": instant_text(end_us),
                "reason": reason,
                "noted_at": instant_text(noted_us),
            }
            for customer, event_name, start_us, end_us, reason, noted_us in doubts
        ],
        "unknown": [
            {
                "event_id": event_id,
                "request": request,
                "code": code,
                "message": message,
                "noted_at": instant_text(noted_us),
            }
            for event_id, request, code, message, noted_us in unknown
        ],
    }  # fmt: skip


def _lines(document: dict[str, Any]) -> list[str]:
    heads = ("report", "meter", "errors", "named", "ours", "codes", "noted", "by")
    shown = terminal.table(
        heads,
        (
            (
                one["event_id"],
                one["event_name"],
                one["error_count"],
                one["named"],
                one["meter_events"],
                ", ".join(f"{code} {count}" for code, count in one["codes"].items()),
                one["noted_at"],
                one["noted_by"],
            )
            for one in document["reports"]
        ),
    )
    if document["doubts"]:
        of_cells = ("customer", "meter", "window", "until", "in doubt because")
        shown += ["", *terminal.table(of_cells, _rows(document["doubts"], *_OF_DOUBTS))]
    if document["unknown"]:
        of_requests = ("unknown request", "report", "code", "noted")
        shown += ["", *terminal.table(of_requests, _rows(document["unknown"], *_OF_UNKNOWN))]
    return shown


_OF_DOUBTS = ("customer", "event_name", "window_start", "window_end", "reason")
_OF_UNKNOWN = ("request", "event_id", "code", "noted_at")


def _rows(items: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(item[name] for name in names) for item in items]


APPS = {"rejections": app}
