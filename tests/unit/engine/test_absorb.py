"""Recovery by union and maxima, against a plain fold of the source log.

Workers settle chunks of one source log and write packed records; some fall asleep and go on where
they stood, some recover from what is packed so far. Whatever interleaving comes of it, absorbing
the packed log gives the state of the fold.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as configured
from hypothesis import strategies as st
from msgspec.structs import replace

from streams.engine import generations as gen
from streams.engine.absorb import MergeRules, absorb
from streams.engine.packed import PackedRecord
from streams.engine.settlement import Pair, Settlement, unsent_key, unsent_offset
from streams.engine.store import UNSENT, Store
from streams.engine.table import PartitionTable
from tests.unit.engine.build import complete, id_of, number, packed, settle, settlement
from tests.unit.engine.conftest import LOG, WIDTH_MS, Tables


def greater_count(held: bytes, read: bytes) -> bytes:
    return held if held >= read else read  # noqa: FURB136  # says which of two equals is kept


RULES = MergeRules(min, greater_count, from_version_1=lambda value: value)


@dataclass
class Fold:
    """The state after a prefix of the source log, computed the slow and obvious way."""

    applied: int = -1
    seen: dict[bytes, bytes] = field(default_factory=dict)
    at: dict[bytes, int] = field(default_factory=dict)
    levels: dict[bytes, int] = field(default_factory=dict)
    facts: list[bytes] = field(default_factory=list)
    time_ms: int = 0

    def floor_us(self, current: int) -> int:
        return max(
            (t * 1_000 for t in self.at.values() if gen.is_forgotten(t // WIDTH_MS, current)),
            default=-1,
        )

    def chunk(self, source: list[tuple[int, int]], last: int) -> Settlement:
        first = self.applied + 1
        fresh: list[Pair] = []
        touched: dict[bytes, int] = {}
        facts: list[Pair] = []
        for offset in range(first, last + 1):
            event, at_ms = source[offset]
            self.time_ms = max(self.time_ms, at_ms)
            id_ = id_of(f"e{event}")
            if id_ in self.seen:
                continue
            self.seen[id_] = number(offset)
            self.at[id_] = self.time_ms
            fresh.append((id_, number(offset)))
            level = b"level-%d" % (event % 3)
            touched[level] = self.levels[level] = self.levels.get(level, 0) + 1
            facts.append((unsent_key(offset, 0), id_))
            self.facts.append(unsent_key(offset, 0))
        self.applied = last
        return settlement(
            first,
            last,
            at_ms=self.time_ms,
            seen=fresh,
            levels=[(key, number(count)) for key, count in touched.items()],
            unsent=facts,
            received_max_us=max((self.at[id_] * 1_000 for id_, _ in fresh), default=-1),
        )


def same_generation(source: list[tuple[int, int]], first: int, last: int, time_ms: int) -> int:
    """Greatest offset up to `last` that a chunk from `first` may end with."""
    number_ = max(time_ms, source[first][1]) // WIDTH_MS
    for offset in range(first, last + 1):
        time_ms = max(time_ms, source[offset][1])
        if time_ms // WIDTH_MS != number_:
            return offset - 1
    return last


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[PackedRecord]]:
    """A source log, and the packed log that several workers made of it."""
    later = st.sampled_from([0, 30, 300, 900, 2_500])
    steps = draw(st.lists(st.tuples(st.integers(0, 15), later), min_size=1, max_size=40))
    source: list[tuple[int, int]] = []
    now_ms = 0
    for event, later_ms in steps:
        now_ms += later_ms
        # An id is only remembered for the horizon; the source never repeats one after that.
        source.append((event if now_ms < 2 * WIDTH_MS else 1_000 + len(source), now_ms))
    workers = [Fold(), Fold(), Fold()]
    log: list[PackedRecord] = []
    actions = draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 10)), min_size=1, max_size=25
        )
    )
    for who, recovers, size in actions:
        if recovers:
            fresh = Fold()
            settled = max((record.last for record in log), default=-1)
            while fresh.applied < settled:
                first = fresh.applied + 1
                fresh.chunk(source, same_generation(source, first, settled, fresh.time_ms))
            workers[who] = fresh
        worker = workers[who]
        first = worker.applied + 1
        if first >= len(source):
            continue
        last = min(first + size - 1, len(source) - 1)
        last = same_generation(source, first, last, worker.time_ms)
        batch = worker.chunk(source, last)
        floor_us = worker.floor_us(worker.time_ms // WIDTH_MS)
        log.append(packed(LOG, batch, floor_us))
    return source, log


def expect(table: PartitionTable, source: list[tuple[int, int]], acknowledged: int) -> None:
    fold = Fold()
    while fold.applied < table.applied:
        first = fold.applied + 1
        fold.chunk(source, same_generation(source, first, table.applied, fold.time_ms))
    current = fold.time_ms // WIDTH_MS
    kept = {
        id_: value
        for id_, value in fold.seen.items()
        if not gen.is_forgotten(fold.at[id_] // WIDTH_MS, current)
    }
    ids = list(fold.seen)
    assert dict(zip(ids, table.seen(ids), strict=True)) == {id_: kept.get(id_) for id_ in ids}
    assert dict(table.levels()) == {key: number(count) for key, count in fold.levels.items()}
    unsent = [key for key, _ in table.unsent(1_000, table.applied)]
    assert unsent == [key for key in fold.facts if unsent_offset(key) > acknowledged]
    assert table.floor_us == fold.floor_us(current)
    assert table.log_time_ms == fold.time_ms


WITH_FILES = configured(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@WITH_FILES
@given(histories(), st.integers(1, 8), st.integers(-1, 10), st.randoms(use_true_random=False))
def test_the_packed_log_in_any_order_gives_the_fold(
    tables: Tables,
    history: tuple[list[tuple[int, int]], list[PackedRecord]],
    group: int,
    acknowledged: int,
    shuffle: object,
) -> None:
    source, log = history
    if not log:
        return
    newest = max(record.last for record in log)
    acknowledged = min(acknowledged, newest)
    log = list(log)
    shuffle.shuffle(log)  # type: ignore[attr-defined]  # a Random
    table = fresh_table(tables)
    from_meta = table.meta
    table.replace(
        lambda _: None,
        type(from_meta)(
            **{name: getattr(from_meta, name) for name in from_meta.__struct_fields__}
            | {"acknowledged": acknowledged}
        ),
    )
    for start in range(0, len(log), group):
        absorb(table, log[start : start + group], RULES, start)
    assert table.applied == newest
    expect(table, source, acknowledged)
    table.close()


@WITH_FILES
@given(histories(), st.integers(0, 10))
def test_a_table_kept_here_reads_on_and_is_the_same(
    tables: Tables,
    history: tuple[list[tuple[int, int]], list[PackedRecord]],
    own: int,
) -> None:
    source, log = history
    table = fresh_table(tables)
    complete(table)
    fold = Fold()
    for record in log[:own]:
        if record.first == fold.applied + 1:
            settle(table, fold.chunk(source, record.last))
    absorb(table, log, RULES, len(log))
    expect(table, source, -1)
    absorb(table, log, RULES, len(log))
    expect(table, source, -1)
    levels = dict(table.levels()) | {b"another": number(1)}
    next_ = table.applied + 1
    settle(
        table,
        settlement(next_, next_, at_ms=table.log_time_ms, seen=[], levels=list(levels.items())),
    )
    path = table.path.name
    table.close()
    assert dict(tables.open(path).levels()) == levels


def fresh_table(tables: Tables) -> PartitionTable:
    fresh_table.count += 1  # type: ignore[attr-defined]  # one directory per example
    return tables.open(f"t{fresh_table.count}")  # type: ignore[attr-defined]  # as above


fresh_table.count = 0  # type: ignore[attr-defined]  # as above


def test_the_earlier_offset_wins_wherever_the_later_one_lies(tables: Tables) -> None:
    table = fresh_table(tables)
    late = settlement(5, 5, at_ms=5 * WIDTH_MS, seen=[(id_of("x"), number(5))], unsent=[])
    early = settlement(0, 4, at_ms=4 * WIDTH_MS, seen=[(id_of("x"), number(0))], unsent=[])
    absorb(table, [packed(LOG, late)], RULES, 1)
    absorb(table, [packed(LOG, early)], RULES, 2)
    assert table.seen([id_of("x")]) == [number(0)]


def test_an_id_that_two_owners_put_into_two_generations_stays_with_the_earlier_offset(
    tables: Tables,
) -> None:
    """Behind the table's end nothing is looked up there, but still among what is read."""
    table = fresh_table(tables)
    absorb(table, [packed(LOG, settlement(0, 3, at_ms=WIDTH_MS))], RULES, 1)
    late = settlement(5, 6, at_ms=3 * WIDTH_MS, seen=[(id_of("x"), number(6))])
    early = settlement(4, 5, at_ms=2 * WIDTH_MS, seen=[(id_of("x"), number(5))])
    absorb(table, [packed(LOG, late), packed(LOG, early)], RULES, 3)
    assert table.seen([id_of("x")]) == [number(5)]
    assert sum(generation.ids for generation in table.meta.generations) == 5


@pytest.mark.parametrize("again", [[(0, 3), (4, 5)], [(3, 5)]])
def test_what_a_table_holds_is_looked_up_beside_what_lies_behind_its_end(
    tables: Tables, again: list[tuple[int, int]]
) -> None:
    table = fresh_table(tables)
    absorb(table, [packed(LOG, settlement(0, 3))], RULES, 1)
    absorb(table, [packed(LOG, settlement(first, last)) for first, last in again], RULES, 3)
    assert sum(generation.ids for generation in table.meta.generations) == 6


def test_a_whole_table_takes_ids_in_one_step_with_the_rest(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the two would leave ids that no applied offset speaks of."""
    table = fresh_table(tables)
    complete(table)
    monkeypatch.setattr(Store, "load", lambda *_: pytest.fail("loaded in bulk"))
    absorb(table, [packed(LOG, settlement(0, 3))], RULES, 1)
    assert table.seen([id_of("e0")]) == [number(0)]


def test_what_an_earlier_log_left_is_looked_up_although_it_lies_at_no_offset(
    tables: Tables,
) -> None:
    table = fresh_table(tables)
    mine = packed(LOG, settlement(0, 0, seen=[(id_of("x"), number(7))]))
    before = settlement(0, 0, seen=[(id_of("x"), number(3))], levels=[], unsent=[])
    absorb(table, [replace(packed(LOG, before), first=-1, last=-1, anchor=b"")], RULES, 1)
    absorb(table, [mine], RULES, 2)
    assert table.seen([id_of("x")]) == [number(3)]


def test_ids_of_forgotten_generations_only_raise_the_floor(tables: Tables) -> None:
    table = fresh_table(tables)
    old = settlement(0, 0, at_ms=0, received_max_us=77)
    new = settlement(1, 1, at_ms=gen.KEPT * WIDTH_MS)
    absorb(table, [packed(LOG, new), packed(LOG, old)], RULES, 2)
    assert table.seen([id_of("e0"), id_of("e1")]) == [None, number(1)]
    assert table.floor_us == 77


def test_the_floor_comes_back_although_what_raised_it_is_no_longer_packed(tables: Tables) -> None:
    table = fresh_table(tables)
    absorb(table, [packed(LOG, settlement(9, 9), floor_us=55)], RULES, 1)
    assert table.floor_us == 55


def test_facts_that_come_back_below_those_already_looked_at_are_found(tables: Tables) -> None:
    table = fresh_table(tables)
    complete(table)
    settle(table, settlement(0, 9))
    table.acknowledge(-1, [unsent_key(0, 0)])
    assert len(table.unsent(100, 9)) == 9
    absorb(table, [packed(LOG, settlement(0, 9))], RULES, 1)
    assert len(table.unsent(100, 9)) == 10


def test_facts_the_ledger_has_do_not_come_back(tables: Tables) -> None:
    table = fresh_table(tables)
    complete(table)
    settle(table, settlement(0, 9))
    table.acknowledge(4, [unsent_key(n, 0) for n in range(5)])
    absorb(table, [packed(LOG, settlement(0, 9))], RULES, 1)
    assert sorted(table.held(UNSENT, [unsent_key(n, 0) for n in range(10)])) == [
        unsent_key(n, 0) for n in range(5, 10)
    ]
    assert table.meta.unsent == 5


@pytest.mark.parametrize("records", [[], [packed(LOG, settlement(0, 3))]])
def test_the_packed_position_follows_what_was_read(
    tables: Tables, records: list[PackedRecord]
) -> None:
    table = fresh_table(tables)
    absorb(table, records, RULES, 7)
    assert table.meta.packed_next == (7 if records else 0)


def test_what_the_ledger_confirmed_to_others_is_remembered(tables: Tables) -> None:
    table = tables.open()
    told = [packed(LOG, settlement(0, 3), confirmed=-1), packed(LOG, settlement(4, 6), confirmed=3)]
    absorb(table, told, RULES, 2)
    assert (table.confirmed, table.acknowledged) == (3, -1)
    absorb(table, [packed(LOG, settlement(7, 9), confirmed=1)], RULES, 3)
    assert table.confirmed == 3, "a worker that knew less"
    table.acknowledge(8, [])
    assert table.confirmed == 8
