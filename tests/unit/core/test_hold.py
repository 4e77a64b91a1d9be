"""A record that is skipped: exactly the one that was decided on, and the same at every reading."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.admission import decide
from streams.core.decided import Decided, Hold, Place
from streams.core.orders import HeldRecord, Orders, Skip, Skips, fingerprint
from tests.support.events import (
    CATALOGUE,
    Record,
    Wire,
    canary,
    conflict,
    correction,
    record,
    usage,
)

NEWER = usage("newer", v=2)


def skip_for(target: Record, **changes: object) -> Skip:
    skip = Skip(target.offset, fingerprint(target.key, target.value), "a test", "ann", 12)
    return replace(skip, **changes)  # type: ignore[arg-type]  # by name


def judged(records: list[Record], skips: Skips, *, home: int = 0) -> Decided:
    place = Place(
        "usage.events", 0, lambda ids: [None] * len(ids), lambda _key: home, {}, -1, skips=skips
    )
    return decide(records, place, CATALOGUE, fresh=True)


def chunk(*values: Wire) -> list[Record]:
    return [record(value, offset) for offset, value in enumerate(values)]


def test_a_skipped_record_is_dead_with_its_bytes_and_the_rest_goes_on() -> None:
    records = chunk(usage("a"), NEWER, usage("b"))
    held = judged(records, {})
    assert isinstance(held.stop, Hold)
    assert (held.stop.offset, held.stop.by_record, held.last) == (1, True, 0)
    skip = skip_for(records[1])
    decided = judged(records, {1: skip})
    assert (decided.stop, decided.last) == (None, 2)
    assert decided.counts == {"accepted": 2, "dead": 1}
    [(offset, fact)] = decided.facts
    assert offset == 1
    assert fact.record == records[1].value  # type: ignore[union-attr]  # a parked fact
    detail = msgspec.json.decode(fact.detail)  # type: ignore[union-attr]
    assert detail["rule"] == "skipped by ann (receipt 12): a test"
    assert detail["skip"] == {
        "fingerprint": skip.fingerprint, "reason": "a test", "actor": "ann", "receipt": 12,
        "record_bytes": len(records[1].value or b""),
    }  # fmt: skip
    assert len(decided.dead_letter) == 1


def test_newer_code_that_can_read_it_skips_it_all_the_same() -> None:
    """Decided once, a replay by whatever release decides the same."""
    records = chunk(usage("a"), usage("now readable"), usage("b"))
    decided = judged(records, {1: skip_for(records[1])})
    assert decided.counts == {"accepted": 2, "dead": 1}
    assert len(decided.accepted) == 2


@pytest.mark.parametrize("value", [usage("x"), correction(usage("x"), "-1"), canary()])
def test_an_identity_that_can_be_read_is_judged_by_the_skip(value: Wire) -> None:
    [astray] = chunk(value)
    assert isinstance(judged([astray], {}, home=7).stop, Hold)
    decided = judged([astray], {0: skip_for(astray)}, home=7)
    assert decided.counts == {"dead": 1}
    assert len(decided.seen) + len(decided.pinned) == 1


def test_an_identity_that_was_judged_before_is_not_judged_twice() -> None:
    records = chunk(usage("a"), usage("a"))
    decided = judged(records, {1: skip_for(records[1])})
    assert decided.counts == {"accepted": 1, "dead": 1}
    assert len(decided.seen) == 1


def test_a_conflict_that_is_skipped_leaves_the_first_identity_alone() -> None:
    [one] = chunk(conflict(usage("a")))
    decided = judged([one], {0: skip_for(one)})
    assert decided.counts == {"dead": 1}
    assert decided.seen == []


@given(
    at=st.integers(0, 3),
    aimed=st.integers(0, 9),
    digest=st.text("0123456789abcdef", min_size=64, max_size=64),
)
def test_a_skip_never_takes_another_record(at: int, aimed: int, digest: str) -> None:
    values = [usage("a"), usage("b"), usage("c")]
    values.insert(at, NEWER)
    records = chunk(*values)
    skips = {aimed: skip_for(records[at], offset=aimed)} if aimed != at else {}
    skips |= {at: skip_for(records[at], fingerprint=digest)}
    assert judged(records, skips) == judged(records, {})


def test_no_two_records_share_a_fingerprint() -> None:
    pairs = [(None, None), (b"", None), (None, b""), (b"", b""), (b"a", b"b"), (b"ab", b"")]
    assert len({fingerprint(*pair) for pair in pairs}) == len(pairs)


def test_orders_know_the_record_that_was_decided_on() -> None:
    held = HeldRecord("log", 3, 7, "f" * 64, "newer", 10)
    orders = Orders({("log", 3): {7: Skip(7, "f" * 64, "why", "ann", 1)}})
    assert orders.skips_record(held)
    assert not orders.skips_record(replace(held, offset=8))
    assert not orders.skips_record(replace(held, partition=4))
    assert not orders.skips_record(replace(held, log_id="other"))
    assert not orders.skips_record(replace(held, fingerprint="e" * 64))
