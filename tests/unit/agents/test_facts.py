"""What a partition tells the ledger, and what it believes of the answer."""

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Cache

from streams import topics
from streams.agents import facts
from streams.agents.facts import TOGETHER, FactSender, collect
from streams.agents.memory import PartitionMemory, memories_of, memory_of
from streams.core.fact import Applied, FactBatch, Remembered, WentBack
from streams.core.identity import log_uuid
from streams.engine.errors import TableClosed
from streams.engine.log import LogId
from streams.engine.table import open_table
from streams.ports import LedgerUnavailableError
from tests.support.events import T0_US, canary, correction, usage
from tests.unit.agents.checks import check_end, check_state
from tests.unit.agents.outside import PARTITION, TOPIC_ID
from tests.unit.agents.world import Life, World
from tests.unit.engine.build import settle, settlement

Worlds = Callable[[Any], World]
PLACE = (log_uuid(TOPIC_ID), PARTITION)
JOBS = [usage(f"job-{n}", "1", metric="jobs") for n in range(7)]


async def fed(world: World, begin: Any) -> Life:
    life: Life = await begin(world)
    assert await life.feed()
    return life


async def test_a_batch_says_which_log_how_far_and_by_which_rules(
    world_of: Worlds, begin: Any
) -> None:
    first = usage("a", "5")
    world = world_of([first, JOBS[0], correction(first, "-2"), canary(1), b"{"])
    life = await fed(world, begin)
    await life.tell()
    (batch,) = world.ledger.batches
    assert (batch.log_topic, batch.log_id, batch.partition) == ("usage.events", *PLACE)
    assert (batch.acknowledged, batch.position) == (-1, 4)
    assert batch.catalogue_hash == life.table.meta.catalogue_hash.hex()
    kinds = (batch.levels, batch.events, batch.corrections, batch.parked, batch.canaries)
    assert [len(kind) for kind in kinds] == [1, 1, 1, 1, 1]
    assert life.sender.figures.batches == 1


async def test_what_is_acknowledged_is_not_told_again(world_of: Worlds, begin: Any) -> None:
    world = world_of([usage("a"), *JOBS])
    life = await fed(world, begin)
    await life.tell()
    await life.tell()
    assert len(world.ledger.batches) == 1
    assert collect(memory_of(life.table)) == (None, False)
    check_end(world, life.table)


class Deliberate:
    """A ledger that answers nobody before it was asked by as many as ever ask at once."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.away = False
        self._many = asyncio.Event()

    async def behind(self, known: Sequence[Remembered]) -> list[tuple[Remembered, WentBack]]:
        del known
        return []

    async def position(self, log_id: str, partition: int) -> int:
        del log_id, partition
        return -1

    async def apply_facts(self, batch: FactBatch) -> Applied:
        self.asked.append(batch.partition)
        if len(self.asked) == TOGETHER:
            self._many.set()
        async with asyncio.timeout(10):
            await self._many.wait()
        if self.away:
            raise LedgerUnavailableError("away")
        return Applied(batch.position, 0)


@pytest.fixture
def many(tmp_path: Path) -> Iterator[list[PartitionMemory]]:
    """Twice as many partitions with news as are told of at a time."""
    cache = Cache(1 << 20)
    tables = [
        open_table(
            tmp_path / str(number),
            LogId(topics.EVENTS, TOPIC_ID, number),
            partitions=2 * TOGETHER,
            width_ms=1_000_000,
            cache=cache,
        )
        for number in range(2 * TOGETHER)
    ]
    for table in tables:
        settle(table, settlement(0, 3, levels=[], unsent=[]))
    yield memories_of(tables)
    for table in tables:
        table.close()


async def test_several_partitions_are_told_of_at_a_time_each_once(
    many: list[PartitionMemory],
) -> None:
    ledger = Deliberate()
    assert await FactSender(ledger, lambda _: None).send(many) == 0
    assert sorted(ledger.asked) == list(range(2 * TOGETHER))
    assert {memory.table.acknowledged for memory in many} == {3}


async def test_a_ledger_that_is_away_is_asked_no_more_often_than_at_a_time(
    many: list[PartitionMemory],
) -> None:
    ledger = Deliberate()
    ledger.away = True
    assert await FactSender(ledger, lambda _: None).send(many) is None
    assert len(ledger.asked) == TOGETHER
    assert {memory.table.acknowledged for memory in many} == {-1}


async def test_a_lost_answer_repeats_the_batch_and_changes_nothing(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a"), *JOBS])
    life = await fed(world, begin)
    ledger = world.ledger

    async def gone() -> None:
        ledger.away = True

    ledger.meanwhile = gone
    await life.tell()
    assert life.sender.figures.ledger_failures == 1
    assert life.table.acknowledged == -1
    check_state(world, life.table)
    ledger.away = False
    await life.tell()
    first, second = ledger.batches
    assert first == second
    assert life.told == [None, len(first.events)], "events, or that the ledger did not take all"
    check_end(world, life.table)


async def test_while_the_ledger_is_away_facts_wait_and_admission_goes_on(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([*JOBS, usage("a"), usage("b")])
    life: Life = await begin(world)
    world.ledger.away = True
    while await life.feed(2):
        await life.tell()
    assert life.table.applied == 8
    assert life.table.meta.unsent == 7
    assert life.sender.figures.ledger_failures == 5
    world.ledger.away = False
    await life.tell()
    check_end(world, life.table)


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
async def test_position_and_readings_come_with_the_last_of_the_facts_before_them(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(facts, "UNSENT_LIMIT", limit)
    world = world_of([usage("a"), *JOBS, usage("b")])
    life = await fed(world, begin)
    told = 0

    def exact(batch: Any) -> None:
        nonlocal told
        told += len(batch.events)
        assert len(batch.events) <= limit
        has_readings = bool(batch.levels and batch.cells)
        assert (batch.position, has_readings) == ((8, True) if told == len(JOBS) else (-1, False))

    world.ledger.witness = exact
    await life.tell()
    assert [batch.position for batch in world.ledger.batches][-1] == 8
    check_end(world, life.table)


async def test_a_reading_that_grows_while_the_ledger_answers_stays_dirty(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a", "5"), usage("b", "7")])
    life: Life = await begin(world)
    assert await life.feed(1)
    grown: list[bool] = []

    async def grow() -> None:
        grown.append(await life.feed(1))

    world.ledger.meanwhile = grow
    await life.tell()
    assert grown == [True]
    memory = memory_of(life.table)
    level = next(reading for reading in memory.readings.values() if reading.total)
    assert (level.records, level.last_offset) == (2, 1)
    assert memory.dirty == set(memory.readings)
    life.discard()  # what is stored says the same
    assert memory_of(life.table).dirty == set(memory.readings)
    await life.tell()
    check_end(world, life.table)


async def test_a_reading_of_a_chunk_that_left_no_fact_is_told_as_well(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a"), usage("a")])
    life: Life = await begin(world)
    await life.feed(1)
    await life.tell()
    await life.feed(1)
    await life.tell()
    # The duplicate changes no reading, but the position moves: nothing up to it is owed.
    assert [batch.position for batch in world.ledger.batches] == [0, 1]
    assert world.ledger.batches[1].levels == ()
    check_end(world, life.table)


# -- went back ------------------------------------------------------------------------------------


async def test_a_ledger_that_went_back_stops_all_telling_and_is_named(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a"), JOBS[0], usage("b"), JOBS[1]])
    life: Life = await begin(world)
    await life.feed(3)
    await life.tell()
    world.ledger.positions[PLACE] = 0  # restored from a backup
    await life.feed()
    before = len(world.ledger.batches)
    await life.tell()
    message = life.sender.figures.went_back
    assert message is not None
    assert "up to offset 0, but had confirmed 2" in message
    assert "tailrace ledger adopt" in message
    await life.tell()
    assert len(world.ledger.batches) == before + 1, "told on after the ledger went back"
    assert life.table.acknowledged == 2
    assert life.table.meta.unsent == 1


async def test_other_partitions_are_told_nothing_either_once_it_went_back(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a"), usage("b")])
    life: Life = await begin(world)
    await life.feed(1)
    await life.tell()
    world.ledger.positions[PLACE] = -1
    await life.feed(1)
    memory = memory_of(life.table)
    before = len(world.ledger.batches)
    await life.sender.send([memory, memory, memory])
    assert len(world.ledger.batches) == before + 1


def halted_by(life: Life) -> bool:
    return life.sender.figures.went_back is not None


async def test_what_a_restored_ledger_lacks_is_told_again_once_it_was_adopted(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a"), JOBS[0], usage("b"), JOBS[1]])
    life: Life = await begin(world)
    await life.feed(2)
    await life.tell()
    backup = copy.deepcopy((world.ledger.levels, world.ledger.cells, world.ledger.facts))
    position = dict(world.ledger.positions)
    await life.feed()
    await life.tell()
    check_end(world, life.table)
    world.ledger.levels, world.ledger.cells, world.ledger.facts = backup
    world.ledger.positions = position

    assert not await life.sender.check([memory_of(life.table)])
    assert halted_by(life)
    before = life.table
    await life.tell()
    closed = [before.closed]
    world.ledger.adopted.add(PLACE)
    assert not await life.sender.check([memory_of(life.table)]), "nothing is published meanwhile"

    assert [*closed, before.closed] == [False, True], "not before a person has decided"
    assert not halted_by(life)
    await life.tell()
    assert await life.sender.check([memory_of(life.table)])
    check_end(world, life.table)


async def test_a_table_is_given_up_once_however_often_it_is_asked(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a")])
    life: Life = await begin(world)
    await life.feed()
    await life.tell()
    rebuilt: list[int] = []
    sender = FactSender(world.ledger, rebuilt.append)
    world.ledger.positions[PLACE] = -1
    world.ledger.adopted.add(PLACE)
    for _ in range(3):
        assert not await sender.check([memory_of(life.table)])
        await sender.send([memory_of(life.table)])
    assert rebuilt == [0]


async def test_a_worker_that_never_spoke_with_the_lost_ledger_notices_too(
    world_of: Worlds, begin: Any
) -> None:
    """Its machine is new, and the ledger was away when it read its state."""
    world = world_of([usage("a"), JOBS[0], usage("b"), JOBS[1]])
    life: Life = await begin(world)
    await life.feed(2)
    await life.tell()
    await life.feed(1)
    life.table.close()
    world.lose_disk()
    world.ledger.positions.clear()
    life.table = world.recovered()
    assert (life.table.acknowledged, life.table.confirmed) == (-1, 1)

    before = len(world.ledger.batches)
    await life.tell()
    assert halted_by(life)
    assert len(world.ledger.batches) == before, "told, it would hold more than it was known to"
    assert not await life.sender.check([memory_of(life.table)])

    world.ledger.adopted.add(PLACE)
    table = life.table
    await life.tell()
    assert life.table is table, "nothing is to be read again: all of it is unsent"
    await life.feed()
    await life.tell()
    assert await life.sender.check([memory_of(life.table)])
    check_end(world, life.table)


async def test_a_ledger_that_is_away_lets_nothing_be_published(
    world_of: Worlds, begin: Any
) -> None:
    life: Life = await begin(world_of([usage("a")]))
    assert await life.sender.check([memory_of(life.table)])
    life.world.ledger.away = True
    assert not await life.sender.check([memory_of(life.table)])
    assert life.sender.figures.ledger_failures == 1
    assert await life.sender.check([]), "who owns nothing has nothing to compare"


# -- the partition moves --------------------------------------------------------------------------


async def test_a_partition_handed_over_while_the_ledger_answers_is_told_by_its_next_owner(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a"), *JOBS])
    life = await fed(world, begin)

    async def moves() -> None:
        life.table.close()

    world.ledger.meanwhile = moves
    await life.tell()
    assert life.sender.figures.went_back is None
    assert life.sender.figures.ledger_failures == 0
    life.table = world.recovered()
    check_state(world, life.table)
    await life.tell()
    check_end(world, life.table)


async def test_a_partition_handed_over_before_it_was_told_harms_no_other(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a"), *JOBS])
    life = await fed(world, begin)
    closed = memory_of(life.table)
    life.discard()
    await life.sender.send([closed, memory_of(life.table)])
    check_end(world, life.table)


async def test_a_closed_table_has_no_memory_to_tell_from(world_of: Worlds, begin: Any) -> None:
    life = await fed(world_of([usage("a")]), begin)
    open_one = memories_of([life.table])
    life.table.close()
    assert len(open_one) == 1
    assert memories_of([life.table]) == []
    with pytest.raises(TableClosed):
        memory_of(life.table)


async def test_the_memory_hangs_on_its_table(world_of: Worlds, begin: Any) -> None:
    life = await fed(world_of([usage("a", occurred_us=T0_US)]), begin)
    memory = memory_of(life.table)
    assert memory_of(life.table) is memory
    life.discard()
    assert memory_of(life.table) is not memory
    assert memory_of(life.table).readings == memory.readings
