from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import permutations

import psycopg
import pytest

from tests.integration.outbox.conftest import Connect, Row
from tests.support.outbox import all_of, correct, one, outbox_rows, record
from tests.support.postgres import lock_waiters
from tests.support.waiting import until

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]


def started(
    pool: ThreadPoolExecutor, admin: Conn, conn: Conn, call: Callable[[], object]
) -> Future[object]:
    """The call runs on its own thread; returns once the server shows it waiting for a lock."""
    future = pool.submit(call)
    until("the call waits", lambda: lock_waiters(admin, conn.info.backend_pid) == 1)
    return future


def test_a_concurrent_same_key_waits_and_finds_the_first(connect: Connect, admin: Conn) -> None:
    first = connect("metering_writer", autocommit=False)
    second = connect("metering_writer")
    recorded = record(first)
    with ThreadPoolExecutor(1) as pool:
        waiting = started(pool, admin, second, lambda: record(second))
        first.commit()
        assert waiting.result(10) == {**recorded, "status": "duplicate"}
    assert len(outbox_rows(admin)) == 1


def test_a_concurrent_same_key_takes_over_when_the_first_rolls_back(
    connect: Connect, admin: Conn
) -> None:
    first = connect("metering_writer", autocommit=False)
    second = connect("metering_writer")
    record(first)
    with ThreadPoolExecutor(1) as pool:
        waiting = started(pool, admin, second, lambda: record(second)["status"])
        first.rollback()
        assert waiting.result(10) == "recorded"
    assert len(outbox_rows(admin)) == 1


@pytest.mark.parametrize(
    ("metering_timeout", "own_timeout"),
    [("50ms", "0"), ("10s", "50ms"), ("50ms", "10s"), ("0", "50ms")],
)
def test_the_wait_is_bounded_by_the_shorter_of_both_settings(
    connect: Connect, metering_timeout: str, own_timeout: str
) -> None:
    first = connect("metering_writer", autocommit=False)
    second = connect("metering_writer")
    second.execute(f"SET metering.lock_timeout = '{metering_timeout}'")
    second.execute(f"SET lock_timeout = '{own_timeout}'")
    record(first)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        record(second)
    assert one(second, "SHOW lock_timeout")["lock_timeout"] == own_timeout


def test_the_callers_lock_timeout_is_as_before_after_each_call(connect: Connect) -> None:
    conn = connect("metering_writer", autocommit=False)
    conn.execute("SET LOCAL lock_timeout = '7s'")
    record(conn)
    conn.execute("SELECT * FROM metering.record_usage_batch('[]')")
    assert one(conn, "SHOW lock_timeout")["lock_timeout"] == "7s"


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_older_snapshot_is_told_to_run_again(connect: Connect, isolation: str) -> None:
    old = connect("metering_writer", autocommit=False)
    old.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
    old.execute("SELECT 1")
    record(connect("metering_writer"))
    with pytest.raises(psycopg.errors.SerializationFailure):
        record(old)
    old.rollback()
    old.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
    assert record(old)["status"] == "duplicate"


def test_batches_in_opposite_orders_never_deadlock(connect: Connect, admin: Conn) -> None:
    keys = [f"k{n}" for n in range(40)]
    orders = [list(order) for order in permutations([keys, keys[::-1], sorted(keys), keys[7:]], 2)]
    conns = [connect("metering_writer") for _ in range(8)]

    def run(conn: Conn) -> set[str]:
        statuses = set()
        for halves in orders:
            items = [
                {"tenant_id": "acme", "metric": "api_calls", "quantity": q, "event_key": key}
                for q, keys_of in enumerate(halves)
                for key in keys_of
            ]
            rows = all_of(
                conn, "SELECT * FROM metering.record_usage_batch(%s)", (json.dumps(items),)
            )
            statuses |= {row["status"] for row in rows}
        return statuses

    with ThreadPoolExecutor(len(conns)) as pool:
        found = set().union(*pool.map(run, conns))
    assert found <= {"recorded", "duplicate", "conflict"}
    kinds = [row["event_type"] for row in outbox_rows(admin)]
    assert kinds.count("usage.recorded") == len(keys)
    assert kinds.count("usage.conflict") == len(keys)


def test_many_writers_of_one_key_record_it_once(connect: Connect, admin: Conn) -> None:
    conns = [connect("metering_writer") for _ in range(8)]
    with ThreadPoolExecutor(len(conns)) as pool:
        results = list(pool.map(lambda conn: [record(conn) for _ in range(20)], conns))
    statuses = [row["status"] for rows in results for row in rows]
    assert statuses.count("recorded") == 1
    assert statuses.count("duplicate") == len(statuses) - 1
    assert len({row["received_at"] for rows in results for row in rows}) == 1
    assert len(outbox_rows(admin)) == 1


def test_concurrent_corrections_cannot_slip_past_the_limit_together(
    connect: Connect, admin: Conn
) -> None:
    admin.execute("SELECT metering.put_metric('api_calls', 0, 5)")
    record(connect("metering_writer"), quantity="100")
    first = connect("metering_corrector", autocommit=False)
    second = connect("metering_corrector")
    assert not correct(first, delta="-4")["review"]
    with ThreadPoolExecutor(1) as pool:
        waiting = started(
            pool, admin, second, lambda: correct(second, delta="-4", correction_key="c2")["review"]
        )
        first.commit()
        assert waiting.result(10) is True
