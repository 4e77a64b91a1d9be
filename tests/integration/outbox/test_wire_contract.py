from __future__ import annotations

import msgspec
import psycopg
import pytest

from schemas.contracts import EVENTS, problems
from streams.core.envelope import decode
from streams.core.event import Canary, Conflict, Correction, Malformed, UsageEvent
from tests.integration.outbox.conftest import Row
from tests.support.outbox import all_of, correct, outbox_rows, record

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]


@pytest.fixture
def rows(writer: Conn, corrector: Conn, ops: Conn, admin: Conn) -> list[Row]:
    ops.execute("SELECT metering.set_shards('客户', 8)")
    record(writer, quantity="1.50", occurred_at="2026-11-29 12:00:00+00")
    record(writer, quantity="0", event_key='k"2\\ 🔑', attributes='{"a": [1.10, null], "b": ""}')
    record(writer, tenant_id="客户", quantity="999999999999999", event_key="k3")
    record(writer, quantity="4")
    correct(corrector, delta="-0.001")
    correct(corrector, delta="2")
    record(writer, event_key="timed", occurred_at="2026-11-29 12:00:00.5+01")
    record(writer, event_key="timed", occurred_at="2026-11-29 13:00:00.5+01")
    all_of(ops, "SELECT * FROM metering.emit_canaries()")
    all_of(ops, "SELECT metering.reemit(now() - interval '1 h', now() + interval '1 h', 'lost')")
    return outbox_rows(admin)


def test_every_row_keeps_the_contract_of_its_type(rows: list[Row]) -> None:
    kinds = {row["payload"]["type"] for row in rows}
    assert kinds == set(EVENTS)
    for row in rows:
        assert problems(EVENTS[row["payload"]["type"]], row["payload"]) == []


@pytest.mark.parametrize("field", ["source", "content", "received_at", "shard", "attributes"])
def test_the_contract_would_notice_a_missing_member(rows: list[Row], field: str) -> None:
    for row in rows:
        broken = {k: v for k, v in row["payload"].items() if k != field}
        assert problems(EVENTS[row["payload"]["type"]], broken)


def test_no_row_keeps_the_contract_of_another_type(rows: list[Row]) -> None:
    for row in rows:
        for kind, name in EVENTS.items():
            assert (kind == row["payload"]["type"]) == (problems(name, row["payload"]) == [])


def test_the_workers_read_every_row_as_what_it_is(rows: list[Row]) -> None:
    types = {
        "usage": UsageEvent,
        "conflict": Conflict,
        "correction": Correction,
        "canary": Canary,
    }
    for row in rows:
        decoded = decode(row["kafka_key"].encode(), msgspec.json.encode(row["payload"]))
        assert isinstance(decoded, types[row["payload"]["type"]]), decoded


def test_the_workers_read_no_row_with_another_amount(rows: list[Row]) -> None:
    for row in rows:
        amount = "delta" if "delta" in row["payload"] else "quantity"
        changed = row["payload"] | {amount: "7000"}
        decoded = decode(row["kafka_key"].encode(), msgspec.json.encode(changed))
        assert isinstance(decoded, Malformed)
        assert decoded.path == "$.content"
