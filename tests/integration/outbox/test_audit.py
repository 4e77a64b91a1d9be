from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.outbox.conftest import Connect, Row
from tests.support.outbox import all_of, content, correct, identity, one, outbox_rows, record
from tests.support.postgres import Database, PostgresServer

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]

MINUTES = "SELECT * FROM metering.audit_minutes('-infinity', 'infinity')"
BACKDATE = "UPDATE metering.usage_key SET received_at = %s"
MINUTE = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)
TEXT = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cs", "Z", "Cf"], exclude_characters="#"
    ),
    min_size=1,
    max_size=40,
)
AMOUNT = st.decimals(0, 999, places=6, allow_nan=False)
INSTANT = st.none() | st.integers(0, 10**15 // 2).map(
    lambda us: datetime(2001, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> Iterator[Conn]:
    database = postgres_server.create("outbox")
    with psycopg.connect(
        database.dsn(), autocommit=True, row_factory=psycopg.rows.dict_row
    ) as conn:
        yield conn
    postgres_server.drop(database)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    events=st.lists(
        st.tuples(
            TEXT,
            TEXT.filter(lambda m: not m.lower().startswith("tailrace.")),
            AMOUNT,
            TEXT,
            INSTANT,
        ),
        min_size=1,
        max_size=12,
    )
)
def test_identity_content_and_digest_equal_the_rules_in_python(
    shared: Conn, events: list[tuple[str, str, Decimal, str, datetime | None]]
) -> None:
    counts: Counter[str] = Counter()
    digests: Counter[str] = Counter()
    contents: dict[bytes, list[bytes]] = {}
    with shared.transaction(force_rollback=True):
        for tenant, metric, quantity, key, occurred in events:
            event_id = identity("sandbox", tenant, key)
            rest = "" if occurred is None else f"{occurred:%Y-%m-%dT%H:%M:%S.%f}Z"
            digest = content(event_id, metric, quantity, rest)
            known = contents.setdefault(event_id, [])
            first = not known or digest == known[0]
            result = record(
                shared,
                tenant_id=tenant,
                metric=metric,
                quantity=quantity,
                event_key=key,
                occurred_at=occurred,
            )
            assert result["event_id"].bytes == event_id
            assert result["status"] == (
                "recorded" if not known else "duplicate" if first else "conflict"
            )
            if digest not in known:
                kind = "usage" if not known else "conflict"
                counts[kind] += 1
                digests[kind] += int.from_bytes(digest, "big")
                known.append(digest)
        totals = total_of(all_of(shared, MINUTES))
    assert totals == {kind: (counts[kind], digests[kind] % 2**128) for kind in counts}


def total_of(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """Count and digest per kind over all minutes."""
    totals: dict[str, tuple[int, int]] = {}
    for row in rows:
        count, digest = totals.get(row["kind"], (0, 0))
        totals[row["kind"]] = (
            count + row["count"],
            (digest + int(row["digest"])) % 2**128,
        )
    return totals


def test_each_kind_is_counted_in_the_minute_it_was_received(
    writer: Conn, corrector: Conn, ops: Conn, admin: Conn
) -> None:
    record(writer)
    record(writer)
    record(writer, event_key="k2")
    record(writer, quantity="4")
    correct(corrector)
    all_of(ops, "SELECT * FROM metering.emit_canaries()")
    digests: dict[str, list[int]] = {}
    for row in outbox_rows(admin):
        payload = row["payload"]
        digests.setdefault(payload["type"], []).append(int(payload["content"], 16))
    assert total_of(all_of(ops, MINUTES)) == {
        kind: (len(found), sum(found) % 2**128) for kind, found in digests.items()
    }
    assert {kind: len(found) for kind, found in digests.items()} == {
        "usage": 2,
        "conflict": 1,
        "correction": 1,
        "canary": 12,
    }


@pytest.mark.parametrize(
    ("received_at", "minute"),
    [
        (MINUTE, MINUTE),
        (MINUTE + timedelta(seconds=60) - timedelta(microseconds=1), MINUTE),
        (MINUTE - timedelta(microseconds=1), MINUTE - timedelta(minutes=1)),
    ],
)
def test_minutes_are_half_open(
    writer: Conn, ops: Conn, admin: Conn, received_at: datetime, minute: datetime
) -> None:
    record(writer)
    admin.execute(BACKDATE, (received_at,))
    admin.execute("SET timezone = 'Africa/Monrovia'")
    assert [row["minute"] for row in all_of(ops, MINUTES)] == [minute]
    inside = "SELECT * FROM metering.audit_minutes(%s, %s)"
    assert len(all_of(ops, inside, (minute, minute + timedelta(minutes=1)))) == 1
    assert all_of(ops, inside, (minute + timedelta(minutes=1), "infinity")) == []


def test_identities_name_what_is_behind_a_digest(writer: Conn, ops: Conn) -> None:
    record(writer)
    record(writer, quantity="4")
    all_of(ops, "SELECT * FROM metering.emit_canaries()")
    rows = all_of(ops, "SELECT * FROM metering.identities('-infinity', 'infinity')")
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row["kind"]] += int(row["content"])
    assert total_of(all_of(ops, MINUTES)) == {
        kind: (sum(row["kind"] == kind for row in rows), total % 2**128)
        for kind, total in sums.items()
    }
    assert [(r["event_key"], r["quantity"]) for r in rows if r["kind"] == "usage"] == [
        ("k1", Decimal(3))
    ]


def opened(ops: Conn) -> list[Row]:
    return all_of(ops, "SELECT * FROM metering.open_transactions()")


def test_open_transactions_are_named_oldest_first(connect: Connect, ops: Conn) -> None:
    reading = connect("metering_writer", autocommit=False)
    writing = connect("metering_writer", autocommit=False)
    reading.execute("SELECT 1")
    record(writing)
    found = opened(ops)
    assert [row["pid"] for row in found] == [
        reading.info.backend_pid,
        writing.info.backend_pid,
    ]
    assert [row["writes_usage"] for row in found] == [False, True]
    assert found[1]["state"] == "idle in transaction"
    assert "record_usage" in found[1]["query"]
    writing.commit()
    reading.commit()
    assert opened(ops) == []


def test_a_prepared_transaction_is_named_by_its_gid(connect: Connect, ops: Conn) -> None:
    conn = connect("metering_writer", autocommit=False)
    record(conn)
    conn.execute("PREPARE TRANSACTION 'order 7'")
    (found,) = opened(ops)
    assert (found["gid"], found["state"], found["writes_usage"]) == ("order 7", "prepared", True)
    assert all_of(ops, MINUTES) == []
    conn.rollback()
    conn.autocommit = True
    conn.execute("COMMIT PREPARED 'order 7'")
    assert opened(ops) == []
    assert one(ops, MINUTES)["count"] == 1


def test_sealing_keeps_what_the_minute_held_and_shows_a_later_change(
    writer: Conn, ops: Conn, admin: Conn
) -> None:
    record(writer)
    admin.execute(BACKDATE, (MINUTE + timedelta(seconds=5),))
    minutes = [MINUTE + timedelta(seconds=5), MINUTE + timedelta(minutes=1)]
    seal: Any = "SELECT metering.seal(%s) AS n"
    assert one(ops, seal, (minutes,))["n"] == 2
    assert one(ops, seal, (minutes,))["n"] == 0, "sealing again changes nothing"
    changes = "SELECT * FROM metering.sealed_changes('-infinity', 'infinity')"
    assert all_of(ops, changes) == []
    record(writer, event_key="late commit")
    admin.execute(BACKDATE + " WHERE event_key = 'late commit'", (MINUTE,))
    (change,) = all_of(ops, changes)
    assert (change["minute"], change["kind"]) == (MINUTE, "usage")
    assert (change["sealed_count"], change["count"]) == (1, 2)


@pytest.mark.parametrize("minute", ["now()", "(now() + interval '1 hour')", "'infinity'", "NULL"])
def test_a_running_minute_cannot_be_sealed(ops: Conn, minute: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="minutes: must be over"):
        ops.execute(f"SELECT metering.seal(ARRAY[{minute}::timestamptz])".encode())


def test_the_audit_sees_every_session_though_it_may_not_write(
    outbox: Database, connect: Connect, ops: Conn
) -> None:
    conn = connect("metering_writer", autocommit=False)
    record(conn)
    (found,) = opened(ops)
    assert found["user_name"] == outbox.login("metering_writer")
