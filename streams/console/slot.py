"""The replication slot → how much WAL it holds back, and how much it may."""

from dataclasses import dataclass

from connectors.capture_queries import rows
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
        found = rows(plain(source), "slot", {"slot": wanted.slot})
        if not found:
            return Slot(wanted.slot, there=False)
        slot = found[0]
        written = rows(plain(source), "current_wal")[0]["written_lsn"]
    restart, safe = slot["restart_lsn"], slot["safe_wal_bytes"]
    retained = None if restart is None or written is None else max(0, written - restart)
    return Slot(
        wanted.slot,
        there=True,
        active=slot["active"],
        state=slot["wal_status"] or "",
        retained_bytes=retained,
        limit_bytes=None if safe is None or retained is None else retained + max(0, safe),
    )
