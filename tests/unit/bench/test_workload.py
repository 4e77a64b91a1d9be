"""The workload is what the outbox writes, and the same for the same seed."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import msgspec

from streams.core.envelope import decode
from streams.core.event import Malformed, UsageEvent
from streams.core.identity import content_digest, event_id
from tests.bench.oracle import tally
from tests.bench.workload import SOURCE, Shape, messages
from tests.support.events import usage

SHAPE = Shape(records=4_000)


def test_the_same_seed_gives_the_same_records_and_another_gives_others() -> None:
    assert list(messages(SHAPE)) == list(messages(SHAPE))
    assert list(messages(SHAPE)) != list(messages(replace(SHAPE, seed=2)))


def test_every_readable_record_is_usage_with_the_identity_and_content_sql_would_give_it() -> None:
    readable = 0
    for message in messages(SHAPE):
        event = decode(message.key, message.value)
        if isinstance(event, Malformed):
            continue
        assert isinstance(event, UsageEvent)
        wire = msgspec.json.decode(message.value)
        identity = event_id(SOURCE, wire["tenant_id"], wire["event_key"])
        assert UUID(wire["event_id"]).bytes == identity
        content = content_digest(identity, wire["metric"], wire["quantity"], wire["occurred_at"])
        assert wire["content"] == content.hex()
        assert wire.keys() == usage().keys()
        readable += 1
    assert readable > 3_900


def test_half_of_the_tenants_name_events_at_random_and_half_in_the_order_of_time() -> None:
    named: dict[str, list[UUID]] = {}
    for value in dict.fromkeys(message.value for message in messages(SHAPE)):
        with suppress(msgspec.DecodeError):  # what was cut off
            wire = msgspec.json.decode(value)
            named.setdefault(wire["tenant_id"], []).append(UUID(wire["event_key"]))
    ordered = [keys for keys in named.values() if keys[0].version == 7]
    random = [keys for keys in named.values() if keys[0].version == 4]
    assert len(ordered) + len(random) == len(named)
    assert 0.4 < len(ordered) / len(named) < 0.6
    assert all([k.hex[:12] for k in keys] == sorted(k.hex[:12] for k in keys) for keys in ordered)
    assert any(keys != sorted(keys) for keys in random)
    assert all(key.version == keys[0].version for keys in named.values() for key in keys)


def test_the_keys_of_the_text_stand_in_the_order_of_jsonb() -> None:
    wire = msgspec.json.decode(next(messages(SHAPE)).value)
    assert list(wire) == sorted(wire, key=lambda name: (len(name), name))


def test_copies_are_byte_for_byte_and_spread_over_the_whole_topic() -> None:
    records = list(messages(SHAPE))
    distances = []
    times = Counter(message.value for message in records)
    for value, number in times.items():
        if number > 1:
            places = [place for place, message in enumerate(records) if message.value == value]
            distances.append(places[-1] - places[0])
    assert len(distances) > 150
    assert min(distances) < 100
    assert max(distances) > 2_000


def test_the_shares_are_about_what_was_asked() -> None:
    found = tally(m.value for m in messages(replace(SHAPE, records=20_000)))
    assert 900 < found.duplicates < 1_150
    assert 150 < found.late < 250
    assert 8 < found.malformed < 40
