"""What waits for a person, oldest first: the lists of `tailrace review` and `tailrace dead`."""

from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, row, rows
from streams.cli.document import instant_text

Tenant = Annotated[str | None, typer.Option(help="Only this tenant's.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Items shown, at most.")]
Items = Annotated[list[int], typer.Argument(metavar="ITEM...", show_default=False)]


def list_items(kind: str, dsn: str, tenant: str | None, limit: int, *, as_json: bool) -> None:
    """Prints the open items of a kind, `review` or `dead`.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    with connected(dsn, "the ledger") as ledger:
        items, total, corrected = read_queue(ledger, kind, tenant, limit)
    if as_json:
        listed_items = [_document(item) for item in items]
        terminal.emit_json(
            {"kind": kind, "total": total, "corrected": corrected, "items": listed_items}
        )
        return
    heads = ("item", "reason", "tenant", "metric", "units", "occurred", "parked", "rule")
    listed = [
        (
            item["parked_id"],
            item["reason"],
            item["tenant_id"],
            item["metric"],
            item["units"],
            instant_text(item["occurred_us"]),
            instant_text(item["parked_us"]),
            rule_of(item),
        )
        for item in items
    ]
    terminal.show_table(heads, listed)
    terminal.say(f"{len(items)} of {total} open items; `tailrace {kind} show ITEM` for one in full")
    if corrected:
        terminal.say(f"{corrected} more were resolved by corrections")


class Queue(NamedTuple):
    """Open items of one kind, the oldest first."""

    items: list[dict[str, Any]]
    total: int
    corrected: int
    """How many more were resolved by corrections."""


def read_queue(ledger: Connection, kind: str, tenant: str | None, limit: int) -> Queue:
    """Reads the open items of a kind, at most `limit` of them.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    which = {"kind": kind, "tenant": tenant, "limit": limit}
    counts = row(ledger, "parked_count", which)
    items = rows(ledger, "parked_items", which)
    return Queue(items, int(counts["count"]), int(counts["corrected"]))


def rule_of(item: dict[str, Any]) -> str:
    """The rule that parked an item, as its evidence tells it."""
    detail = msgspec.json.decode(item["detail"])
    return str(detail.get("rule", "")) if isinstance(detail, dict) else ""


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
        "window_start": instant_text(item["window_start_us"]),
        "occurred_at": instant_text(item["occurred_us"]),
        "received_at": instant_text(item["received_us"]),
        "parked_at": instant_text(item["parked_us"]),
        "detail": msgspec.json.decode(item["detail"]),
    }
