"""What must hold of every log, by name: `run` tries one property against drawn examples.

Kept apart from the tests so that the same property can be tried against a planted bug.
"""

import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streams.core import fact_codec, level, quantity, window
from streams.core import mark as marking
from streams.core.envelope import decode
from streams.core.event import UsageEvent
from streams.core.fact import CorrectionFact, EventFact, ParkedFact, Series
from streams.core.instant import DAY_US, HOUR_US, MINUTE_US, from_us
from streams.core.level import CellKey, Key, Reading, decode_reading, encode_key, encode_reading
from tests.support.events import T0_US, Partition, Record, chunk_sizes, logs
from tests.unit.core.oracle import Oracle, Sum


def everything(partition: Partition) -> tuple[Any, ...]:
    """All that a partition has come to, comparable."""
    return (
        partition.marks, partition.pinned, partition.readings, partition.facts, partition.accepted,
        partition.review, partition.dead_letter, partition.counts, partition.received_max_us,
    )  # fmt: skip


def each_record_has_the_name_the_rules_give_it(log: list[Record], pick: int) -> None:
    """Also with the floor exactly at the `received_at` of one of the records."""
    received = [event.received_at_us for one in log if (event := _event(one))]
    floors_us = [-1, T0_US, *received]
    floor_us = floors_us[pick % len(floors_us)]
    partition, names = Partition(floor_us=floor_us), []
    for one in log:
        before = Counter(partition.counts)
        partition.run([one])
        (name,) = (partition.counts - before).elements()
        names.append(name)
    assert names == Oracle(floor=from_us(floor_us)).read(log).names


def levels_are_the_sums_of_what_was_accepted(log: list[Record], sizes: list[int]) -> None:
    readings, expected = Partition().run(log, sizes).readings, Oracle().read(log).levels
    found = {
        (k.tenant_id, k.metric, k.catalogue_version, from_us(k.window_start_us), k.shard): r
        for k, r in readings.items()
        if isinstance(k, Series)
    }
    assert found.keys() == expected.keys()
    for key, reading in found.items():
        level_sum = expected[key]
        assert reading == _reading(level_sum)


def cells_hold_each_identity_once(log: list[Record], sizes: list[int]) -> None:
    partition, expected = Partition().run(log, sizes), Oracle().read(log).cells
    found = {
        (k.source, from_us(k.minute_us), k.verdict_class): r
        for k, r in partition.readings.items()
        if isinstance(k, CellKey)
    }
    assert found.keys() == expected.keys()
    for key, reading in found.items():
        cell = expected[key]
        assert reading == _reading(cell)
    assert sum(partition.counts.values()) == len(log)


def entries_and_corrections_stand_once(log: list[Record], sizes: list[int]) -> None:
    facts, oracle = [fact for _, fact in Partition().run(log, sizes).facts], Oracle().read(log)
    entries = [(str(UUID(bytes=f.event_id)), f.units) for f in facts if isinstance(f, EventFact)]
    assert sorted(entries) == sorted(oracle.entries.items())
    corrections = [
        (str(UUID(bytes=f.event_id)), f.delta_units) for f in facts if isinstance(f, CorrectionFact)
    ]
    assert sorted(corrections) == sorted(oracle.corrections.items())


def every_prefix_in_every_chunking_comes_to_the_same(
    log: list[Record], sizes: list[int], others: list[int], cut: int
) -> None:
    prefix = log[: cut % len(log) + 1]
    partition = Partition().run(prefix, sizes)
    assert everything(partition) == everything(Partition().run(prefix, others))
    again = partition.decide(prefix)
    assert not again.seen
    assert not again.readings
    assert not any(not isinstance(fact, ParkedFact) for _, fact in again.facts)


def copies_change_nothing_but_counts(log: list[Record], sizes: list[int], picks: list[int]) -> None:
    readable = [one for one in log if b'"event_id"' in (one.value or b"")]
    if not readable:
        return
    copies = [readable[pick % len(readable)] for pick in picks]
    longer = list(log)
    for number, copy in enumerate(copies):
        # A copy stands anywhere behind its original.
        longer.insert(longer.index(copy) + 1 + number % 3, copy)
    longer = [Record(n, one.timestamp_ms, one.key, one.value) for n, one in enumerate(longer)]
    once, more = Partition().run(log, sizes), Partition().run(longer, sizes)
    assert _without_offsets(more.readings) == _without_offsets(once.readings)
    assert more.counts - once.counts == Counter({"duplicate": len(copies)})
    assert [type(fact) for _, fact in more.facts] == [type(fact) for _, fact in once.facts]


def order_across_keys_changes_no_reading(log: list[Record], seed: int) -> None:
    by_key: dict[bytes | None, list[Record]] = {}
    for one in log:
        by_key.setdefault(one.key, []).append(one)
    turns = [key for key, records in by_key.items() for _ in records]
    random.Random(seed).shuffle(turns)
    mixed = [by_key[key].pop(0) for key in turns]
    mixed = [Record(n, one.timestamp_ms, one.key, one.value) for n, one in enumerate(mixed)]
    left, right = Partition().run(log, [3]), Partition().run(mixed, [4])
    assert _without_offsets(left.readings) == _without_offsets(right.readings)
    assert left.counts == right.counts


def a_decision_leaves_what_it_was_given(log: list[Record], sizes: list[int]) -> None:
    partition = Partition().run(log[: len(log) // 2], sizes)
    before = deepcopy(everything(partition))
    first = partition.decide(log)
    assert everything(partition) == before
    assert partition.decide(log) == first


def a_clock_ahead_moves_no_horizon(log: list[Record], sizes: list[int]) -> None:
    partition = Partition().run(log, sizes)
    logged_us = max(one.timestamp_ms for one in log) * 1000
    assert partition.received_max_us <= logged_us + HOUR_US
    assert partition.pinned.items() <= partition.marks.items()
    for one in log:
        single = Partition().run([one])
        for cell in single.readings:
            # The cell of the minute may begin up to a minute before the instant itself.
            if isinstance(cell, CellKey):
                ahead_us = cell.minute_us - one.timestamp_ms * 1000
                assert single.pinned == single.marks or ahead_us <= HOUR_US


def outputs_are_json_that_carries_the_original(log: list[Record], sizes: list[int]) -> None:
    partition = Partition().run(log, sizes)
    originals = {(one.key, one.value) for one in log}
    for key, value in partition.accepted + partition.review:
        head, _, event = value.partition(b'"event":')
        assert (key, event[:-1]) in originals
        assert head.startswith(b'{"v":1,')
    for kind in ("accepted", "review"):
        names = Counter(Oracle().read(log).names)
        also = names["correction"] if kind == "accepted" else names["conflict"]
        assert len(getattr(partition, kind)) == names[kind] + also


def stored_state_comes_back(log: list[Record], sizes: list[int]) -> None:
    partition = Partition().run(log, sizes)
    for key, reading in partition.readings.items():
        assert level.decode_key(encode_key(key)) == key
        assert decode_reading(encode_reading(reading)) == reading
    for _, fact in partition.facts:
        assert fact_codec.decode(fact_codec.encode(fact)) == fact
    assert {len(mark) for mark in partition.marks.values()} <= {marking.MARK_BYTES}


def packed_parts_merge_to_the_state(log: list[Record], sizes: list[int], seed: int) -> None:
    """Any interleaving of the parts that chunks left, some twice, gives the last state."""
    partition, parts = Partition(), []
    for start in range(0, len(log), sizes[0]):
        decided = partition.decide(log[start : start + sizes[0]])
        partition.settle(decided)
        parts.append(decided)
    dice = random.Random(seed)
    mixed = parts + dice.choices(parts, k=len(parts))
    dice.shuffle(mixed)
    marks: dict[bytes, bytes] = {}
    readings: dict[Key, bytes] = {}
    for part in mixed:
        for identity, mark in part.seen:
            marks[identity] = marking.earlier(marks.get(identity, mark), mark)
        for key, reading in part.readings.items():
            raw = encode_reading(reading)
            readings[key] = level.newer(readings.get(key, raw), raw)
    assert marks == partition.marks
    assert {key: decode_reading(raw) for key, raw in readings.items()} == partition.readings


def marks_of_two_owners_merge_to_the_first_copy(offsets: list[int]) -> None:
    marks = [marking.encode_mark(bytes(16), "accepted", offset) for offset in offsets]
    kept = marks[0]
    for mark in marks[1:]:
        kept = marking.earlier(kept, mark)
    assert kept == marking.encode_mark(bytes(16), "accepted", min(offsets))


def windows_tile_the_line(instant_us: int, length_us: int) -> None:
    start_us, end_us = window.assign(instant_us, length_us)
    assert start_us <= instant_us < end_us
    assert end_us - start_us == length_us
    assert start_us % length_us == 0
    assert window.assign(end_us, length_us).start_us == end_us
    assert window.assign(end_us - 1, length_us).start_us == start_us
    with_dates = timedelta(microseconds=instant_us) // timedelta(microseconds=length_us)
    assert start_us == with_dates * length_us


def quantities_are_exact(units: int, scale: int) -> None:
    text = quantity.from_units(units, scale)
    assert quantity.to_units(text, scale) == units
    assert quantity.to_units(text, 12) == units * 10 ** (12 - scale)
    assert Decimal(text).scaleb(scale) == units


def nothing_in_a_topic_raises(key: bytes | None, value: bytes | None) -> None:
    partition = Partition()
    decided = partition.decide([Record(7, T0_US // 1000, key, value)])
    if decided.stop is None:
        assert sum(decided.counts.values()) == 1
        assert decided.last == 7
    else:
        assert not decided.counts
        assert decided.last == 6
    for _, fact in decided.facts:
        assert fact_codec.decode(fact_codec.encode(fact)) == fact
    for one_key, reading in decided.readings.items():
        assert level.decode_key(encode_key(one_key)) == one_key
        assert decode_reading(encode_reading(reading)) == reading


def _event(one: Record) -> UsageEvent | None:
    decoded = decode(one.key, one.value)
    return decoded if isinstance(decoded, UsageEvent) else None


def _reading(expected: Sum) -> Reading:
    return Reading(expected.count, expected.total, expected.digest, expected.birth, expected.last)


def _without_offsets(readings: dict[Key, Reading]) -> dict[Key, tuple[int, int, int]]:
    return {key: (r.records, r.total, r.digest) for key, r in readings.items()}


@st.composite
def _broken_values(draw: st.DrawFn) -> bytes:
    """A drawn record with a few bytes exchanged, so that the fuzz gets past the first brace."""
    value = bytearray(draw(logs(max_size=1))[0].value or b"")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(value) - 1, 0)))
        piece = draw(
            st.sampled_from((b'"', b"{", b"]", b"\x00", b"\xff", b"9" * 30, b"-", b"1e400", b"\\"))
        )
        value[at : at + draw(st.integers(0, 3))] = piece
    return bytes(value)


_seeds: Final = st.integers(0, 2**32)
_keys: Final = st.one_of(st.none(), st.binary(max_size=8), st.just(b"acme"), st.just(b"zeta"))
_lengths: Final = st.sampled_from((MINUTE_US, HOUR_US, DAY_US))
_instants: Final = st.one_of(
    st.integers(-(2**55), 2**55),
    st.builds(lambda n, d: n * DAY_US + d, st.integers(-700_000, 700_000), st.integers(-1, 1)),
)
PROPERTIES: Final[dict[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {
    each_record_has_the_name_the_rules_give_it: (logs(), st.integers(0, 60)),
    levels_are_the_sums_of_what_was_accepted: (logs(), chunk_sizes),
    cells_hold_each_identity_once: (logs(), chunk_sizes),
    entries_and_corrections_stand_once: (logs(), chunk_sizes),
    every_prefix_in_every_chunking_comes_to_the_same: (
        logs(), chunk_sizes, chunk_sizes, st.integers(0, 60),
    ),
    copies_change_nothing_but_counts: (
        logs(), chunk_sizes, st.lists(st.integers(0, 60), min_size=1, max_size=6),
    ),
    order_across_keys_changes_no_reading: (logs(), _seeds),
    a_decision_leaves_what_it_was_given: (logs(), chunk_sizes),
    a_clock_ahead_moves_no_horizon: (logs(), chunk_sizes),
    outputs_are_json_that_carries_the_original: (logs(), chunk_sizes),
    stored_state_comes_back: (logs(), chunk_sizes),
    packed_parts_merge_to_the_state: (logs(), chunk_sizes, _seeds),
    marks_of_two_owners_merge_to_the_first_copy: (
        st.lists(st.integers(0, 2**63), min_size=2, max_size=5),
    ),
    windows_tile_the_line: (_instants, _lengths),
    quantities_are_exact: (st.integers(-(10**15) + 1, 10**15 - 1), st.integers(0, 12)),
    nothing_in_a_topic_raises: (_keys, st.one_of(st.binary(max_size=60), _broken_values())),
}  # fmt: skip


def run(claim: Callable[..., None], *, max_examples: int = 60, planted: bool = False) -> None:
    """Tries a property. A planted bug must fall at once and every time, so it is not shrunk."""
    phases = [Phase.generate] if planted else list(Phase)
    # A report of several distinct failures would come as a group instead of an AssertionError.
    chosen = settings(
        max_examples=max_examples,
        deadline=None,
        derandomize=planted,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
    )
    chosen(given(*PROPERTIES[claim])(claim))()
