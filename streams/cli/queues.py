"""`tailrace review list` and `tailrace dead list`: what waits for a person, oldest first."""

from typing import Annotated, Any

import msgspec
import typer

from streams.cli import terminal
from streams.cli.database import connected, row, rows
from streams.cli.options import Dir, Json, new_app
from streams.cli.stack import resolve
from streams.core.instant import wire_text

review_app = new_app("What a person decides on: late, early, conflicting, too large.")
dead_app = new_app("What cannot be used or sent: malformed, refused, exhausted, ambiguous.")

Tenant = Annotated[str | None, typer.Option(help="Only this tenant's.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Items shown, at most.")]


@review_app.callback()
def review() -> None:
    """What a person decides on: late, early, conflicting, too large."""


@dead_app.callback()
def dead() -> None:
    """What cannot be used or sent: malformed, refused, exhausted, ambiguous."""


@review_app.command("list")
def list_review(
    directory: Dir = None, tenant: Tenant = None, limit: Limit = 100, as_json: Json = False
) -> None:
    """Items that wait for a decision, oldest first, each with its reason."""
    _list("review", resolve(directory).need("ledger_dsn").ledger_dsn, tenant, limit, as_json)


@dead_app.command("list")
def list_dead(
    directory: Dir = None, tenant: Tenant = None, limit: Limit = 100, as_json: Json = False
) -> None:
    """Dead letters, oldest first, each with its reason."""
    _list("dead", resolve(directory).need("ledger_dsn").ledger_dsn, tenant, limit, as_json)


def _list(kind: str, dsn: str, tenant: str | None, limit: int, as_json: bool) -> None:
    with connected(dsn, "the ledger") as ledger:
        which = {"kind": kind, "tenant": tenant, "limit": limit}
        items = rows(ledger, "parked_items", which)
        total = int(row(ledger, "parked_count", which)["count"])
    if as_json:
        terminal.emit_json({"kind": kind, "total": total, "items": [_document(i) for i in items]})
        return
    heads = ("item", "reason", "tenant", "metric", "units", "occurred", "parked", "rule")
    listed = [
        (
            item["parked_id"],
            item["reason"],
            item["tenant_id"],
            item["metric"],
            item["units"],
            _text(item["occurred_us"]),
            _text(item["parked_us"]),
            _rule(item),
        )
        for item in items
    ]
    for line in terminal.table(heads, listed):
        terminal.data(line)
    terminal.say(f"{len(items)} of {total} open items")


def _rule(item: dict[str, Any]) -> str:
    detail = msgspec.json.decode(item["detail"])
    return str(detail.get("rule", "")) if isinstance(detail, dict) else ""


def _text(instant_us: int | None) -> str | None:
    return None if instant_us is None else wire_text(instant_us)


def _document(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "item": item["parked_id"],
        "reason": item["reason"],
        "source": item["source"],
        "tenant_id": item["tenant_id"],
        "metric": item["metric"],
        "units": item["units"],
        "event_id": item["event_id"],
        "meter_event_id": item["meter_event_id"],
        "window_start": _text(item["window_start_us"]),
        "occurred_at": _text(item["occurred_us"]),
        "received_at": _text(item["received_us"]),
        "parked_at": _text(item["parked_us"]),
        "detail": msgspec.json.decode(item["detail"]),
    }


APPS = {"review": review_app, "dead": dead_app}
