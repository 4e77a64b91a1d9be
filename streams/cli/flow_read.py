"""The service's database and Connect → whether what is recorded reaches the ledger.

Whatever cannot be looked at is told with the reason, and never raised: the ledger's own figures
stand without it.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final

from connectors import names
from connectors.capture_queries import rows as capture_rows
from streams.cli.boundary import explain
from streams.cli.database import Connection, connected, ledger_rows, row
from streams.cli.errors import INTERNAL
from streams.cli.stack import Stack
from streams.cli.status_read import canary_under_way

CONNECT_S: Final = 2
"""Who is not away answers sooner; a person waits, and so does a scrape."""
STATEMENT_MS: Final = 1_000
PATIENCE_S: Final = 1.0
"""How long Connect is asked again."""


def read_flow(stack: Stack, ledger: Connection, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures `canary_under_way_s` and `capture` of the document of `status`.

    Args:
        stack: whose.
        ledger: what arrived.
        figures: the ledger's, as `read_figures` gives them.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    settings = stack.settings
    seen: dict[str, Any] = {
        "canary_under_way_s": None, "untold": 0, "untold_age_s": None, "slot": None,
        "connector": None, "running": True,
    }  # fmt: skip
    parts: dict[str, Callable[[], dict[str, Any]]] = {}
    if settings.source_dsn:
        came = ledger_rows(ledger, "canary_ages")
        parts["what is recorded"] = lambda: _source(stack, came, figures)
    if settings.connect_url:
        parts["the connector"] = lambda: _connector(stack)
    unread = []
    for what, look in parts.items():
        try:
            seen |= look()
        except Exception as error:  # what it means is known by its class alone
            shown = explain(error)
            if shown.exit_code == INTERNAL:
                raise
            unread.append({"what": what, "why": shown.what.partition("\n")[0]})
    under_way_s = seen.pop("canary_under_way_s")
    unset = [] if settings.source_dsn else ["TAILRACE_SOURCE_DSN"]
    return {
        "canary_under_way_s": under_way_s,
        "capture": {**seen, "unread": unread, "unset": unset},
    }


def _source(
    stack: Stack, came: Iterable[tuple[Any, ...]], figures: Mapping[str, Any]
) -> dict[str, Any]:
    settings = stack.settings
    # By the age of the ledger's last news, not by its instant: two servers, two clocks.
    news_s = min((position["age_s"] for position in figures["positions"]), default=None)
    with connected(
        settings.source_dsn, "the service's database", STATEMENT_MS, CONNECT_S
    ) as source:
        _, age_s = canary_under_way(source, came)
        recorded = row(source, "recorded_within", {"news_s": news_s})
        # Without Connect rows may take another way, and nobody misses the slot.
        slot = _slot(source) if settings.connect_url else None
    return {
        "canary_under_way_s": None if age_s is None else round(age_s, 3),
        "untold": recorded["count"],
        "untold_age_s": recorded["age_s"],
        "slot": slot,
    }


def _slot(source: Connection) -> str:
    found = capture_rows(source, "slot", {"slot": names.SLOT})
    if not found:
        return "missing"
    if found[0]["wal_status"] in {None, "lost"}:
        return "lost"
    return "read" if found[0]["active"] else "idle"


def _connector(stack: Stack) -> dict[str, Any]:
    # Loaded for this alone: it brings the client of Connect.
    access = import_module("streams.cli.capture_access")
    with access.connect_client(stack, PATIENCE_S) as client:
        status = client.status(names.connector_name(stack.settings.source))
    return {"connector": str(status), "running": status.all_running}
