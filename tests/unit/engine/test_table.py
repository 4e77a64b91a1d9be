"""The table on a real RocksDB."""

import shutil
from pathlib import Path

import msgspec
import pytest
from rocksdict import Cache

from streams.engine import generations as gen
from streams.engine.data_dir import quarantine
from streams.engine.errors import (
    SettlementRefused,
    StateDamaged,
    StateUnavailable,
    TableClosed,
)
from streams.engine.settlement import unsent_key
from streams.engine.store import LEVELS, Store, seen_family
from streams.engine.table import PartitionTable
from tests.unit.engine.build import complete, id_of, number, settle, settlement
from tests.unit.engine.conftest import WIDTH_MS, Tables


def test_a_settlement_is_there_whole_after_the_table_was_opened_again(tables: Tables) -> None:
    table = tables.open()
    complete(table)
    settle(table, settlement(0, 9, packed_offset=0))
    before = table.meta
    table.close()
    again = tables.open()
    assert again.meta == before
    assert (again.applied, again.meta.packed_next) == (9, 1)
    assert again.seen([id_of("e0"), id_of("e9"), id_of("e10")]) == [number(0), number(9), None]
    assert list(again.levels()) == [(b"level", number(9))]
    assert [key for key, _ in again.unsent(100, 9)] == [unsent_key(n, 0) for n in range(10)]


def test_what_was_loaded_is_there_after_the_table_was_opened_again(tables: Tables) -> None:
    table = tables.open()
    family = seen_family(gen.slot_of(0))
    pairs = [(id_of(f"e{n}"), number(n)) for n in range(100)]
    table.load(family, pairs[:60])
    table.load(family, [])
    table.load(family, [*pairs[60:], (pairs[0][0], number(7))])
    table.flush()
    complete(table)
    table.close()
    again = tables.open()
    found = again.held(family, [key for key, _ in pairs])
    assert found == {**dict(pairs), pairs[0][0]: number(7)}


def test_a_settlement_that_cannot_be_written_leaves_nothing(
    table: PartitionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(table, settlement(0, 4))
    before = table.meta

    def full(*_: object, **__: object) -> None:
        raise StateUnavailable("no space left on device")

    monkeypatch.setattr(table._store, "write", full)
    with pytest.raises(StateUnavailable):
        settle(table, settlement(5, 9))
    assert table.meta == before
    assert table.seen([id_of("e5")]) == [None]
    assert len(table.unsent(100, 9)) == 5


def test_the_packed_position_moves_only_by_the_record_that_lies_there(
    table: PartitionTable,
) -> None:
    settle(table, settlement(0, 4, packed_offset=0))
    settle(table, settlement(5, 9, packed_offset=4))
    assert table.meta.packed_next == 1


@pytest.mark.parametrize(("first", "last"), [(0, 4), (4, 9), (6, 9)])
def test_a_settlement_that_does_not_continue_is_refused(
    table: PartitionTable, first: int, last: int
) -> None:
    settle(table, settlement(0, 4))
    with pytest.raises(SettlementRefused, match="does not continue"):
        settle(table, settlement(first, last))


def test_a_settlement_judged_in_another_generation_is_refused(table: PartitionTable) -> None:
    table.enter(5_000)
    with pytest.raises(SettlementRefused, match="generation 9, the chunk was judged in 5"):
        table.settle(settlement(0, 4, at_ms=9_500))


def test_acknowledging_removes_facts_and_keeps_levels(table: PartitionTable) -> None:
    settle(table, settlement(0, 9))
    levels = list(table.levels())
    assert levels
    table.acknowledge(4, [unsent_key(n, 0) for n in range(5)])
    assert table.acknowledged == 4
    assert list(table.levels()) == levels
    assert [key for key, _ in table.unsent(100, 9)] == [unsent_key(n, 0) for n in range(5, 10)]
    # The same answer again, and one from an older batch, change nothing.
    table.acknowledge(3, [unsent_key(0, 0), unsent_key(0, 0)])
    assert (table.acknowledged, table.meta.unsent) == (4, 5)


def test_the_ledger_cannot_have_acknowledged_what_was_never_settled(table: PartitionTable) -> None:
    settle(table, settlement(0, 9))
    table.acknowledge(1_000, [])
    assert table.acknowledged == 9


def test_unsent_facts_are_bounded_by_number_and_by_offset(table: PartitionTable) -> None:
    settle(table, settlement(0, 9))
    assert [key for key, _ in table.unsent(3, 9)] == [unsent_key(n, 0) for n in range(3)]
    assert [key for key, _ in table.unsent(100, 1)] == [unsent_key(n, 0) for n in range(2)]
    table.acknowledge(9, [unsent_key(n, 0) for n in range(10)])
    assert table.unsent(100, 9) == []
    settle(table, settlement(10, 10))
    assert [key for key, _ in table.unsent(100, 10)] == [unsent_key(10, 0)]


def test_levels_closed_for_good_are_gone_and_counted_out(tables: Tables) -> None:
    table = tables.open()
    complete(table)
    settle(table, settlement(0, 0, levels=[(b"a", b"1"), (b"b", b"1")]))
    table.drop_levels([b"a", b"never"])
    assert list(table.levels()) == [(b"b", b"1")]
    table.close()
    assert tables.open().meta.levels == 1


def test_an_id_found_nowhere_is_none_also_among_repeated_ids(table: PartitionTable) -> None:
    settle(table, settlement(0, 1))
    asked = [id_of("x"), id_of("e1"), id_of("x"), id_of("e1")]
    assert table.seen(asked) == [None, number(1), None, number(1)]
    assert table.seen([]) == []


def test_ids_are_remembered_for_four_generations_and_then_below_the_floor(
    table: PartitionTable,
) -> None:
    for n in range(6):
        settle(table, settlement(n, n, at_ms=n * WIDTH_MS))
    assert table.seen([id_of(f"e{n}") for n in range(6)]) == [
        None,
        None,
        *(number(n) for n in range(2, 6)),
    ]
    assert table.floor_us == 1 * WIDTH_MS * 1_000


def test_entering_a_time_forgets_before_the_verdict_and_only_in_memory(tables: Tables) -> None:
    table = tables.open()
    complete(table)
    settle(table, settlement(0, 0, at_ms=0))
    table.enter(4 * WIDTH_MS)
    assert (table.seen([id_of("e0")]), table.floor_us) == ([None], 0)
    table.close()
    again = tables.open()
    assert (again.seen([id_of("e0")]), again.floor_us) == ([number(0)], -1)


def test_log_time_that_steps_back_stays_in_its_generation(table: PartitionTable) -> None:
    settle(table, settlement(0, 0, at_ms=5_500))
    settle(table, settlement(1, 1, at_ms=2_000))
    assert table.log_time_ms == 5_500
    assert [g.number for g in table.meta.generations] == [5]


def test_a_leap_in_log_time_forgets_all_but_not_beyond_what_was_received(
    table: PartitionTable,
) -> None:
    settle(table, settlement(0, 0, at_ms=1_000))
    settle(table, settlement(1, 1, at_ms=10_000_000, received_max_us=7))
    assert table.seen([id_of("e0"), id_of("e1")]) == [None, number(1)]
    assert table.floor_us == 1_000_000


def test_pinned_ids_outlive_every_generation(table: PartitionTable) -> None:
    settle(table, settlement(0, 0, at_ms=0, pinned=[(id_of("ahead"), number(0))]))
    settle(table, settlement(1, 1, at_ms=100 * WIDTH_MS))
    assert table.seen([id_of("ahead"), id_of("e0")]) == [number(0), None]


def test_a_forgotten_slot_is_empty_for_its_next_generation(tables: Tables) -> None:
    table = tables.open()
    complete(table)
    settle(table, settlement(0, 0, at_ms=0))
    settle(table, settlement(1, 1, at_ms=gen.KEPT * WIDTH_MS))
    table.close()
    assert tables.open().seen([id_of("e0"), id_of("e1")]) == [None, number(1)]


def test_a_closed_table_answers_nothing(table: PartitionTable) -> None:
    settle(table, settlement(0, 0))
    table.memory = object()
    table.close()
    table.close()
    assert table.closed
    assert table.memory is None
    for use in (
        lambda: table.seen([id_of("e0")]),
        table.levels,
        lambda: table.unsent(1, 1),
        lambda: table.settle(settlement(1, 1)),
        lambda: table.acknowledge(0, []),
        lambda: table.drop_levels([]),
        lambda: table.enter(0),
    ):
        with pytest.raises(TableClosed):
            use()


def test_a_table_never_completed_is_empty_when_opened_again(tables: Tables) -> None:
    table = tables.open()
    settle(table, settlement(0, 9))
    table.close()
    again = tables.open()
    assert (again.applied, again.meta.complete, again.seen([id_of("e0")])) == (-1, False, [None])


def flip(path: Path, spared: int = 500) -> None:
    """Damage every larger data file, but for its last bytes, as a bad disk does."""
    for file in path.glob("*.sst"):
        data = bytearray(file.read_bytes())
        for at in range(200, len(data) - max(spared, 500), 700):
            data[at] ^= 0xFF
        file.write_bytes(bytes(data))


def filled(tables: Tables) -> PartitionTable:
    table = tables.open()
    complete(table)
    settle(
        table,
        settlement(0, 4_999, levels=[(b"level-%d" % n, number(n)) for n in range(2_000)]),
    )
    table.flush()
    table.close()
    return table


def test_flipped_bytes_are_damage_and_never_read_as_unseen(tables: Tables) -> None:
    path = filled(tables).path
    flip(path)

    def read() -> None:
        tables.open().seen([id_of(f"e{n}") for n in range(5_000)])

    with pytest.raises(StateDamaged):
        read()


def test_a_walk_that_ends_early_is_damage_and_no_shorter_walk(tables: Tables) -> None:
    store = Store(tables.root / "store", {LEVELS: False}, Cache(8 << 20))
    store.write(
        lambda batch: batch.put(LEVELS, [(id_of(f"{n}"), id_of(f"v{n}")) for n in range(5_000)])
    )
    store.flush()
    store.close()
    flip(store.path, spared=30_000)
    damaged = Store(store.path, {LEVELS: False}, Cache(8 << 20))
    with pytest.raises(StateDamaged):
        list(damaged.walk(LEVELS))
    damaged.close()


@pytest.mark.parametrize("kind", ["*.sst", "CURRENT", "MANIFEST-*"])
def test_a_missing_file_is_damage(tables: Tables, kind: str) -> None:
    path = filled(tables).path
    next(iter(path.glob(kind))).unlink()
    try:
        table = tables.open()
    except StateDamaged:
        return
    # Without its root the database is a new one: then it says so, and is rebuilt.
    assert (table.applied, table.meta.complete) == (-1, False)


def test_a_table_deleted_while_it_is_open_is_damage_and_its_place_is_free(tables: Tables) -> None:
    table = tables.open()
    complete(table)
    settle(table, settlement(0, 9))
    shutil.rmtree(table.path)
    settle(table, settlement(10, 19))  # into files that nobody can find any more
    with pytest.raises(StateDamaged, match="No such file") as fault:
        table.flush()
    table.close()
    assert quarantine(table.path, "deleted") is None
    again = tables.open()
    assert (again.applied, again.meta.complete) == (-1, False)
    assert fault.value.__traceback__, "whoever remembers the fault keeps no handle, nor the lock"


@pytest.mark.parametrize("field", ["levels", "unsent"])
@pytest.mark.parametrize("off_by", [-1, 1])
def test_another_number_than_was_stored_is_damage(tables: Tables, field: str, off_by: int) -> None:
    table = tables.open()
    complete(table)
    settle(table, settlement(0, 9))
    miscounted = {field: getattr(table.meta, field) + off_by}
    table.replace(lambda _: None, msgspec.structs.replace(table.meta, **miscounted))
    table.close()
    with pytest.raises(StateDamaged, match="were stored"):
        tables.open()


def test_another_format_is_rebuilt_not_guessed(tables: Tables) -> None:
    table = tables.open()
    table.replace(lambda _: None, msgspec.structs.replace(table.meta, format=99, complete=True))
    table.close()
    with pytest.raises(StateDamaged, match=r"format 99.* rebuilt from the packed log"):
        tables.open()


def test_a_copied_table_is_an_independent_prefix(tables: Tables) -> None:
    table = tables.open()
    complete(table)
    settle(table, settlement(0, 9))
    table.close()
    shutil.copytree(table.path, tables.root / "copy")
    first, second = tables.open(), tables.open("copy")
    settle(first, settlement(10, 19))
    assert (first.applied, second.applied) == (19, 9)
    assert second.seen([id_of("e10")]) == [None]
