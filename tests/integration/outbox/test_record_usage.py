from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.conftest import Connect, Row
from tests.support.outbox import all_of, content, identity, one, outbox_rows, record

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]


def test_a_first_recording_goes_out_with_its_pinned_identity(writer: Conn, admin: Conn) -> None:
    result = record(
        writer, quantity="1.50", occurred_at="2026-11-29 16:01:09.8+01", attributes='{"k": 1.10}'
    )
    event_id = identity("sandbox", "acme", "k1")
    assert result["status"] == "recorded"
    assert result["event_id"] == uuid.UUID(bytes=event_id)
    (row,) = outbox_rows(admin)
    received = one(admin, "SELECT metering.wire_time(%s) AS t", (result["received_at"],))["t"]
    assert row["payload"] == {
        "v": 1,
        "type": "usage",
        "source": "sandbox",
        "event_id": str(uuid.UUID(bytes=event_id)),
        "tenant_id": "acme",
        "event_key": "k1",
        "kafka_key": "acme",
        "shard": 0,
        "metric": "api_calls",
        "quantity": "1.5",
        "occurred_at": "2026-11-29T15:01:09.800000Z",
        "received_at": received,
        "content": content(
            event_id, "api_calls", Decimal("1.50"), "2026-11-29T15:01:09.800000Z"
        ).hex(),
        "content_version": 1,
        "attributes": {"k": 1.1},
    }
    assert (row["event_type"], row["schema_version"]) == ("usage.recorded", 1)
    assert (row["kafka_key"], row["event_id"]) == ("acme", result["event_id"])
    assert row["emitted_at"] == row["received_at"] == result["received_at"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"quantity": "1.10"}, {"quantity": "1.1"}),
        ({"quantity": "100"}, {"quantity": "1e2"}),
        ({"quantity": "0"}, {"quantity": "0.000"}),
        ({"attributes": '{"trace": 1}'}, {"attributes": '{"trace": 2}'}),
        ({"on_conflict": "park"}, {"on_conflict": "raise"}),
        (
            {"occurred_at": "2026-11-29 12:00:00+00"},
            {"occurred_at": "2026-11-29 13:00:00+01"},
        ),
    ],
)
def test_a_retry_is_a_duplicate_and_returns_the_first_result(
    writer: Conn, admin: Conn, first: Row, second: Row
) -> None:
    recorded, again = record(writer, **first), record(writer, **second)
    assert again == {**recorded, "status": "duplicate"}
    assert len(outbox_rows(admin)) == 1


def test_a_retry_of_usage_that_happens_now_is_a_duplicate(writer: Conn, admin: Conn) -> None:
    recorded, again = record(writer), record(writer)
    assert again["received_at"] == recorded["received_at"]
    payload = outbox_rows(admin)[0]["payload"]
    assert payload["occurred_at"] == payload["received_at"]


@pytest.mark.parametrize(
    "changed",
    [
        {"quantity": "4"},
        {"metric": "storage"},
        {"occurred_at": "2026-11-29 12:00:00+00"},
    ],
)
def test_other_content_is_a_conflict_that_goes_out_once(
    writer: Conn, admin: Conn, changed: Row
) -> None:
    first = record(writer)
    conflict, again = record(writer, **changed), record(writer, **changed)
    assert conflict["status"] == "conflict"
    assert conflict == again
    assert conflict["event_id"] == first["event_id"]
    assert conflict["received_at"] > first["received_at"]
    usage, parked = outbox_rows(admin)
    assert parked["event_type"] == "usage.conflict"
    assert parked["payload"]["first_content"] == usage["payload"]["content"]
    assert parked["payload"]["first_received_at"] == usage["payload"]["received_at"]
    assert parked["payload"]["content"] != usage["payload"]["content"]
    assert parked["payload"]["type"] == "conflict"
    assert record(writer)["status"] == "duplicate", "the first recording stands"


def test_each_other_content_is_a_conflict_of_its_own(writer: Conn, admin: Conn) -> None:
    record(writer)
    assert [record(writer, quantity=q)["status"] for q in (4, 5, 4)] == ["conflict"] * 3
    assert len(outbox_rows(admin)) == 3


def test_raising_on_conflict_names_what_was_recorded_first(writer: Conn, admin: Conn) -> None:
    record(writer)
    with pytest.raises(psycopg.errors.UniqueViolation) as raised:
        record(writer, quantity="4", on_conflict="raise")
    diag = raised.value.diag
    assert diag.message_primary == "event_key: already recorded with other content"
    assert diag.column_name == "event_key"
    assert "3 of api_calls" in (diag.message_detail or "")
    assert "another key" in (diag.message_hint or "")
    assert len(outbox_rows(admin)) == 1


def test_a_rolled_back_call_leaves_nothing(connect: Connect, admin: Conn) -> None:
    conn = connect("metering_writer", autocommit=False)
    record(conn)
    record(conn, quantity="4")
    conn.rollback()
    assert outbox_rows(admin) == []
    assert all_of(admin, "SELECT * FROM metering.recorded") == []
    assert record(conn)["status"] == "recorded"
    conn.commit()


def test_a_rolled_back_savepoint_leaves_the_rest(connect: Connect, admin: Conn) -> None:
    conn = connect("metering_writer", autocommit=False)
    record(conn)
    conn.execute("SAVEPOINT business")
    record(conn, event_key="k2")
    with pytest.raises(psycopg.errors.UniqueViolation):
        record(conn, quantity="4", on_conflict="raise")
    conn.execute("ROLLBACK TO SAVEPOINT business")
    conn.commit()
    assert [row["payload"]["event_key"] for row in outbox_rows(admin)] == ["k1"]


@pytest.mark.parametrize(
    "call",
    [
        "metering.record_usage('acme', 'api_calls', 3, 'k1')",
        "metering.record_usage('acme', 'api_calls', 3, 'k1', NULL, NULL, NULL)",
        "metering.record_usage('acme', 'api_calls', 3.0, 'k1', NULL, '{}', 'park')",
        "metering.record_usage(event_key => 'k1', quantity => 3, metric => 'api_calls',"
        " tenant_id => 'acme')",
    ],
)
def test_it_is_called_by_position_or_by_name(writer: Conn, call: str) -> None:
    first = one(writer, f"SELECT (r).* FROM (SELECT {call} AS r) AS c")
    assert list(first) == ["event_id", "status", "received_at"]
    assert first["status"] == "recorded"
    assert record(writer)["status"] == "duplicate"


def test_a_hostile_search_path_changes_nothing(connect: Connect, admin: Conn) -> None:
    conn = connect("metering_writer")
    conn.execute("CREATE TEMP TABLE usage_key (x int)")
    conn.execute("CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'")
    conn.execute("SET search_path = pg_temp, pg_catalog")
    conn.execute("SET timezone = 'Asia/Kathmandu'")
    conn.execute("SET datestyle = 'German'")
    result = one(
        conn,
        "SELECT event_id FROM metering.record_usage('acme', 'api_calls', 3, 'k1',"
        " '2026-11-29 12:00:00+00')",
    )
    assert result["event_id"].bytes == identity("sandbox", "acme", "k1")
    assert outbox_rows(admin)[0]["payload"]["occurred_at"] == "2026-11-29T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",) * 2,
        ("not a trace context", None),
        ("", None),
    ],
)
def test_the_callers_trace_context_travels_in_the_row(
    connect: Connect, admin: Conn, given: str, sent: str | None
) -> None:
    conn = connect("metering_writer", autocommit=False)
    conn.execute("SELECT set_config('metering.traceparent', %s, true)", (given,))
    record(conn)
    conn.commit()
    assert outbox_rows(admin)[0]["traceparent"] == sent


def test_a_busy_tenant_is_spread_by_identity_and_its_copies_still_meet(
    writer: Conn, ops: Conn, admin: Conn
) -> None:
    record(writer, event_key="before")
    ops.execute("SELECT metering.set_shards('acme', 4)")
    for n in range(40):
        record(writer, event_key=f"k{n}")
    record(writer, event_key="before", quantity="9")
    keys: dict[str, Any] = {}
    for row in outbox_rows(admin):
        payload = row["payload"]
        number = uuid.UUID(payload["event_id"]).int
        if payload["event_key"] == "before":
            assert (payload["kafka_key"], payload["shard"]) == ("acme", 0)
        else:
            assert payload["shard"] == 1 + number % 4
            assert payload["kafka_key"] == f"acme#{payload['shard']}" == row["kafka_key"]
        keys[payload["kafka_key"]] = payload
    assert set(keys) == {"acme", "acme#1", "acme#2", "acme#3", "acme#4"}
    ops.execute("SELECT metering.set_shards('acme', 1)")
    assert record(writer, event_key="k3")["status"] == "duplicate"
    record(writer, event_key="after")
    assert outbox_rows(admin)[-1]["kafka_key"] == "acme"


def test_text_of_any_language_is_taken_byte_for_byte(writer: Conn) -> None:
    for tenant in ("grüße", "客户", "a b", "a'b\"c\\d", "e\u0301", "\u00e9"):
        result = record(writer, tenant_id=tenant, event_key="🔑 " + tenant)
        assert result["status"] == "recorded"
        assert result["event_id"].bytes == identity("sandbox", tenant, "🔑 " + tenant)


def test_find_key_shows_the_caller_what_stands(writer: Conn) -> None:
    record(writer, quantity="1.50")
    record(writer, quantity="4")
    found = one(writer, "SELECT * FROM metering.find_key('acme', 'k1')")
    assert (found["kind"], found["quantity"], found["conflicts"]) == ("usage", Decimal("1.5"), 1)
    assert all_of(writer, "SELECT * FROM metering.find_key('acme', 'k2')") == []


def test_find_conflicts_shows_each_other_content_once(writer: Conn) -> None:
    first = record(writer, quantity="1.50")
    for quantity in ("4", "5", "4"):
        record(writer, quantity=quantity)
    found = all_of(writer, "SELECT * FROM metering.find_conflicts('acme', 'k1')")
    assert [row["quantity"] for row in found] == [4, 5]
    stands = one(writer, "SELECT * FROM metering.find_key('acme', 'k1')")["content"]
    assert {row["first_content"] for row in found} == {stands}
    assert {row["event_id"] for row in found} == {first["event_id"]}
    assert all(row["content"] != stands and row["kind"] == "usage" for row in found)
    assert all_of(writer, "SELECT * FROM metering.find_conflicts('acme', 'k2')") == []
