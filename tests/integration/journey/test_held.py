"""Newer records than this code knows: their partition waits with a message, the others go on."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer

from tests.support.books import Books, Use, map_customers, record
from tests.support.live import LiveStack, live_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def test_an_unknown_schema_version_holds_its_partition_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    with live_stack(tmp_path / "stack") as stack:
        stack.start_worker("held")
        _hold_one(stack)


def _hold_one(stack: LiveStack) -> None:
    key = f"future-{uuid4().hex[:6]}"
    record_text = {"v": 2, "type": "usage", "tenant_id": key, "kafka_key": key}
    producer = Producer(
        {"bootstrap.servers": stack.facts["kafka_bootstrap"], "partitioner": "murmur2_random"}
    )
    producer.produce("usage.events", json.dumps(record_text).encode(), key.encode())
    producer.flush(10)
    log = stack.workers[0].log
    until("a held partition", lambda: "schema version 2 is unknown" in log.read_text(), 30)
    assert stack.workers[0].alive
    books = Books()
    at = datetime.now(UTC) - timedelta(hours=3)  # noqa: TID251 - a service lives now
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        # Enough tenants that some live on other partitions than the held one.
        for number in range(24):
            use = Use(f"others-{number}", "exports", "one", 1, at)
            record(service, use)
            books.note(use)
    map_customers(stack, books)

    def admitted() -> int:
        with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
            row = ledger.execute(
                "SELECT count(*) FROM ledger.balance"
                " WHERE tenant_id LIKE 'others-%' AND settled = 1"
            ).fetchone()
        assert row is not None
        return int(row[0])

    until(lambda: f"{admitted()} billed", lambda: admitted() >= 12, 60)
