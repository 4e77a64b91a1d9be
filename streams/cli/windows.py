"""`tailrace windows list|show`: what a tenant's windows came to, and what each waits for."""

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, rows
from streams.cli.document import instant_text, timed
from streams.cli.errors import FINDING
from streams.cli.options import Dir, Json, month_range, new_app, read_instant
from streams.cli.stack import resolve
from streams.core.instant import wire_text

app = new_app("Windows of usage: what they came to, and what each waits for.")

AMOUNTS: Final = ("total", "decided", "settled", "pending", "held", "dead", "doubtful")


class State(StrEnum):
    """What a window is, by the worst that is in it."""

    OPEN = "open"
    CLOSING = "closing"
    PENDING = "pending"
    SETTLED = "settled"
    HELD = "held"
    DEAD = "dead"
    DOUBTFUL = "doubtful"


NEXT: Final = {
    State.OPEN: "usage may still come: it is cut once the window is over",
    State.CLOSING: "the window is over; its close delay is not: it is cut then",
    State.PENDING: "`tailrace status` says whether Stripe takes it",
    State.SETTLED: "nothing is left to do",
    State.HELD: "no customer, a missed invoice, or a contradiction: `tailrace customers list`, "
    "`tailrace carry list`, `tailrace audit`",
    State.DEAD: "`tailrace dead list`",
    State.DOUBTFUL: "`tailrace reconcile` asks Stripe's sums once they stand still",
}


@app.command("list")
def list_windows(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    directory: Dir = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    metric: Annotated[str | None, typer.Option(help="Only this meter's.")] = None,
    month: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="Only those that begin in it, in UTC.")
    ] = None,
    state: Annotated[State | None, typer.Option(help="Only those of this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Shown, at most.")] = 100,
    as_json: Json = False,
) -> None:
    """Windows with their state and amounts, the oldest first.

    A window is named by the worst in it: dead, doubtful, held, else open, closing, pending,
    settled. Amounts are units of the meter, and always foot: total + decided = settled + pending +
    held + dead + doubtful.
    """
    from_us, to_us = (None, None) if month is None else month_range("--month", month)
    chosen = {
        "tenant": tenant, "metric": metric, "from_us": from_us, "to_us": to_us,
        "state": state.value if state else None, "limit": limit,
    }  # fmt: skip
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        found = rows(ledger, "windows", chosen)
    total = int(found[0]["windows"]) if found else 0
    if as_json:
        terminal.emit_json({"total": total, "windows": [_document(window) for window in found]})
        return
    heads = ("window", "tenant", "metric", "state", "events", *AMOUNTS)
    terminal.show_table(
        heads,
        [
            (
                instant_text(window["window_start_us"]), window["tenant_id"], window["metric"],
                window["state"], window["events"], *(window[name] for name in AMOUNTS),
            )
            for window in found
        ],
    )  # fmt: skip
    terminal.say(
        f"{len(found)} of {total} windows; `tailrace windows show TENANT METRIC WINDOW` for one"
    )


@app.command("show")
def show_window(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", show_default=False)],
    metric: Annotated[str, typer.Argument(metavar="METRIC", show_default=False)],
    window: Annotated[str, typer.Argument(metavar="WINDOW", show_default=False)],
    directory: Dir = None,
    as_json: Json = False,
) -> None:
    """One window in full: readings, entries, meter events, and what waits for a person.

    WINDOW is its start, as `windows list` prints it. Exit 1 where the ledger knows no such window.
    """
    from_us = read_instant("WINDOW", window)
    which = {
        "tenant": tenant, "metric": metric, "from_us": from_us, "to_us": from_us + 1,
        "state": None, "limit": 1,
    }  # fmt: skip
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        found = rows(ledger, "windows", which)
        parked = rows(ledger, "window_parked", which)
        if not found and not parked:
            terminal.say(f"the ledger knows no window {wire_text(from_us)} of {tenant} {metric}")
            raise typer.Exit(FINDING)
        parts = _parts(ledger, which)
    document = {
        "window": _document(found[0]) if found else None,
        **{name: [timed(each) for each in listed] for name, listed in parts.items()},
        "parked": [timed(item) for item in parked],
    }
    if as_json:
        terminal.emit_json(document)
        return
    for line in _lines(document):
        terminal.data(line)
    if found:
        terminal.say(NEXT[State(found[0]["state"])])


def _parts(ledger: Connection, which: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    entries = rows(ledger, "window_entries", which)
    covered = {"entries": [entry["entry_id"] for entry in entries]}
    return {
        "levels": rows(ledger, "window_levels", which),
        "entries": entries,
        "meter_events": rows(ledger, "trace_meter_events", covered),
    }


def _document(window: dict[str, Any]) -> dict[str, Any]:
    return {
        "tenant_id": window["tenant_id"],
        "metric": window["metric"],
        "window_start": instant_text(window["window_start_us"]),
        "window_end": instant_text(window["window_end_us"]),
        "state": window["state"],
        "events": window["events"],
        **{name: window[name] for name in AMOUNTS},
    }


def _lines(document: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    if (window := document["window"]) is not None:
        lines += terminal.table(("", ""), list(window.items()))[1:]
    tables = {
        "levels": ("catalogue_version", "shard", "count", "total", "held", "due_at"),
        "entries": ("entry_id", "kind", "delta", "state", "created_at", "actor", "reason"),
        "meter_events": (
            "meter_event_id",
            "customer",
            "value",
            "state",
            "identifier",
            "settled_at",
        ),
        "parked": ("parked_id", "kind", "reason", "units", "parked_at"),
    }
    for name, heads in tables.items():
        if document[name]:
            listed = [[each[head] for head in heads] for each in document[name]]
            lines += ["", name.replace("_", " "), *terminal.table(heads, listed)]
    return lines


APPS = {"windows": app}
