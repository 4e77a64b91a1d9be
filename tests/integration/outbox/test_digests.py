"""SQL writes the digests and the workers compute them again: the two must agree on every value."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec
import pytest

from streams.core.envelope import decode
from streams.core.event import Conflict, Correction, Decoded, Malformed, UsageEvent
from streams.core.identity import content_digest, correction_id, event_id
from tests.support.outbox import all_of, content, correct, identity, one, record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from tests.integration.outbox.conftest import Row

pytestmark = pytest.mark.postgres

ROWS: Final = 600
NAMES: Final = (
    "k", "a b", "ключ", "äöü", "a\u0308", "\u00e4", "数量", "🧾🧾", "👩\u200d👧", "x\u00a0y",
    '"q"', "back\\slash", "%s", "{}", "null", "0", "K" * 200, "ж" * 100, "🧾" * 50, "\ufffd",
    "\ufdd0", "e\u0301\u0327",
)  # fmt: skip
"""Also what JSON escapes, what only looks alike, and names of the greatest length in bytes."""
METRICS: Final = ("api_calls", "запросы", "🧾", "m" * 100, 'quo"ted', "a.b-c_d")
QUANTITIES: Final = (
    "0", "0.000", "-0", "1", "1.0", "1.50", "100", "1e2", "1e-12", "1E+14", "0.1e1", "00012.3400",
    "0.000000000001", "999.999999999999", "999999999999999", "123456789.000001", "0.10",
)  # fmt: skip
INSTANTS: Final = (
    None, "2000-01-01 00:00:00+00", "2026-11-29 16:01:09.8+01", "2026-11-29 23:59:59.999999+00",
    "2026-11-29 00:00:00.000001-14", "2024-02-29 12:00:00+05:45", "2026-11-29T12:00:00.1234564Z",
    "2026-11-29 12:00:00.9999995+00", "1999-12-31 23:00:00-05", "2026-10-25 02:30:00 Europe/Berlin",
)  # fmt: skip
ATTRIBUTES: Final = (
    None, "{}", '{"quantity": "7", "content": "00"}', '{"k": 1.10, "big": 1e400, "n": null}',
    '{"nested": {"a": [1, [2, {"b": "\\u00e9\\ud83e\\uddfe"}]]}}',
    '{"":"", "\\\\": "\\n\\t\\u0001"}',
    '{"event_id": "x", "v": 9, "type": "canary", "occurred_at": 5}',
)  # fmt: skip


def generated(seed: int) -> Iterator[Row]:
    """Every edge, in mixed company; most rows under a name of their own, the rest meet again."""
    rng = random.Random(seed)
    edges = [NAMES, METRICS, QUANTITIES, INSTANTS, ATTRIBUTES]
    for number in range(ROWS):
        key, metric, quantity, instant, attributes = (
            edge[number] if number < len(edge) else rng.choice(edge) for edge in edges
        )
        if rng.random() < 0.3:
            whole, decimals = rng.randrange(10**3), rng.randrange(13)
            quantity = (
                f"{whole}.{rng.randrange(10**12):012}"[: len(str(whole)) + 1 + decimals] + "0"
            )
        if rng.random() < 0.3:
            instant = f"2026-11-{rng.randint(1, 29)} 07:00:00.{rng.randrange(10**6):06}+03"
        yield {
            "tenant_id": rng.choice(("acme", "hot", "ältere Öfen", "顧客", "🧾")),
            "event_key": key if rng.random() < 0.3 or number < len(NAMES) else f"{number}"[:9],
            "metric": metric,
            "quantity": quantity,
            "occurred_at": instant,
            "attributes": attributes,
        }


@pytest.fixture
def payloads(
    writer: psycopg.Connection[Row],
    corrector: psycopg.Connection[Row],
    ops: psycopg.Connection[Row],
    admin: psycopg.Connection[Row],
) -> list[tuple[str, str]]:
    """Kafka key and value, as Debezium takes them from the rows: first copies and re-emitted."""
    all_of(ops, "SELECT metering.set_shards('hot', 3)")
    for number, row in enumerate(generated(seed=20_261_130)):
        record(writer, **row)
        if number % 5 == 0:
            fix = {"tenant_id": row["tenant_id"], "target_event_key": row["event_key"]}
            correct(corrector, **fix, delta=f"-0.{number + 1:04}0", correction_key=f"ключ {number}")
            correct(corrector, **fix, delta="17", correction_key=f"ключ {number}")
    all_of(ops, "SELECT metering.reemit(now() - interval '1 h', now() + interval '1 h', 'lost')")
    rows = all_of(admin, "SELECT kafka_key, payload::text FROM metering.usage_outbox")
    return [(row["kafka_key"], row["payload"]) for row in rows]


def test_what_sql_recorded_is_what_the_workers_compute(payloads: list[tuple[str, str]]) -> None:
    kinds: dict[type[Decoded], int] = {}
    for key, value in payloads:
        wire = msgspec.json.decode(value)
        decoded = decode(key.encode(), value.encode())
        assert isinstance(decoded, UsageEvent | Conflict | Correction), (decoded, value)
        kinds[type(decoded)] = kinds.get(type(decoded), 0) + 1
        named = wire["source"], wire["tenant_id"], wire["event_key"]
        amount, signed = wire.get("delta", wire.get("quantity")), "delta" in wire
        expected = identity("correction", *named) if signed else identity(*named)
        assert UUID(wire["event_id"]).bytes == expected
        assert expected == (correction_id(*named) if signed else event_id(*named))
        rests = [wire["target_event_id"]] if signed else ["", wire["occurred_at"]]
        digests = {content(expected, wire["metric"], Decimal(amount), rest) for rest in rests}
        assert digests == {content_digest(expected, wire["metric"], amount, r) for r in rests}
        assert bytes.fromhex(wire["content"]) in digests
    assert all(kinds[kind] > 100 for kind in (UsageEvent, Conflict, Correction))


def test_no_row_passes_with_another_field_in_a_digest(payloads: list[tuple[str, str]]) -> None:
    for key, value in payloads:
        wire = msgspec.json.decode(value)
        amount = "delta" if "delta" in wire else "quantity"
        for field in (amount, "metric", "source", "event_key"):
            changed = wire | {field: wire[field][:-1] + ("1" if wire[field][-1] != "1" else "2")}
            decoded = decode(key.encode(), msgspec.json.encode(changed))
            assert isinstance(decoded, Malformed), changed
            named = field in {"source", "event_key"}
            assert decoded.path == ("$.event_id" if named else "$.content")


def test_sql_and_workers_hash_any_values_alike(admin: psycopg.Connection[Row]) -> None:
    query = """
        SELECT metering.usage_identity(%(source)s, %(tenant)s, %(key)s) AS event_id,
            metering.correction_identity(%(source)s, %(tenant)s, %(key)s) AS correction_id,
            metering.content_digest(
                metering.usage_identity(%(source)s, %(tenant)s, %(key)s), %(metric)s,
                %(quantity)s::numeric, coalesce(metering.wire_time(%(at)s::timestamptz), '')
            ) AS content,
            trim_scale(%(quantity)s::numeric)::text AS amount,
            coalesce(metering.wire_time(%(at)s::timestamptz), '') AS given
    """
    for source in ("sandbox", "ältere"):
        for row in generated(seed=len(source)):
            named = {"source": source, "tenant": row["tenant_id"], "key": row["event_key"]}
            found = one(
                admin,
                query,
                named
                | {"metric": row["metric"], "quantity": row["quantity"], "at": row["occurred_at"]},
            )
            expected = event_id(*named.values())
            assert found["event_id"].bytes == expected
            assert found["correction_id"].bytes == correction_id(*named.values())
            digest = content_digest(expected, row["metric"], found["amount"], found["given"])
            assert found["content"] == digest
