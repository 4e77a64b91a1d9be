"""A chunk decided: what each record leaves behind, and what must wait."""

import dataclasses
from base64 import b64decode
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from streams.core.admission import _Admission, decide
from streams.core.catalogue import Catalogue
from streams.core.decided import AwaitFresh, Decided, Hold
from streams.core.event import identity_of
from streams.core.fact import CanaryFact, CorrectionFact, EventFact, ParkedFact, Series
from streams.core.instant import DAY_US, HOUR_US, SECOND_US, wire_text
from streams.core.level import CellKey, Reading
from streams.core.output import ORIGINAL_BYTES_MAX
from streams.core.remedy import remedy
from tests.support.events import (
    CATALOGUE,
    METERS,
    T0_US,
    Partition,
    Wire,
    canary,
    conflict,
    correction,
    log_of,
    meter,
    record,
    usage,
)

HOUR = Series("acme", "api_calls", 1, T0_US, T0_US + HOUR_US, 0)


def cell(name: str) -> CellKey:
    return CellKey("orders", T0_US, name)


def digest(wire: Wire) -> int:
    return int(wire["content"], 16)


def settled(*contents: Wire | bytes | None, **options: Any) -> Partition:
    return Partition(**options).run(log_of(contents))


def parked(partition: Partition) -> list[ParkedFact]:
    return [fact for _, fact in partition.facts if isinstance(fact, ParkedFact)]


def test_accepted_usage_grows_its_level_and_its_cell() -> None:
    one, two = usage("a", "2"), usage("b", "3")
    partition = settled(one, two)
    both = (digest(one) + digest(two)) % 2**128
    assert partition.readings == {
        HOUR: Reading(2, 5, both, 0, 1),
        cell("accepted"): Reading(2, 0, both, 0, 1),
    }
    assert not partition.facts
    assert partition.counts == {"accepted": 2}
    assert partition.received_max_us == T0_US + SECOND_US
    assert set(partition.marks) == {UUID(wire["event_id"]).bytes for wire in (one, two)}


def test_analysts_get_the_record_with_its_window() -> None:
    one = usage("a", "2")
    ((key, value),) = settled(one).accepted
    assert key == b"acme"
    assert msgspec.json.decode(value) == {
        "v": 1,
        "source_partition": 0,
        "source_offset": 0,
        "catalogue": 1,
        "window_start": wire_text(T0_US),
        "window_end": wire_text(T0_US + HOUR_US),
        "units": "2",
        "event": one,
    }


def test_a_reading_names_its_first_and_its_last_record() -> None:
    one, other, late = usage("a"), usage("b"), usage("c", received_us=T0_US + 40 * HOUR_US)
    partition = settled(one, other, one, late)
    reading = partition.readings[HOUR]
    assert (reading.records, reading.birth_offset, reading.last_offset) == (2, 0, 1)
    partition.run([record(usage("d"), 4)])
    reading = partition.readings[HOUR]
    assert (reading.records, reading.birth_offset, reading.last_offset) == (3, 0, 4)


def test_an_event_meter_makes_an_entry_and_no_level() -> None:
    one = usage("a", "2", metric="jobs")
    partition = settled(usage("x"), one, one)
    series = replace(HOUR, metric="jobs")
    fact = EventFact(UUID(one["event_id"]).bytes, digest(one), series, T0_US, 2, 1)
    assert partition.facts == [(1, fact)]
    assert series not in partition.readings


@pytest.mark.parametrize("sizes", [[3], [1]], ids=["in one chunk", "in chunks of one"])
def test_other_content_is_a_conflict_once(sizes: list[int]) -> None:
    one, other = usage("a", "2"), usage("a", "9")
    as_the_database_says = conflict(one, event_key="a", quantity="9")
    partition = Partition().run(log_of([one, other, as_the_database_says, other]), sizes)
    assert partition.counts == {"accepted": 1, "conflict": 1, "duplicate": 2}
    assert partition.readings[HOUR].total == 2
    assert partition.readings[cell("conflict")].digest == digest(other)
    (item,) = parked(partition)
    assert (item.kind, item.reason, item.units, item.series) == ("review", "conflict", 9, HOUR)
    rule = f"another content of this identity came first (content {one['content'][:16]})"
    assert msgspec.json.decode(item.detail) == {"rule": rule}
    ((_, value),) = partition.review
    assert msgspec.json.decode(value) == {
        "v": 1,
        "reason": "conflict",
        "rule": rule,
        "source_topic": "usage.events",
        "source_partition": 0,
        "source_offset": 1,
        "event": other,
    }


def test_each_other_content_is_its_own_conflict() -> None:
    partition = settled(usage("a", "1"), *(usage("a", quantity) for quantity in "232"))
    assert partition.counts == {"accepted": 1, "conflict": 2, "duplicate": 1}


def test_a_late_event_is_remembered_so_its_copies_are_duplicates() -> None:
    late = usage("a", "2", received_us=T0_US + DAY_US + 1)
    partition = settled(late, late)
    assert partition.counts == {"review": 1, "duplicate": 1}
    (item,) = parked(partition)
    assert item == ParkedFact(
        kind="review",
        reason="late",
        offset=0,
        event_id=UUID(late["event_id"]).bytes,
        content=digest(late),
        source="orders",
        tenant_id="acme",
        metric="api_calls",
        units=2,
        series=HOUR,
        occurred_at_us=T0_US,
        received_at_us=T0_US + DAY_US + 1,
        detail=item.detail,
        record=msgspec.json.encode(late),
    )


def test_a_correction_is_a_fact_of_its_own_once() -> None:
    one = usage("a", "2")
    fix = correction(one, "-1")
    partition = settled(one, fix, fix)
    fact = CorrectionFact(
        event_id=UUID(fix["event_id"]).bytes,
        content=digest(fix),
        series=HOUR,
        occurred_at_us=T0_US,
        delta_units=-1,
        correction_key="fix-1",
        target_event_id=UUID(one["event_id"]).bytes,
        reason=fix["reason"],
        authorized_by=fix["authorized_by"],
        offset=1,
    )
    assert partition.facts == [(1, fact)]
    assert partition.readings[HOUR].total == 2
    assert partition.counts == {"accepted": 1, "correction": 1, "duplicate": 1}
    assert [msgspec.json.decode(value)["units"] for _, value in partition.accepted] == ["2", "-1"]


def test_one_correction_key_with_two_deltas_is_a_conflict() -> None:
    one = usage("a", "2")
    partition = settled(correction(one, "-1"), correction(one, "-2"))
    assert partition.counts == {"correction": 1, "conflict": 1}
    (item,) = parked(partition)
    assert (item.reason, item.units) == ("conflict", -2)


def test_corrections_are_parked_or_dead_like_usage() -> None:
    one = usage("a", "2")
    partition = settled(correction(one, "-1", review=True), correction(one, "0.5", "fix-2"))
    assert partition.counts == {"review": 1, "dead": 1}
    assert [(item.kind, item.reason) for item in parked(partition)] == [
        ("review", "correction_limit"),
        ("dead", "malformed"),
    ]


def test_a_canary_arrives_and_is_no_amount() -> None:
    alive = canary(5)
    partition = settled(alive, alive)
    fact = CanaryFact("orders", 0, str(UUID(int=5)), T0_US, 0)
    assert partition.facts == [(0, fact)]
    assert set(partition.readings) == {cell("canary")}
    assert partition.counts == {"canary": 1, "duplicate": 1}
    assert not partition.accepted


def test_a_canary_of_another_partition_proves_nothing() -> None:
    partition = settled(canary(5, partition=3))
    assert partition.counts == {"dead": 1}
    assert "a canary of partition 3 proves nothing on 0" in parked(partition)[0].detail


def test_dead_usage_is_counted_and_its_evidence_kept() -> None:
    bad = usage("a", "-2")
    partition = settled(bad)
    (item,) = parked(partition)
    value = msgspec.json.encode(bad)
    hexed = sha256(value).hexdigest()
    assert (item.kind, item.reason, item.units, item.series) == ("dead", "malformed", None, None)
    assert item.event_id == UUID(bad["event_id"]).bytes
    assert msgspec.json.decode(item.detail) == {
        "rule": "is negative; take usage back by a correction",
        "path": "$.quantity",
        "sha256": hexed,
    }
    ((key, letter),) = partition.dead_letter
    assert key == b"acme"
    told = msgspec.json.decode(letter)
    assert b64decode(told.pop("original")) == value
    assert b64decode(told.pop("key")) == b"acme"
    assert told == {
        "v": 1,
        "kind": "malformed",
        "reason": "is negative; take usage back by a correction",
        "path": "$.quantity",
        "next": remedy("malformed", None, None),
        "source_topic": "usage.events",
        "source_partition": 0,
        "source_offset": 0,
        "original_bytes": len(value),
        "original_sha256": hexed,
    }
    assert partition.readings[cell("dead")].records == 1


def test_an_unreadable_record_is_a_dead_letter_and_the_next_goes_on() -> None:
    large = b"x" * (ORIGINAL_BYTES_MAX + 1)
    partition = settled(None, large, usage("a"))
    assert partition.counts == {"dead": 2, "accepted": 1}
    nothing, cut = (msgspec.json.decode(value) for _, value in partition.dead_letter)
    assert (nothing["original"], nothing["original_bytes"]) == (None, 0)
    assert cut["original_bytes"] == ORIGINAL_BYTES_MAX + 1
    assert len(b64decode(cut["original"])) == ORIGINAL_BYTES_MAX
    assert [item.event_id for item in parked(partition)] == [None, None]
    assert len(parked(partition)[1].record) == ORIGINAL_BYTES_MAX


def test_a_record_without_a_key_is_a_dead_letter_without_one() -> None:
    one = record(usage("a"))
    decided = Partition().decide([msgspec.structs.replace(one, key=None)])
    ((key, letter),) = decided.dead_letter
    assert key is None
    assert msgspec.json.decode(letter)["key"] is None


def test_a_record_with_which_workers_ended_is_parked_unread() -> None:
    place = Partition().place()
    suspected = type(place)(**{f: getattr(place, f) for f in place.__slots__} | {"suspect": 0})
    decided = decide(log_of([usage("a"), usage("b")]), suspected, CATALOGUE, fresh=True)
    assert decided.counts == {"dead": 1, "accepted": 1}
    ((_, letter),) = decided.dead_letter
    said = msgspec.json.decode(letter)
    assert (said["kind"], "parked unread" in said["reason"]) == ("unread", True)
    assert [f.reason for _, f in decided.facts if isinstance(f, ParkedFact)] == ["unread"]


def test_a_clock_far_ahead_is_pinned_and_does_not_become_the_horizon() -> None:
    ahead = record(usage("a"), 0, timestamp_ms=(T0_US - 2 * HOUR_US) // 1000)
    partition = Partition().run([ahead, record(usage("b", received_us=T0_US), 1)])
    assert partition.counts == {"review": 1, "accepted": 1}
    assert set(partition.pinned) == {UUID(usage("a")["event_id"]).bytes}
    assert partition.received_max_us == T0_US
    assert set(partition.pinned) < set(partition.marks)


def test_nothing_is_decided_behind_a_record_that_must_wait() -> None:
    unknown = usage("b", metric="new")
    log = log_of([usage("a"), unknown, usage("c")])
    waits = decide(log, Partition().place(), CATALOGUE, fresh=False)
    assert (waits.stop, waits.last, waits.counts) == (AwaitFresh(1), 0, {"accepted": 1})
    assert decide(log, Partition().place(), CATALOGUE, fresh=True).counts == {
        "accepted": 2,
        "dead": 1,
    }


def test_a_correction_waits_for_its_meter_as_usage_does() -> None:
    fix = correction(usage("b", metric="new"), "-1")
    waits = decide(log_of([fix]), Partition().place(), CATALOGUE, fresh=False)
    assert (waits.stop, waits.last) == (AwaitFresh(0), -1)


def test_a_newer_schema_holds_the_partition_from_there() -> None:
    decided = Partition().decide(log_of([usage("a"), usage("b") | {"v": 2}, usage("c")]))
    assert decided.last == 0
    assert decided.counts == {"accepted": 1}
    reason = "schema version 2 is unknown here: upgrade the workers"
    assert decided.stop == Hold(1, reason, by_record=True)


def test_so_does_content_by_a_newer_rule() -> None:
    decided = Partition().decide(log_of([usage("a") | {"content_version": 2}]))
    reason = "content version 2 is unknown here: upgrade the workers"
    assert decided.stop == Hold(0, reason, by_record=True)


@pytest.mark.parametrize(
    "changes",
    [{"quantity": "7000"}, {"event_id": str(UUID(int=7))}, {"tenant_id": "z", "kafka_key": "z"}],
    ids=["another quantity", "another identity", "another tenant"],
)
def test_a_changed_copy_counts_nothing_and_the_true_record_still_counts(
    changes: dict[str, str],
) -> None:
    true = usage("a", "7")
    for log in ((true | changes, true), (true, true | changes)):
        partition = settled(*log)
        assert partition.counts == {"dead": 1, "accepted": 1}
        assert partition.readings[HOUR].total == 7
        assert partition.readings.keys() == {HOUR, cell("accepted")}
        (item,) = parked(partition)
        assert item.event_id is None
        assert "nothing of it was counted" in item.detail


def test_a_record_away_from_home_holds_the_partition() -> None:
    place = Partition().place()
    away = dataclasses.replace(place, home=lambda key: int(key == b"acme"))
    log = log_of([usage("a", tenant_id="zeta"), usage("b"), usage("c", tenant_id="zeta")])
    decided = decide(log, away, CATALOGUE, fresh=True)
    assert decided.last == 0
    assert isinstance(decided.stop, Hold)
    assert "offset 1 belongs on another partition" in decided.stop.reason


def test_neither_is_anything_else_admitted_away_from_home() -> None:
    away = dataclasses.replace(Partition().place(), home=lambda _key: 7)
    one = usage("a")
    for other in (correction(one, "-1"), conflict(one, quantity="2"), canary(0)):
        decided = decide([record(other, 3)], away, CATALOGUE, fresh=True)
        assert isinstance(decided.stop, Hold)
        assert (decided.last, decided.counts) == (2, {})


def test_newer_rules_hold_the_partition_before_anything() -> None:
    book = Catalogue((*METERS, meter("future", rules=2)), CATALOGUE.read_at_us)
    decided = decide(log_of([usage("a")]), Partition().place(), book, fresh=True)
    assert (decided.last, decided.counts) == (-1, {})
    reason = "the catalogue asks for verdict rules 2, this code has 1: upgrade the workers"
    assert decided.stop == Hold(0, reason)


def test_a_kind_that_nobody_knows_is_a_bug_and_never_a_guess() -> None:
    unknown: Any = object()
    with pytest.raises(AssertionError):
        identity_of(unknown)
    place, one = Partition().place(), record(usage("a"))
    doing = _Admission(place, CATALOGUE, Decided(-1), fresh=True)
    with pytest.raises(AssertionError):
        doing.take(one, unknown)
    with pytest.raises(AssertionError):
        doing._not_accepted(one, unknown, unknown)
