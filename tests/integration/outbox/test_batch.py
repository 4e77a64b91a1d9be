from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.conftest import Connect, Row
from tests.support.outbox import all_of, outbox_rows, record

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]


def batch(conn: Conn, items: list[Row]) -> list[Row]:
    return all_of(conn, "SELECT * FROM metering.record_usage_batch(%s)", (json.dumps(items),))


def item(key: str, quantity: object = 1, **more: object) -> Row:
    return {
        "tenant_id": "acme",
        "metric": "api_calls",
        "quantity": quantity,
        "event_key": key,
        **more,
    }


def test_results_come_in_input_order_whatever_the_order_of_keys(writer: Conn) -> None:
    rows = batch(writer, [item("b"), item("a"), item("c"), item("a"), item("b", 2)])
    assert [(r["index"], r["event_key"], r["status"]) for r in rows] == [
        (0, "b", "recorded"),
        (1, "a", "recorded"),
        (2, "c", "recorded"),
        (3, "a", "duplicate"),
        (4, "b", "conflict"),
    ]
    assert rows[3]["event_id"] == rows[1]["event_id"]
    assert rows[3]["received_at"] == rows[1]["received_at"]


def test_equal_keys_of_different_tenants_are_events_of_their_own(writer: Conn, admin: Conn) -> None:
    """A nightly roll-up names its event by the day, for every tenant alike."""
    tenants = ("acme", "bolt", "coil")
    rows = batch(writer, [item("2026-11-30", tenant_id=tenant) for tenant in tenants])
    assert [row["status"] for row in rows] == ["recorded"] * 3
    assert len({row["event_id"] for row in rows}) == 3
    again = batch(writer, [item("2026-11-30", tenant_id=tenant) for tenant in reversed(tenants)])
    assert [row["status"] for row in again] == ["duplicate"] * 3
    assert [row["event_id"] for row in again] == [row["event_id"] for row in reversed(rows)]
    assert [row["payload"]["tenant_id"] for row in outbox_rows(admin)] == list(tenants)


def test_it_records_what_single_calls_record(writer: Conn, admin: Conn) -> None:
    rows = batch(
        writer,
        [
            item("k1", "3.0", occurred_at=None, attributes=None, on_conflict=None),
            item("k2", 1.5, occurred_at="2026-11-29T16:01:09.8+01:00", attributes={"a": 1}),
        ],
    )
    assert record(writer)["status"] == "duplicate"
    assert (
        record(writer, event_key="k2", quantity="1.5", occurred_at="2026-11-29 15:01:09.8+00")[
            "event_id"
        ]
        == rows[1]["event_id"]
    )
    assert {row["event_type"] for row in outbox_rows(admin)} == {"usage.recorded"}
    assert outbox_rows(admin)[1]["payload"]["attributes"] == {"a": 1}


def test_an_empty_batch_records_nothing(writer: Conn) -> None:
    assert batch(writer, []) == []


def test_a_raised_conflict_takes_the_whole_batch_back(writer: Conn, admin: Conn) -> None:
    record(writer)
    with pytest.raises(psycopg.errors.UniqueViolation, match="already recorded"):
        batch(writer, [item("a"), item("k1", 9, on_conflict="raise")])
    assert len(outbox_rows(admin)) == 1


def test_a_bad_item_leaves_nothing_of_the_batch(connect: Connect, admin: Conn) -> None:
    conn = connect("metering_writer", autocommit=False)
    with pytest.raises(psycopg.errors.InvalidParameterValue), conn.transaction():
        batch(conn, [item("a"), item("")])
    conn.commit()
    assert outbox_rows(admin) == []


def test_ten_thousand_events_go_in_one_call(writer: Conn, admin: Conn) -> None:
    rows = batch(writer, [item(f"k{n}", n) for n in range(10_000)])
    assert [row["index"] for row in rows] == list(range(10_000))
    assert len(all_of(admin, "SELECT FROM metering.usage_outbox")) == 10_000


def test_what_would_be_refused_is_told_and_recording_the_rest_is_not(
    writer: Conn, admin: Conn
) -> None:
    items: list[Any] = [item("a"), item("b", -1), item("c", surprise=1), 7, item("d", "1e5")]
    problems = all_of(
        writer, "SELECT * FROM metering.usage_batch_problems(%s)", (json.dumps(items),)
    )
    assert [(row["index"], row["field"], row["rule"]) for row in problems] == [
        (1, "quantity", "must not be negative"),
        (2, "surprise", "is not a field of an event"),
        (3, "", "must be an object, is number"),
        (4, "quantity", "must be a decimal number"),
    ]
    assert all(row["hint"] for row in problems)
    assert outbox_rows(admin) == []
    refused = {row["index"] for row in problems}
    left = [each for index, each in enumerate(items) if index not in refused]
    assert [row["status"] for row in batch(writer, left)] == ["recorded"]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="items: must be a JSON array"):
        all_of(writer, "SELECT * FROM metering.usage_batch_problems('{}')")
