"""A log that was lost and made anew: nobody reads it unasked, and then nothing counts twice."""

from collections.abc import Callable
from typing import Any

import pytest

from streams.core.identity import log_uuid
from streams.engine.before import Before, Earlier
from streams.engine.errors import ForeignPackedRecord, LogRecreated, LogRefused, RecoveryGap
from streams.engine.packed import PackedRecord
from tests.support.events import Wire, canary, log_of, usage
from tests.unit.agents.outside import PARTITION, TOPIC_ID
from tests.unit.agents.world import Life, World

Worlds = Callable[[Any], World]
USES = [usage(f"u{n}", str(n + 1)) for n in range(8)]
NEXT = [usage(f"n{n}", str(100 + n)) for n in range(3)]
SECOND_ID, THIRD_ID = "4Iw2YxKPTZqz4yIYwHZ+Gw", "5Iw2YxKPTZqz4yIYwHZ+Gw"


def units(uses: list[Wire]) -> int:
    return sum(int(wire["quantity"]) for wire in uses)


def at_the_ledger(world: World) -> int:
    return sum(level.total for level in world.ledger.levels.values())


async def lived(world: World, begin: Any, *, told: int = len(USES)) -> int:
    """One packed record per source record, of which so many were told; the units counted so far."""
    life: Life = await begin(world)
    for number in range(len(world.broker.source)):
        world.ledger.away = number >= told
        assert await life.feed(1)
        await life.tell()
    world.ledger.away = False
    life.table.close()
    return at_the_ledger(world)


def make_anew(world: World, contents: list[Wire], topic_id: str = SECOND_ID) -> None:
    """The topic is lost, and a new one of its name holds this; the old levels are set aside."""
    world.broker.source, world.broker.topic_id = log_of([canary(90), *contents]), topic_id
    world.ledger.levels, world.ledger.cells = {}, {}


def adopt(world: World, *topic_ids: str) -> None:
    """A person opens the present log in the ledger, which knows how far it holds those before."""
    positions = world.ledger.positions
    held = {topic_id: positions.get((log_uuid(topic_id), PARTITION), -1) for topic_id in topic_ids}
    told = {topic_id: Earlier(PARTITION, last, last) for topic_id, last in held.items()}
    world.before = lambda: told


async def worked(world: World, begin: Any) -> Life:
    life: Life = await begin(world)
    await life.work([2])
    assert world.ledger.findings == []
    return life


async def test_it_is_refused_by_the_table_and_by_the_packed_log_alone(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of(USES)
    await lived(world, begin)
    make_anew(world, NEXT)
    with pytest.raises(LogRecreated, match="tailrace topics adopt"):
        world.recovered()
    world.lose_disk()
    with pytest.raises(ForeignPackedRecord, match="tailrace topics adopt"):
        world.recovered()


@pytest.mark.parametrize("disk_lost", [False, True])
async def test_once_adopted_copies_count_nothing_and_the_rest_counts_once(
    world_of: Worlds, begin: Any, *, disk_lost: bool
) -> None:
    world = world_of(USES)
    assert await lived(world, begin) == units(USES)
    make_anew(world, USES + NEXT)
    adopt(world, TOPIC_ID)
    if disk_lost:
        world.lose_disk()
    await worked(world, begin)
    assert at_the_ledger(world) == units(NEXT)


async def test_what_the_ledger_lacks_of_the_log_before_counts_when_it_comes_again(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of(USES)
    counted = await lived(world, begin, told=5)
    assert counted == units(USES[:5])
    make_anew(world, USES + NEXT)
    adopt(world, TOPIC_ID)
    await worked(world, begin)
    assert counted + at_the_ledger(world) == units(USES + NEXT)


async def test_a_new_log_is_rebuilt_with_its_memory_from_both_logs(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of(USES)
    await lived(world, begin)
    make_anew(world, NEXT + USES)
    adopt(world, TOPIC_ID)
    life: Life = await begin(world)
    assert await life.feed(2)
    assert await life.feed(1)
    life.table.close()
    world.lose_disk()
    # The new log's first packed record is lost: its state comes from its source again.
    del world.broker.packed[len(USES)]
    await worked(world, begin)
    assert at_the_ledger(world) == units(NEXT)


async def test_a_log_made_anew_twice_remembers_both_before_it(world_of: Worlds, begin: Any) -> None:
    world = world_of(USES)
    await lived(world, begin)
    make_anew(world, NEXT)
    adopt(world, TOPIC_ID)
    life = await worked(world, begin)
    life.table.close()
    last = [usage("last", "1000")]
    make_anew(world, USES + NEXT + last, THIRD_ID)
    adopt(world, SECOND_ID, TOPIC_ID)
    await worked(world, begin)
    assert at_the_ledger(world) == units(last)


@pytest.mark.parametrize(("low", "high"), [(1, 8), (8, 8), (0, 7)])
async def test_without_all_of_the_memory_it_is_not_read(
    world_of: Worlds, begin: Any, low: int, high: int
) -> None:
    world = world_of(USES)
    await lived(world, begin)
    del world.broker.packed[high:]
    world.broker.packed_low = low
    make_anew(world, USES)
    adopt(world, TOPIC_ID)
    with pytest.raises(RecoveryGap, match="the log before"):
        world.recovered()


async def test_memory_that_is_older_than_anything_looked_up_is_not_needed(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of(USES)
    await lived(world, begin)
    world.broker.packed_low = 3
    world.reach_back_ms = 0
    make_anew(world, NEXT)
    adopt(world, TOPIC_ID)
    await worked(world, begin)
    assert at_the_ledger(world) == units(NEXT)


async def test_a_partition_of_which_the_ledger_holds_nothing_needs_no_memory(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of(USES)
    make_anew(world, NEXT)
    adopt(world, TOPIC_ID)
    await worked(world, begin)
    assert at_the_ledger(world) == units(NEXT)


async def test_a_silent_ledger_is_asked_until_it_answers(world_of: Worlds, begin: Any) -> None:
    world = world_of(USES)
    await lived(world, begin)
    make_anew(world, USES + NEXT)
    adopt(world, TOPIC_ID)
    answer, asked = world.before, 0

    def slow() -> Any:
        nonlocal asked
        asked += 1
        return answer() if asked > 2 else None

    world.before = slow
    await worked(world, begin)
    assert at_the_ledger(world) == units(NEXT)


async def test_a_silent_ledger_does_not_say_that_there_was_no_log_before(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of(USES)
    await lived(world, begin)
    make_anew(world, USES)
    adopt(world, TOPIC_ID)
    answer, asked = world.before, 0

    def slow() -> Any:
        nonlocal asked
        asked += 1
        return answer() if asked > 2 else None

    world.lose_disk()
    world.broker.packed.clear()
    world.before = slow
    with pytest.raises(RecoveryGap, match="the log before"):
        world.recovered()


async def test_a_table_that_began_before_it_was_adopted_is_not_gone_on_with(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of(USES)
    await lived(world, begin)
    make_anew(world, USES)
    world.lose_disk()
    packed, world.broker.packed = world.broker.packed, []
    world.recovered().close()
    adopt(world, TOPIC_ID)
    with pytest.raises(RecoveryGap, match="the log before"):
        world.recovered()
    world.broker.packed = packed
    await worked(world, begin)
    assert at_the_ledger(world) == 0


async def test_what_remembers_the_log_before_is_set_aside_and_never_deleted(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of(USES)
    await lived(world, begin)
    world.broker.packed.clear()
    make_anew(world, USES)
    adopt(world, TOPIC_ID)
    with pytest.raises(RecoveryGap, match="the log before"):
        world.recovered()
    with pytest.raises(RecoveryGap, match="the log before"):
        world.recovered()
    aside = next((world.root / "tables").glob("*.corrupt-*"))
    assert aside.name.endswith(".corrupt-1"), "the second try had nothing to set aside"
    assert list(aside.glob("*.sst")) or list(aside.glob("*.log"))


REMEMBER = Before.remember


def remembers_nothing(_before: Before, _record: PackedRecord, _topic_id: str) -> None:
    return None


def remembers_what_the_ledger_lacks(
    before: Before, record: PackedRecord, topic_id: str
) -> PackedRecord | None:
    del before
    told = Earlier(record.partition, record.last, record.last)
    return REMEMBER(Before({record.topic_id: told}), record, topic_id)


@pytest.mark.parametrize("plant", [remembers_nothing, remembers_what_the_ledger_lacks])
async def test_a_rule_taken_out_is_noticed(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch, plant: Any
) -> None:
    monkeypatch.setattr(Before, "remember", plant)
    monkeypatch.setattr(Before, "missing", lambda _before, _since_ms: None)
    with pytest.raises((AssertionError, LogRefused)):
        await test_what_the_ledger_lacks_of_the_log_before_counts_when_it_comes_again(
            world_of, begin
        )
