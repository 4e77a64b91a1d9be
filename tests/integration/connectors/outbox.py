"""The part of an outbox that capture can see: a partitioned table, its publication and re-emission.

Everything has names of its own, so that many such outboxes can live in one server beside a real
one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection, sql

from tests.support.postgres import until

TABLES = """
CREATE SCHEMA metering;
CREATE TABLE metering.usage_outbox (
    emitted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    event_id uuid NOT NULL,
    kafka_key text NOT NULL,
    event_type text NOT NULL,
    schema_version int NOT NULL,
    received_at timestamptz NOT NULL,
    payload jsonb NOT NULL,
    traceparent text
) PARTITION BY RANGE (emitted_at);
CREATE TABLE metering.usage_outbox_rest PARTITION OF metering.usage_outbox DEFAULT;
CREATE TABLE metering.usage_key (event_id uuid PRIMARY KEY, received_at timestamptz NOT NULL);
CREATE TABLE metering.usage_note (n int);
CREATE FUNCTION metering.emit(ids uuid[], at timestamptz[]) RETURNS bigint LANGUAGE sql AS $$
    WITH put AS (
        INSERT INTO metering.usage_outbox
            (event_id, kafka_key, event_type, schema_version, received_at, payload)
        SELECT id, 'acme', 'usage.recorded', 1, received,
               jsonb_build_object('event_id', id, 'quantity', '3')
        FROM unnest(ids, at) AS given(id, received)
        RETURNING 1
    )
    SELECT count(*) FROM put
$$;
CREATE FUNCTION metering.record(ids uuid[]) RETURNS bigint LANGUAGE sql AS $$
    WITH kept AS (
        INSERT INTO metering.usage_key SELECT id, clock_timestamp() FROM unnest(ids) AS id
        RETURNING event_id, received_at
    )
    SELECT metering.emit(array_agg(event_id), array_agg(received_at)) FROM kept
$$;
CREATE FUNCTION metering.reemit(lower timestamptz, upper timestamptz, reason text)
RETURNS bigint LANGUAGE sql AS $$
    SELECT metering.emit(array_agg(event_id), array_agg(received_at))
    FROM metering.usage_key WHERE received_at >= lower AND received_at < upper
$$;
"""


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

    def record(self, ids: list[str]) -> None:
        self.execute("SELECT metering.record(%s::uuid[])", ids)

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

        until(moved, "the slot is at the end of the WAL")

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
        until(lambda: self.waiting_in_slot() == rows, f"the slot holds {rows} rows")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Somebody reads the slot and waits for more, as a second connector would."""
        slot, publication = self.slot, self.publication
        with _replicating(self.dsn) as reader:
            reader.exec_(
                f"START_REPLICATION SLOT {slot} LOGICAL 0/0 "
                f"(proto_version '1', publication_names '{publication}')".encode()
            )
            until(lambda: self.active() is True, "the slot has a reader")
            yield
        until(lambda: self.active() is False, "the slot has no reader")

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


def install(dsn: str, database: str, slot: str) -> Outbox:
    """Install tables, publication and slot, both of the given name, into an empty database."""
    outbox = Outbox(dsn, database, slot, slot)
    with outbox.connect() as connection:
        connection.execute(TABLES.encode())
        connection.execute(
            sql.SQL(
                "CREATE PUBLICATION {} FOR TABLE metering.usage_outbox "
                "WITH (publish = 'insert', publish_via_partition_root = true)"
            ).format(sql.Identifier(slot))
        )
    outbox.create_slot()
    return outbox


def dsn_of(base: str, database: str) -> str:
    """The same server and login, another database."""
    return psycopg.conninfo.make_conninfo(base, dbname=database)


def payload(value: bytes) -> dict[str, str]:
    """A record's value as the outbox wrote it."""
    decoded: dict[str, str] = json.JSONDecoder().decode(value.decode())
    return decoded
