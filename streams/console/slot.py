"""The replication slot → how much WAL it holds back, and how much it may."""

from dataclasses import dataclass

from connectors import observation
from streams.cli.capture_access import Reach, source_settings
from streams.cli.database import connected, plain
from streams.cli.stack import Stack
from streams.console.reading import STATEMENT_MS


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot as its server sees it."""

    name: str
    there: bool
    active: bool = False
    state: str = ""
    """`reserved`, `extended`, `unreserved`, `lost`."""
    retained_bytes: int | None = None
    limit_bytes: int | None = None
    """Where the server gives it up; None: never, and its disk fills."""


def read_slot(stack: Stack) -> Slot:
    """Looks once.

    Raises:
        CommandError: the service's database is not set or does not answer.
        psycopg.Error: it refused or went away.
    """
    wanted = source_settings(stack, Reach())
    with connected(stack.settings.source_dsn, "the service's database", STATEMENT_MS) as source:
        slot = observation.read_slot(plain(source), wanted.slot)
        if slot is None:
            return Slot(wanted.slot, there=False)
        written = observation.read_written_lsn(plain(source))
    return Slot(
        wanted.slot,
        there=True,
        active=slot.active,
        state=slot.wal_status or "",
        retained_bytes=slot.retained_bytes(written),
        limit_bytes=slot.limit_bytes(written),
    )
