from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from decimal import Decimal

import psycopg
import pytest

from streams.engine.partitioner import home_partition
from tests.integration.outbox.conftest import Row
from tests.support.outbox import all_of, content, one, outbox_rows
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_published_values(admin: Conn, data: bytes, signed: int) -> None:
    assert one(admin, "SELECT metering.murmur2(%s) AS h", (data,))["h"] == signed & 0xFFFFFFFF


def test_every_key_falls_where_the_workers_expect_it(admin: Conn) -> None:
    rng = random.Random(7)
    keys = ["".join(rng.choice("aé#9客🔑") for _ in range(rng.randint(1, 30))) for _ in range(300)]
    rows = all_of(
        admin,
        "SELECT k, metering.partition_of(k, 12) AS p FROM unnest(%s::text[]) AS k",
        (keys,),
    )
    assert [row["p"] for row in rows] == [home_partition(key.encode(), 12) for key in keys]


def test_one_canary_falls_on_each_partition(ops: Conn, admin: Conn) -> None:
    token = uuid.uuid4()
    sent = all_of(ops, "SELECT * FROM metering.emit_canaries(%s)", (token,))
    assert [row["partition"] for row in sent] == list(range(12))
    assert {row["sent_token"] for row in sent} == {token}
    for row in outbox_rows(admin):
        payload = row["payload"]
        assert row["event_type"] == "metering.canary"
        assert payload["partition"] == home_partition(row["kafka_key"].encode(), 12)
        assert payload["kafka_key"] == payload["tenant_id"] == row["kafka_key"]
        assert payload["tenant_id"].startswith("tailrace.canary")
        assert payload["token"] == str(token)
        assert (
            payload["content"]
            == content(row["event_id"].bytes, "tailrace.canary", Decimal(0), "").hex()
        )
    assert len({row["event_id"] for row in sent}) == 12


def test_a_round_without_a_token_gets_one_of_its_own(ops: Conn) -> None:
    tokens = [
        {row["sent_token"] for row in all_of(ops, "SELECT * FROM metering.emit_canaries()")}
        for _ in range(2)
    ]
    assert len(tokens[0]) == len(tokens[1]) == 1
    assert tokens[0] != tokens[1]


@pytest.mark.parametrize("partitions", [1, 3, 48, 256])
def test_any_partition_count_gets_a_key_per_partition(
    fresh_database: Callable[..., Database], partitions: int
) -> None:
    with fresh_database("outbox", {"partitions": partitions}).connect() as conn:
        found = conn.execute("SELECT partition, tenant_id FROM metering.canary_key").fetchall()
    assert sorted(row[0] for row in found) == list(range(partitions))
    assert all(home_partition(row[1].encode(), partitions) == row[0] for row in found)
