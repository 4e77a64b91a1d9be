"""A real outbox in a database of its own, with a slot of its own, and what a test does to it.

Slot names belong to the whole server, so such an outbox can live beside others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection

from connectors.names import PUBLICATION
from schemas import migrations
from tests.support.waiting import until


@dataclass(frozen=True, slots=True)
class Outbox:
    """An installed outbox and how to reach it."""

    dsn: str
    database: str
    slot: str
    publication: str

    def connect(self) -> Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def execute(self, statement: str, *values: object) -> Any:
        with self.connect() as connection:
            cursor = connection.execute(statement.encode(), values)
            row = cursor.fetchone() if cursor.description else None
            return None if row is None else row[0]

    def record(self, *keys: str) -> list[str]:
        """Record one usage for each key, all in one transaction; gives the event ids."""
        with self.connect() as connection, connection.transaction():
            return [record_in(connection, key) for key in keys]

    def confirmed(self) -> int:
        found = self.execute(
            "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots "
            "WHERE slot_name = %s",
            self.slot,
        )
        return int(found)

    def advance(self) -> None:
        """What no sane person does: move the slot past everything written so far."""
        end = int(self.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"))

        def moved() -> bool:
            # A slot moves to what is on disk at most, and commits here may get there later.
            self.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", self.slot)
            return self.confirmed() >= end

        until("the slot is at the end of the WAL", moved)

    def drop_slot(self) -> None:
        self.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = %s",
            self.slot,
        )

    def create_slot(self) -> None:
        self.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", self.slot)

    def waiting_in_slot(self) -> int:
        """How many inserts the slot holds; only while nobody reads it."""
        return int(
            self.execute(
                "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, "
                "'proto_version', '1', 'publication_names', %s) WHERE get_byte(data, 0) = 73",
                self.slot,
                self.publication,
            )
        )

    def await_in_slot(self, rows: int) -> None:
        until(f"the slot holds {rows} rows", lambda: self.waiting_in_slot() == rows)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Somebody reads the slot and waits for more, as a second connector would."""
        slot, publication = self.slot, self.publication
        with _replicating(self.dsn) as reader:
            reader.exec_(
                f"START_REPLICATION SLOT {slot} LOGICAL 0/0 "
                f"(proto_version '1', publication_names '{publication}')".encode()
            )
            until("the slot has a reader", lambda: self.active() is True)
            yield
        until("the slot has no reader", lambda: self.active() is False)

    def active(self) -> bool:
        return bool(
            self.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", self.slot)
        )


@contextmanager
def _replicating(dsn: str) -> Iterator[psycopg.pq.abc.PGconn]:
    """A connection that speaks the replication protocol, which psycopg's own does not."""
    raw = psycopg.pq.PGconn.connect(f"{dsn} replication=database".encode())
    if raw.status != psycopg.pq.ConnStatus.OK:
        raise RuntimeError(raw.get_error_message())
    try:
        yield raw
    finally:
        raw.finish()


def record_in(connection: Connection[Any], key: str) -> str:
    """Record one usage in a transaction that the caller holds; gives the event id."""
    row = connection.execute(
        "SELECT event_id::text FROM metering.record_usage('acme', 'api_calls', 3, %s)", (key,)
    ).fetchone()
    if row is None:
        raise AssertionError("record_usage answered nothing")
    return str(row[0])


def install(dsn: str, database: str, slot: str, source: str = "shop") -> Outbox:
    """Install an outbox with a slot of the given name into an empty database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        migrations.install(
            connection, "outbox", parameters={"source": source, "partitions": 12, "slot": slot}
        )
    return Outbox(dsn, database, slot, PUBLICATION)


def dsn_of(base: str, database: str) -> str:
    """The same server and login, another database."""
    return psycopg.conninfo.make_conninfo(base, dbname=database)


def payload(value: bytes) -> dict[str, str]:
    """A record's value as the outbox wrote it."""
    decoded: dict[str, str] = json.JSONDecoder().decode(value.decode())
    return decoded
