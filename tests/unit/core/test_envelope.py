"""What the bytes of a record say; whatever they are, there is an answer that names the rule."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from streams.core import envelope
from streams.core.envelope import RECORD_BYTES_MAX, decode
from streams.core.event import (
    Canary,
    Conflict,
    Correction,
    Malformed,
    Unsupported,
    UsageEvent,
    conflict_id,
    identity_of,
)
from streams.core.instant import SECOND_US
from tests.support.events import (
    SOURCE,
    T0_US,
    canary,
    conflict,
    correction,
    retold,
    sharded,
    untimed,
    usage,
)

PLAIN = usage(quantity="2.50")


def read(wire: dict[str, Any]) -> Any:
    return decode(wire["kafka_key"].encode(), msgspec.json.encode(wire))


def raw(**changes: bytes) -> Any:
    """The plain record with the JSON text of some fields replaced."""
    texts = {key: msgspec.json.encode(value) for key, value in PLAIN.items()} | changes
    body = b",".join(b'"%b":%b' % (key.encode(), text) for key, text in texts.items())
    return decode(b"acme", b"{" + body + b"}")


def test_usage_keeps_what_the_row_pinned() -> None:
    assert read(PLAIN) == UsageEvent(
        source=SOURCE,
        event_id=UUID(PLAIN["event_id"]).bytes,
        content=bytes.fromhex(PLAIN["content"]),
        tenant_id="acme",
        metric="api_calls",
        shard=0,
        quantity="2.50",
        occurred_at_us=T0_US,
        received_at_us=T0_US + SECOND_US,
    )


def test_a_shard_stands_in_the_key() -> None:
    assert read(PLAIN | {"kafka_key": "acme#3", "shard": 3}).shard == 3
    assert read(PLAIN).shard == 0


def test_the_other_types_are_read() -> None:
    second = read(conflict(PLAIN, quantity="3"))
    assert isinstance(second, Conflict)
    assert (second.first_content, second.of_correction) == (PLAIN["content"], False)
    fix = read(correction(PLAIN, "-1", review=True))
    assert isinstance(fix, Correction)
    assert (fix.event.quantity, fix.correction_key, fix.above_limit) == ("-1", "fix-1", True)
    assert fix.target_event_id == UUID(PLAIN["event_id"]).bytes
    alive = read(canary(5, partition=3))
    assert isinstance(alive, Canary)
    assert (alive.partition, alive.token) == (3, str(UUID(int=5)))


def test_a_conflict_of_corrections_says_so() -> None:
    fix = correction(PLAIN, "-1") | {"type": "conflict", "first_content": "ab" * 16}
    assert read(fix).of_correction
    assert read(fix).event.quantity == "-1"


def test_a_corrections_delta_is_its_only_amount() -> None:
    assert read(correction(PLAIN, "-1", quantity="7")).event.quantity == "-1"


def test_usage_has_no_delta() -> None:
    assert read(retold(PLAIN, "") | {"delta": "7"}).quantity == ""


def test_each_content_names_what_it_is_remembered_by() -> None:
    second, fix, alive = conflict(PLAIN, quantity="3"), correction(PLAIN, "-1"), canary(5)
    assert identity_of(read(PLAIN)) == UUID(PLAIN["event_id"]).bytes
    assert identity_of(read(fix)) == UUID(fix["event_id"]).bytes
    assert identity_of(read(alive)) == UUID(alive["event_id"]).bytes
    assert identity_of(read(second)) == conflict_id(read(second).event)
    assert identity_of(Malformed("x", "$")) is None
    assert identity_of(Unsupported(2)) is None
    others = {conflict_id(read(conflict(PLAIN, quantity=q)).event) for q in "345"}
    assert len(others) == 3


@pytest.mark.parametrize(
    ("changes", "path", "rule"),
    [
        ({"event_id": "zz"}, "$.event_id", "not 32 hex digits"),
        ({"event_id": "ab" * 15}, "$.event_id", "not 32 hex digits"),
        ({"event_id": "٠" * 32}, "$.event_id", "not 32 hex digits"),
        ({"content": "ab" * 17}, "$.content", "not 32 hex digits"),
        ({"source": ""}, "$.source", "has 0 characters, 1 to 100 are allowed"),
        ({"source": "s" * 101}, "$.source", "has 101 characters"),
        ({"metric": "m" * 101}, "$.metric", "has 101 characters"),
        ({"tenant_id": "t" * 201}, "$.tenant_id", "has 201 characters"),
        ({"event_key": ""}, "$.event_key", "has 0 characters"),
        ({"event_key": "a\0"}, "$.event_key", "must not hold control characters, holds U+0000"),
        ({"event_key": "a\u202eb"}, "$.event_key", "holds U+202E"),
        ({"tenant_id": "a\0", "kafka_key": "a\0"}, "$.tenant_id", "holds U+0000"),
        ({"tenant_id": "a\u2066", "kafka_key": "a\u2066"}, "$.tenant_id", "holds U+2066"),
        ({"metric": "a\x85"}, "$.metric", "holds U+0085"),
        ({"shard": -1, "kafka_key": "acme#-1"}, "$.shard", "must lie between 0 and 2147483647"),
        ({"shard": 2**31, "kafka_key": "acme#0"}, "$.shard", "must lie between 0"),
        ({"kafka_key": "zeta"}, "$.kafka_key", "must be the tenant"),
        ({"kafka_key": "acme#0"}, "$.kafka_key", "must be the tenant (then shard is 0)"),
        ({"kafka_key": "acme#2", "shard": 1}, "$.kafka_key", "must be the tenant"),
        ({"shard": 1}, "$.kafka_key", "must be the tenant (then shard is 0)"),
        ({"type": "refund"}, "$.type", "unknown type 'refund', known are usage, conflict"),
        ({"type": "conflict"}, "$.first_content", "not 32 hex digits"),
        ({"type": "canary"}, "$.tenant_id", "are for canaries, and only for them"),
        ({"tenant_id": "tailrace.canary.1"}, "$.tenant_id", "are for canaries"),
        ({"occurred_at": "2026-01-01T00:00:00"}, "$.occurred_at", "has no time zone"),
        ({"received_at": "2026-01-01T00:00:00"}, "$.received_at", "has no time zone"),
        ({"occurred_at": "9999-12-31T00:00:00Z"}, "$.occurred_at", "lies outside the years"),
        ({"received_at": "9999-12-31T23:59:59-14:00"}, "$.received_at", "lies outside the years"),
        ({"occurred_at": "0001-01-01T00:00:00+14:00"}, "$.occurred_at", "lies outside the years"),
        ({"occurred_at": "0000-01-01T00:00:00Z"}, "$.occurred_at", "Invalid RFC3339"),
        ({"occurred_at": "2026-13-01T00:00:00Z"}, "$.occurred_at", "Invalid RFC3339"),
        ({"occurred_at": 5}, "$.occurred_at", "Expected `str`, got `int`"),
        ({"quantity": 5}, "$.quantity", "Expected `str`, got `int`"),
        ({"shard": 1.5}, "$.shard", "Expected `int`, got `float`"),
        ({"v": 0}, "$.v", "schema versions begin at 1"),
        ({"v": "1"}, "$.v", "Expected `int`, got `str`"),
    ],
)
def test_a_broken_rule_is_named_with_its_path(
    changes: dict[str, Any], path: str, rule: str
) -> None:
    answer = read(PLAIN | changes)
    assert isinstance(answer, Malformed)
    assert answer.path == path
    assert rule in answer.reason


@pytest.mark.parametrize(
    ("changes", "path", "rule"),
    [
        ({"delta": ""}, "$.delta", "a correction needs a signed delta"),
        ({"reason": ""}, "$.reason", "has 0 characters, 1 to 2000"),
        ({"authorized_by": ""}, "$.authorized_by", "has 0 characters"),
        ({"reason": "because\0"}, "$.reason", "holds U+0000"),
        ({"target_event_id": "order-1"}, "$.target_event_id", "not 32 hex digits"),
    ],
)
def test_a_correction_says_what_why_and_who(changes: dict[str, str], path: str, rule: str) -> None:
    answer = read(correction(PLAIN, "-1") | changes)
    assert isinstance(answer, Malformed)
    assert answer.path == path
    assert rule in answer.reason


def test_a_canary_has_a_token() -> None:
    assert read(canary(1) | {"token": "1"}) == Malformed("not 32 hex digits", "$.token")


@pytest.mark.parametrize("key", [None, b"", b"zeta", b"\xff"])
def test_another_key_than_the_rows_is_refused(key: bytes | None) -> None:
    answer = decode(key, msgspec.json.encode(PLAIN))
    assert answer == Malformed("the record's Kafka key is another than the row's", "$.kafka_key")


@pytest.mark.parametrize(
    "one",
    [
        PLAIN,
        untimed(PLAIN),
        sharded(PLAIN),
        usage("ключ-1", metric="запросы", tenant_id="ältere"),
        usage("ж" * 200, "0.000000000001"),
        usage("neither printable\u00a0nor a control character"),
        conflict(PLAIN, quantity="3"),
        untimed(conflict(PLAIN, quantity="3")),
        correction(PLAIN, "-1"),
        correction(PLAIN, "-1") | {"type": "conflict", "first_content": "ab" * 16},
        canary(1),
    ],
)
def test_fields_that_were_recorded_pass_and_no_others(one: dict[str, Any]) -> None:
    assert not isinstance(read(one), Malformed)
    amount = "delta" if one.get("delta") else "quantity"
    identity = {"event_id": str(UUID(int=7))}
    for changes in ({amount: "7000"}, {amount: one[amount] + "0"}, {"metric": "storage"}, identity):
        answer = read(one | changes)
        assert isinstance(answer, Malformed)
        named = changes is identity and one["type"] != "canary"
        assert answer.path == ("$.event_id" if named else "$.content")
        assert "metering.reemit" in answer.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": "zeta", "kafka_key": "zeta"},
        {"source": "invoices"},
        {"event_key": "order-2"},
    ],
)
def test_an_identity_is_that_of_its_own_names(changes: dict[str, str]) -> None:
    for one in (PLAIN, conflict(PLAIN, quantity="3"), correction(PLAIN, "-1")):
        answer = read(one | changes)
        assert isinstance(answer, Malformed)
        assert (answer.path, "is not the identity" in answer.reason) == ("$.event_id", True)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"shard": 1}, "$.kafka_key"),
        ({"kafka_key": "acme#2"}, "$.kafka_key"),
        ({"kafka_key": "acme#2", "shard": 1}, "$.kafka_key"),
        ({"tenant_id": "acme "}, "$.kafka_key"),
        ({"type": "canary"}, "$.tenant_id"),
        ({"metric": ""}, "$.metric"),
        ({"source": "o" * 101}, "$.source"),
    ],
)
def test_names_that_were_read_before_lend_nothing_to_others(
    changes: dict[str, Any], path: str
) -> None:
    for _ in range(2):
        assert isinstance(read(PLAIN), UsageEvent)
        answer = read(PLAIN | changes)
        assert isinstance(answer, Malformed)
        assert answer.path == path


def test_names_that_are_refused_are_not_remembered() -> None:
    read(PLAIN)
    before = envelope._names.cache_info().currsize
    for number in range(9):
        long = f"{number}" * 300_000
        for changes in ({"tenant_id": long, "kafka_key": long}, {"kafka_key": long}):
            assert isinstance(read(PLAIN | changes), Malformed)
        assert isinstance(read(PLAIN | {"type": long}), Malformed)
        assert isinstance(read(canary() | {"kafka_key": long}), Malformed)
    assert envelope._names.cache_info().currsize == before


def test_an_instant_is_content_where_the_caller_gave_one() -> None:
    later = "2026-11-29T00:00:01.000000Z"
    at_once = usage(occurred_us=T0_US, received_us=T0_US)
    assert isinstance(read(at_once), UsageEvent)
    for one, changes in (
        (PLAIN, {"occurred_at": later}),
        (PLAIN, {"occurred_at": "2026-11-29T00:00:00Z"}),
        (at_once, {"occurred_at": later, "received_at": later}),
        (untimed(PLAIN), {"occurred_at": "2026-11-29T00:00:00.000000Z"}),
    ):
        answer = read(one | changes)
        assert isinstance(answer, Malformed)
        assert answer.path == "$.content"


def test_a_correction_is_of_its_own_target() -> None:
    answer = read(correction(PLAIN, "-1") | {"target_event_id": str(UUID(int=7))})
    assert isinstance(answer, Malformed)
    assert answer.path == "$.content"


def test_an_amount_of_any_length_has_an_answer() -> None:
    for length in (1023, 1024, 100_000):
        answer = read(PLAIN | {"quantity": "9" * length})
        assert isinstance(answer, Malformed)
        assert answer.path == "$.content"


def test_content_by_a_newer_rule_is_not_guessed_at() -> None:
    assert read(PLAIN | {"content_version": 2}) == Unsupported(2, "content")
    assert read(PLAIN | {"content_version": 2, "v": 2}) == Unsupported(2)
    assert read(PLAIN | {"content_version": 0}) == Malformed(
        "content versions begin at 1", "$.content_version"
    )


def test_a_newer_schema_is_not_guessed_at() -> None:
    assert read(PLAIN | {"v": 2}) == Unsupported(2)
    assert decode(b"acme", b'{"v": 3, "shape": "unknown"}') == Unsupported(3)
    assert decode(b"acme", b'{"v": 0, "shape": "unknown"}') == Malformed(
        "schema versions begin at 1", "$.v"
    )


_DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (None, "value: is null"),
        (b"", "Input data was truncated"),
        (b"\xff\xfe", "JSON is malformed"),
        (b"\xef\xbb\xbf{}", "JSON is malformed"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b"{}", "Object missing required field `v`"),
        (_DEEP, "Expected `object`, got `array`"),
        (b'{"x":' + _DEEP + b"]" * 100_000 + b"}", "value: is nested too deeply to be read"),
        (b'{"v":2,"x":' + _DEEP + b"]" * 100_000 + b"}", "value: is nested too deeply"),
        (b" " * (RECORD_BYTES_MAX + 1), f"value: has {RECORD_BYTES_MAX + 1} bytes, at most"),
        (msgspec.json.encode(PLAIN) + b"x", "JSON is malformed: trailing characters"),
    ],
)
def test_what_is_no_record_is_malformed(value: bytes | None, rule: str) -> None:
    answer = decode(b"acme", value)
    assert isinstance(answer, Malformed)
    assert rule in answer.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"shard": b"1e400"}, {"shard": b"NaN"}, {"shard": b"9" * 5000}, {"v": b"9" * 5000},
        {"shard": b"Infinity"}, {"tenant_id": b'"\\ud800"'}, {"tenant_id": b'"\xc3"'},
        {"attributes": b'{"a": "\xff"}'}, {"attributes": b'{"a": NaN}'}, {"v": b"true"},
        {"attributes": b'{"a": "\\ud800"}'}, {"occurred_at": b'"2026-12-31T23:59:60Z"'},
        {"quantity": b'"1'}, {"metric": b"null"},
    ],
)  # fmt: skip
def test_what_json_cannot_hold_is_malformed(changes: dict[str, bytes]) -> None:
    assert isinstance(raw(**changes), Malformed)


def test_attributes_are_left_alone() -> None:
    assert isinstance(raw(attributes='{"ä":[1e400,{"b":"\\\\u0000"}]}'.encode()), UsageEvent)
    assert isinstance(raw(unknown=b"[1,2,3]"), UsageEvent)


def test_the_last_of_a_repeated_name_counts() -> None:
    twice = b'{"quantity":"9",' + msgspec.json.encode(PLAIN)[1:]
    answer = decode(b"acme", twice)
    assert isinstance(answer, UsageEvent)
    assert answer.quantity == "2.50"
