"""`tailrace trace TENANT EVENT_KEY`: one event's whole journey, each step with its time."""

import shlex
from collections.abc import Callable
from typing import Annotated, NamedTuple

import psycopg
import typer

from streams.cli import terminal
from streams.cli.audit_copies import copied
from streams.cli.audit_skipped import read_skipped
from streams.cli.database import Connection, connected, row, rows
from streams.cli.document import instant_text
from streams.cli.errors import FINDING, UnavailableError
from streams.cli.options import Dir, Json
from streams.cli.stack import Stack, resolve
from streams.cli.trace_read import Journey, Recorded, read_journey
from streams.cli.trace_show import document, steps
from streams.core.identity import correction_id, event_id

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def trace(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", show_default=False)],
    event_key: Annotated[str, typer.Argument(metavar="EVENT_KEY", show_default=False)],
    directory: Dir = None,
    as_json: Json = False,
) -> None:
    """One event's whole journey, from outbox row to Stripe's answer; exit 1 if nobody knows it.

    Give -- before a key that begins with a dash.
    """
    source, known = read_trace(resolve(directory), tenant, event_key, terminal.say)
    if as_json:
        terminal.emit_json(
            {
                "tenant_id": tenant,
                "event_key": event_key,
                "source": source,
                "journeys": [document(journey) for journey in known],
            }
        )
    else:
        _show(tenant, event_key, known)
    if not known:
        for line in unknown(tenant, event_key, source):
            terminal.say(line)
        raise typer.Exit(FINDING)


def unknown(tenant: str, event_key: str, source: str) -> list[str]:
    """What to look at where nobody knows a key."""
    whose = shlex.quote(tenant)
    return [
        f"{tenant} {event_key}: neither the registry of {source} nor the ledger knows it",
        f"  another key or tenant? `tailrace windows list --tenant {whose}` lists what is known of "
        "this one; every letter of both counts",
        "  rolled back? what record_usage() was called for in a transaction that did not commit is "
        "never billed; where the work was done all the same, record it again under the same key",
        "  another service? its own database is asked with TAILRACE_SOURCE_DSN set to it",
    ]


class Traced(NamedTuple):
    """What is known of a key: the usage event, and a correction of the same key."""

    source: str
    known: list[Journey]


def read_trace(stack: Stack, tenant: str, event_key: str, say: Callable[[str], None]) -> Traced:
    """Follows a key from the registry through the ledger.

    Args:
        stack: what is asked.
        tenant: whose key it is.
        event_key: the key.
        say: told why the registry was not read, where it was not.

    Raises:
        UnavailableError: the ledger does not answer.
        psycopg.Error: it refused or went away.
    """
    settings = stack.need("ledger_dsn")
    source, recorded = _recorded(stack, tenant, event_key, say)
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        copied = _copied(stack, ledger, source, recorded)
        journeys = [read_journey(ledger, source, each, copied) for each in recorded]
    return Traced(source, [journey for journey in journeys if journey.known])


def _recorded(
    stack: Stack, tenant: str, event_key: str, say: Callable[[str], None]
) -> tuple[str, list[Recorded]]:
    """What the registry holds of the key; without it, the identities the key would have."""
    dsn, source = stack.settings.source_dsn, stack.settings.source
    if dsn:
        try:
            with connected(dsn, "the service's database") as registry:
                return _from_registry(registry, tenant, event_key)
        except (UnavailableError, psycopg.errors.InsufficientPrivilege) as error:
            say(f"registry not read ({error}); the ledger alone is asked")
    ids = (event_id(source, tenant, event_key), correction_id(source, tenant, event_key))
    return source, [Recorded.unread(tenant, event_key, identity) for identity in ids]


def _copied(
    stack: Stack, ledger: Connection, source: str, recorded: list[Recorded]
) -> frozenset[str]:
    """Of which of them only copies were skipped; the registry tells, so it must have been read."""
    skipped = {record.event_id for record in read_skipped(ledger)}
    asked = [each for each in recorded if each.read and each.event_id in skipped]
    if not asked:
        return frozenset()
    with connected(stack.settings.source_dsn, "the service's database") as registry:
        found = [copied(registry, ledger, source, each.received_at_us) for each in asked]
    return frozenset().union(*found)


def _from_registry(registry: Connection, tenant: str, key: str) -> tuple[str, list[Recorded]]:
    source = str(row(registry, "source_name")["source"])
    found = rows(registry, "trace_registry", {"tenant_id": tenant, "event_key": key})
    return source, [Recorded.of(tenant, key, each) for each in found]


def _show(tenant: str, event_key: str, journeys: list[Journey]) -> None:
    for journey in journeys:
        terminal.data(f"{tenant} {event_key}: {journey.recorded.kind} {journey.recorded.event_id}")
        listed = [(instant_text(step.at_us), step.name, step.text) for step in steps(journey)]
        terminal.show_table(("at", "step", ""), listed)


APPS = {"trace": app}
