"""What stands in the topic and should not: each ends under a name, and the partition goes on."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from confluent_kafka import Producer

from tests.support.books import Books, Use, assert_exact, await_settled, map_customers, record
from tests.support.live import LiveStack
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

MALFORMED = {
    "not JSON": b"{",
    "JSON null": b"null",
    "no value at all": None,
    "wrong type": b'{"v": 1, "type": "usage", "quantity": 3}',
    "deep": b"[" * 100_000,
    "not UTF-8": b'{"v": 1, "type": "\xff\xfe"}',
    "huge number": b'{"v": 1, "quantity": 1e400}',
}


def dead(stack: LiveStack) -> int:
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        row = ledger.execute("SELECT count(*) FROM ledger.parked WHERE kind = 'dead'").fetchone()
    assert row is not None
    return int(row[0])


def test_malformed_records_are_dead_letters_and_good_ones_behind_them_are_billed(
    stack: LiveStack,
) -> None:
    before = dead(stack)
    books = Books()
    producer = Producer(
        {"bootstrap.servers": stack.facts["kafka_bootstrap"], "partitioner": "murmur2_random"}
    )
    for value in MALFORMED.values():
        producer.produce("usage.events", value, b"bad-0")
    producer.flush(10)
    at = datetime.now(UTC) - timedelta(hours=3)  # noqa: TID251 - a service lives now
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        use = Use("bad-0", "api_calls", "behind", 5, at)
        record(service, use)
        books.note(use)
    map_customers(stack, books)
    await_settled(stack, books)
    assert_exact(stack, books)
    until(
        lambda: f"{dead(stack) - before} of {len(MALFORMED)} dead letters",
        lambda: dead(stack) - before == len(MALFORMED),
        30,
    )
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        rows = ledger.execute(
            "SELECT detail FROM ledger.parked WHERE kind = 'dead' ORDER BY parked_id"
        ).fetchall()
    for (detail,) in rows[-len(MALFORMED) :]:
        assert detail["rule"]
        assert detail["path"].startswith("$")


def test_usage_of_a_tenant_without_a_customer_waits_and_is_billed_after_the_mapping(
    stack: LiveStack,
) -> None:
    books = Books()
    at = datetime.now(UTC) - timedelta(hours=3)  # noqa: TID251 - a service lives now
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        use = Use("unmapped-0", "api_calls", "first", 41, at)
        record(service, use)
        books.note(use)

    def held() -> int:
        with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
            row = ledger.execute(
                "SELECT coalesce(sum(held), 0) FROM ledger.balance WHERE tenant_id = 'unmapped-0'"
            ).fetchone()
        assert row is not None
        return int(row[0])

    until("41 units held", lambda: held() == 41, 30)
    mapped = stack.tailrace("customers", "map", "unmapped-0", "cus_unmapped-0")
    assert mapped.returncode == 0, mapped.stderr
    await_settled(stack, books)
    assert_exact(stack, books)
