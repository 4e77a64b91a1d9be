"""What the slot guard looks at: one reading of the server, the slot, the publication and Connect.

The order of the reading is the point of `observe`. The slot is read first and the stored position
after it: both only grow, so a slot that is ahead of a position read later is truly ahead. The end
of the WAL is read last, for the same reason. The other way round healthy pairs look broken.
"""

from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from connectors.capture_queries import rows
from connectors.connect_answers import ConnectorStatus, Offsets
from connectors.connect_client import ConnectClient
from connectors.errors import ConnectorUnknownError
from connectors.source_registry import SourceIdentity
from connectors.source_settings import SourceSettings


@dataclass(frozen=True, slots=True)
class Slot:
    """The replication slot; positions are bytes from the start of the WAL."""

    slot_type: str
    plugin: str | None
    database: str | None
    active: bool
    active_pid: int | None
    wal_status: str | None
    safe_wal_bytes: int | None
    restart_lsn: int | None
    confirmed_lsn: int | None

    def retained_bytes(self, written_lsn: int | None) -> int | None:
        """How much WAL it holds back, up to the end of the WAL; None where nobody can tell."""
        if self.restart_lsn is None or written_lsn is None:
            return None
        return max(0, written_lsn - self.restart_lsn)

    def limit_bytes(self, written_lsn: int | None) -> int | None:
        """How much it may hold back before the server gives it up; None: as much as it likes."""
        retained = self.retained_bytes(written_lsn)
        if retained is None or self.safe_wal_bytes is None:
            return None
        return retained + max(0, self.safe_wal_bytes)


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of the publication."""

    schema_name: str
    table_name: str
    row_filter: bool
    column_list: bool


@dataclass(frozen=True, slots=True)
class Publication:
    """What the publication sends."""

    pubinsert: bool
    pubupdate: bool
    pubdelete: bool
    pubtruncate: bool
    pubviaroot: bool
    puballtables: bool
    tables: tuple[PublishedTable, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """One reading of everything the guard judges."""

    identity: SourceIdentity
    """What the database says it is now."""
    database: str
    standby: bool
    server_version: int
    """As `server_version_num`, 150018 for 15.18."""
    slot: Slot | None
    publication: Publication | None
    written_lsn: int | None
    """End of the WAL; None on a standby, which has none of its own."""
    offsets: Offsets | None
    """Positions Connect holds; None when Connect does not know the connector."""
    status: ConnectorStatus | None
    config: dict[str, str] | None
    """The config Connect holds."""


def observe(
    connection: Connection[Any], client: ConnectClient, name: str, settings: SourceSettings
) -> Observation:
    """Read everything once, in the order that cannot raise a false alarm.

    Args:
        connection: to the source's database, in autocommit: inside one transaction a second reading
            could be old.
        client: the Connect cluster.
        name: the connector.
        settings: of the source.

    Raises:
        psycopg.Error: the database is away.
        ConnectUnavailableError: Connect is away.
    """
    server = rows(connection, "server_identity")[0]
    slot = read_slot(connection, settings.slot)
    offsets, status = _connect_side(client, name)
    config = client.config(name)
    written = None if server["standby"] else read_written_lsn(connection)
    return Observation(
        identity=SourceIdentity(settings.source, server["system_identifier"], server["timeline"]),
        database=server["database"],
        standby=server["standby"],
        server_version=server["server_version"],
        slot=slot,
        publication=read_publication(connection, settings.publication),
        written_lsn=written,
        offsets=offsets,
        status=status,
        config=config,
    )


def _connect_side(
    client: ConnectClient, name: str
) -> tuple[Offsets | None, ConnectorStatus | None]:
    try:
        return client.offsets(name), client.status(name)
    except ConnectorUnknownError:
        return None, None


def read_slot(connection: Connection[Any], name: str) -> Slot | None:
    """A slot as its server sees it, or None when there is none of that name.

    Raises:
        psycopg.Error: the database is away.
    """
    found = rows(connection, "slot", {"slot": name})
    return Slot(**found[0]) if found else None


def read_written_lsn(connection: Connection[Any]) -> int | None:
    """The end of the WAL. Only a server that writes one of its own can be asked.

    Raises:
        psycopg.Error: the database is away, or a standby.
    """
    written: int | None = rows(connection, "current_wal")[0]["written_lsn"]
    return written


def read_publication(connection: Connection[Any], publication: str) -> Publication | None:
    """What a publication sends, or None when there is none of that name.

    Raises:
        psycopg.Error: the database is away.
    """
    values = {"publication": publication}
    found = rows(connection, "publication", values)
    if not found:
        return None
    tables = rows(connection, "publication_tables", values)
    return Publication(**found[0], tables=tuple(PublishedTable(**table) for table in tables))
