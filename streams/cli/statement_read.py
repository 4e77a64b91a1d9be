"""Ledger and registry → a tenant's statement: lines a window, and where each event is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from psycopg.rows import dict_row

from streams.cli.database import Connection, connected, ledger_rows, row, rows, snapshot, statements
from streams.cli.mappings import Mapped, mappings_of
from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.instant import LAST_US, from_us
from streams.core.statement import Event, Item, Placed, Statement, Told
from streams.core.statement_line import Line, Span
from streams.settings import Settings

ROWS_AT_ONCE: Final = 10_000
_SPAN: Final = ("metric", "start_us", "end_us")


class Wanted(NamedTuple):
    """Whose statement, of when: windows that begin from `from_us` on and before `to_us`."""

    tenant: str
    metric: str | None
    from_us: int
    to_us: int


@dataclass(frozen=True, slots=True)
class Registry:
    """Whether the service's own record was read, and why not."""

    source: str | None
    why_not: str = ""


@dataclass(slots=True)
class Found:
    """A statement and what it was made of."""

    wanted: Wanted
    registry: Registry
    customers: list[Mapped]
    lines: list[Line]
    events: list[Placed] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    erasures: list[dict[str, Any]] = field(default_factory=list)
    """Of the tenant: their entries say so instead of what the service said of them."""

    def events_of(self, span: Span) -> list[Placed]:
        """Those of one window."""
        return [placed for placed in self.events if placed.span == span]


def read_statement(
    settings: Settings, wanted: Wanted, *, events: bool, show: Callable[[str], None]
) -> Found:
    """Reads the ledger first: what is recorded meanwhile is then under way, and nothing made up.

    Args:
        settings: `ledger_dsn`, and `source_dsn` where there is one.
        wanted: what is asked for.
        events: whether single events and entries are kept.
        show: told how far it is.

    Raises:
        UnavailableError: one of the databases does not answer.
        psycopg.Error: one of them refused.
    """
    with connected(settings.ledger_dsn, "the ledger") as ledger, snapshot(ledger):
        versions = [MeterVersion(*line) for line in ledger_rows(ledger, "meters")]
        statement = Statement(
            Catalogue(tuple(versions), LAST_US), _told(ledger, wanted), _items(ledger, wanted)
        )
        customers = [line for line in mappings_of(ledger) if line.tenant_id == wanted.tenant]
        known = [line["source"] for line in rows(ledger, "statement_sources")]
        entries = rows(ledger, "statement_entries", _values(wanted)) if events else []
        erasures = rows(ledger, "erasures", {"tenant": wanted.tenant})
    kept: list[Placed] = []
    registry = _read_registry(settings, known, wanted, _taking(statement, kept, events, show))
    if registry.source is None:
        statement.told_only()
    lines = statement.lines()
    placed = [statement.finally_placed(p) for p in kept]
    return Found(wanted, registry, customers, lines, placed, entries, erasures)


def _taking(
    statement: Statement, kept: list[Placed], events: bool, show: Callable[[str], None]
) -> Callable[[int, Event], None]:
    def take(number: int, event: Event) -> None:
        placed = statement.place(event)
        if events:
            kept.append(placed)
        if number % ROWS_AT_ONCE == 0:
            show(f"{number} events read")

    return take


def _values(wanted: Wanted) -> dict[str, object]:
    return {
        **wanted._asdict(),
        "from": from_us(wanted.from_us),
        "to": from_us(wanted.to_us),
    }


def _told(ledger: Connection, wanted: Wanted) -> dict[Span, Told]:
    return {
        Span(*(line[name] for name in _SPAN)): Told(
            *(int(value) for name, value in line.items() if name not in _SPAN)
        )
        for line in rows(ledger, "statement_windows", _values(wanted))
    }


def _items(ledger: Connection, wanted: Wanted) -> list[Item]:
    return [Item(*line.values()) for line in rows(ledger, "statement_parked", _values(wanted))]


def _read_registry(
    settings: Settings, known: list[str], wanted: Wanted, take: Callable[[int, Event], None]
) -> Registry:
    if not settings.source_dsn:
        return Registry(None, "TAILRACE_SOURCE_DSN is not set")
    with connected(settings.source_dsn, "the service's database") as source:
        name = row(source, "source_name")["source"]
        if others := [other for other in known if other != name]:
            return Registry(None, f"the ledger knows usage of {', '.join(others)}, too")
        query = statements("streams.cli")["statement_recorded"].statement
        with (
            source.transaction(),
            source.cursor(name="recorded", row_factory=dict_row) as cursor,
        ):
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(query, _values(wanted))
            for number, line in enumerate(cursor, 1):
                content = int.from_bytes(line.pop("content"), "big")
                take(number, Event(**line, content=content))
    return Registry(name)
