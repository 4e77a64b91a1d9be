from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import psycopg
import pytest

from schemas.migrations import install
from tests.integration.outbox.conftest import Row
from tests.support.outbox import all_of, one, record
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

PEEK = """
    SELECT chr(get_byte(data, 0)) AS message, data FROM pg_logical_slot_peek_binary_changes(
        'capture', NULL, NULL, 'proto_version', '1', 'publication_names', 'metering_outbox')
"""


@pytest.fixture
def captured(fresh_database: Callable[..., Database]) -> Database:
    database = fresh_database()
    with database.connect() as conn:
        install(
            conn, "outbox", parameters={"source": "sandbox", "partitions": 3, "slot": "capture"}
        )
    return database


def changes(database: Database) -> Counter[str]:
    with psycopg.connect(database.dsn(), row_factory=psycopg.rows.dict_row) as conn:
        return Counter(row["message"] for row in all_of(conn, PEEK))


def test_the_slot_sees_exactly_the_inserts_that_were_committed(captured: Database) -> None:
    assert not changes(captured) & Counter("IUDT"), "installing emits nothing"
    user = captured.login("metering_writer")
    with psycopg.connect(captured.dsn(user), row_factory=psycopg.rows.dict_row) as conn:
        record(conn)
        conn.commit()
        record(conn, event_key="k2")
        conn.rollback()
        record(conn)
        record(conn, quantity="4")
        conn.commit()
    with captured.connect() as admin:
        admin.execute("SELECT metering.emit_canaries()")
        assert changes(captured)["I"] == 1 + 1 + 3
        admin.execute("SELECT metering.reemit(now() - interval '1 h', clock_timestamp(), 'x')")
        assert changes(captured)["I"] == 5 + 2 + 3, "canaries come again as well"


def test_retention_and_helper_tables_emit_nothing(captured: Database) -> None:
    with captured.connect() as admin:
        admin.execute("SELECT metering.record_usage('acme', 'api_calls', 1, 'k1')")
        admin.execute("SELECT metering.put_metric('api_calls', 0)")
        admin.execute("UPDATE metering.usage_outbox SET traceparent = 'x'")
        admin.execute("DELETE FROM metering.usage_outbox")
        admin.execute("SELECT metering.maintain(1, 20)")
        admin.execute("TRUNCATE metering.usage_outbox")
    found = changes(captured)
    assert found["I"] == 1
    assert not found & Counter("UDT")


def test_rows_travel_under_the_name_of_the_root_table(captured: Database) -> None:
    with captured.connect() as admin:
        admin.execute("SELECT metering.record_usage('acme', 'api_calls', 1, 'k1')")
    with psycopg.connect(captured.dsn(), row_factory=psycopg.rows.dict_row) as conn:
        rows: list[Row] = all_of(conn, PEEK)
        root = one(conn, "SELECT 'metering.usage_outbox'::regclass::oid::int AS oid")["oid"]
    (insert,) = [bytes(row["data"]) for row in rows if row["message"] == "I"]
    assert int.from_bytes(insert[1:5], "big") == root
