"""A topic that grew: a new partition knows what was counted where its keys were before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from streams import topics
from streams.agents.lineage import laid_out, told_of
from streams.core.growth import Inherited, Life, Log, grown_log_id
from streams.core.identity import log_uuid, topic_id_of
from streams.engine import packed_reader, recovery
from streams.engine.before import Before
from streams.engine.errors import EarlierBehind, LogRefused, PartitionCountChanged, RecoveryGap
from streams.engine.layout import Layout
from tests.support.events import Wire, log_of, usage
from tests.unit.agents.outside import TOPIC_ID, Ledger
from tests.unit.agents.world import Life as Worker
from tests.unit.agents.world import World

Patch = pytest.MonkeyPatch
ROOT = log_uuid(TOPIC_ID)
USES = [usage(f"u{n}", str(n + 1)) for n in range(8)]
NEXT = [usage(f"n{n}", str(100 + n)) for n in range(3)]


def units(uses: list[Wire]) -> int:
    return sum(int(wire["quantity"]) for wire in uses)


class Grown:
    """A topic of one partition that is grown, each partition with a worker and a disk of its own.

    All keys are at home on the partition that is asked, as after any growth for one of its keys.
    """

    def __init__(self, root: Path, begin: Any) -> None:
        self._root, self._begin = root, begin
        self.logs = [Log(ROOT, 0, 1)]
        self.ledger = Ledger()
        self.worlds = {0: self._world(0, USES)}
        self.counted: dict[int, int] = {}

    def _world(self, partition: int, contents: list[Wire]) -> World:
        world = World(self._root / str(partition), log_of(contents))
        world.broker.partition, world.ledger = partition, self.ledger
        world.broker.topic_id = topic_id_of(ROOT)
        world.layout = self.laid_out
        world.before = lambda: told_of((Life(tuple(self.logs)),), partition, self._position)
        return world

    def laid_out(self, life_id: str, partitions: int, partition: int) -> Layout | None:
        """As `Lineage` answers."""
        return laid_out((Life(tuple(self.logs)),), life_id, partitions, partition)

    def _position(self, one: Inherited) -> int:
        return self.ledger.positions.get((one.log_id, one.partition), -1)

    def grow(self, contents: list[Wire], *, boundary: int | None = None) -> World:
        """Twice as many partitions; the last of them holds this. A person makes it known."""
        present = self.logs[-1].partitions
        ends = [
            len(self.worlds[n].broker.source) if n in self.worlds else 0 for n in range(present)
        ]
        boundaries = tuple(end if boundary is None else boundary for end in ends)
        log_id = grown_log_id(ROOT, present, 2 * present)
        self.logs.append(Log(log_id, present, 2 * present, boundaries))
        last = 2 * present - 1
        self.worlds[last] = self._world(last, contents)
        brokers = {n: world.broker for n, world in self.worlds.items()}
        for number, broker in brokers.items():
            broker.partitions = 2 * present
            broker.others = {n: other for n, other in brokers.items() if n != number}
        return self.worlds[last]

    async def lived(self, partition: int, records: int = 99) -> int:
        """A worker settles and tells so many records, one packed record each; the units it counts.

        Levels are of the log they are told of; the ledger here keeps one for all.
        """
        self.ledger.levels, self.ledger.cells = {}, {}
        worker: Worker = await self._begin(self.worlds[partition])
        for _ in range(records):
            if not await worker.feed(1):
                break
        await worker.tell()
        assert (worker.held, worker.refused, self.ledger.findings) == (None, [], [])
        worker.table.close()
        return sum(level.total for level in self.ledger.levels.values())


@pytest.fixture
def topic(tmp_path: Path, begin: Any) -> Grown:
    """Not grown yet; its one partition holds `USES`, and nothing is settled."""
    return Grown(tmp_path, begin)


async def test_copies_on_the_new_partition_count_nothing_and_the_rest_counts_once(
    topic: Grown,
) -> None:
    assert await topic.lived(0) == units(USES)
    topic.grow(USES + NEXT)
    assert await topic.lived(1) == units(NEXT)


async def test_however_many_readings_its_memory_takes(topic: Grown, monkeypatch: Patch) -> None:
    """Its state is begun twice, the second time from nothing, and must end with all of it."""
    monkeypatch.setattr(packed_reader, "_GROUP_RECORDS", 1)
    await topic.lived(0)
    topic.grow(USES + NEXT)
    assert await topic.lived(1) == units(NEXT)


@pytest.mark.parametrize("settled", [0, 1, 4, 9])
async def test_a_lost_disk_is_rebuilt_with_what_was_remembered(topic: Grown, settled: int) -> None:
    await topic.lived(0)
    child = topic.grow([*NEXT[:1], *USES, *NEXT, *USES])
    before = await topic.lived(1, settled)
    child.lose_disk()
    topic.worlds[0].lose_disk()
    # What was told is told once more, as a higher reading of the same level.
    assert max(before, await topic.lived(1)) == units(NEXT)


async def test_a_new_log_whose_packed_log_was_cut_comes_from_its_source_with_its_memory(
    topic: Grown,
) -> None:
    await topic.lived(0)
    child = topic.grow([*NEXT, *USES])
    await topic.lived(1)
    child.lose_disk()
    child.broker.packed_low = 1
    assert await topic.lived(1) == units(NEXT)


async def test_it_waits_until_the_partition_before_it_is_settled(topic: Grown) -> None:
    first = await topic.lived(0, 5)
    child = topic.grow(USES + NEXT)
    with pytest.raises(EarlierBehind, match="lacks offsets 5 to 7 of partition 0") as behind:
        child.recovered()
    assert "goes on by itself" in str(behind.value)
    assert first + await topic.lived(0) >= units(USES)
    assert await topic.lived(1) == units(NEXT)


async def test_nothing_settled_is_waited_for_too(topic: Grown) -> None:
    child = topic.grow(USES)
    with pytest.raises(EarlierBehind, match="lacks offsets 0 to 7 of partition 0"):
        child.recovered()
    assert await topic.lived(0) == units(USES)
    assert await topic.lived(1) == 0


async def test_what_is_settled_and_not_yet_told_is_remembered_all_the_same(topic: Grown) -> None:
    """The ledger hears of it from the partition that holds it; here it is a copy already."""
    worker: Worker = await topic._begin(topic.worlds[0])
    assert await worker.feed()
    worker.table.close()
    topic.grow(USES + NEXT)
    assert topic.ledger.positions == {}
    assert await topic.lived(1) == units(NEXT)
    assert await topic.lived(0) == units(USES)


async def test_behind_the_boundary_nothing_is_waited_for(topic: Grown) -> None:
    await topic.lived(0, 5)
    topic.grow([*USES[:5], *NEXT], boundary=5)
    assert await topic.lived(1) == units(NEXT)


async def test_a_packed_record_that_straddles_the_boundary_is_remembered(topic: Grown) -> None:
    worker: Worker = await topic._begin(topic.worlds[0])
    assert await worker.feed(4)
    assert await worker.feed(4)
    worker.table.close()
    topic.grow([*USES[:6], *NEXT], boundary=6)
    assert await topic.lived(1) == units(NEXT)


async def test_a_partition_whose_keys_were_nowhere_before_begins_at_once(topic: Grown) -> None:
    topic.worlds[0].broker.source = []
    topic.grow(NEXT)
    assert await topic.lived(1) == units(NEXT)


async def test_a_topic_that_grew_twice_is_remembered_through_both(topic: Grown) -> None:
    await topic.lived(0)
    topic.grow(NEXT)
    await topic.lived(1)
    last = [usage("last", "1000")]
    topic.grow([*USES, *NEXT, *last])
    assert await topic.lived(3) == units(last)


# -- what was cut ----------------------------------------------------------------------------------


async def test_a_cut_packed_log_of_the_partition_before_is_written_again(topic: Grown) -> None:
    """What a person is told to do, and what comes of it."""
    await topic.lived(0)
    parent = topic.worlds[0]
    parent.broker.packed_low = 3
    child = topic.grow(USES + NEXT)
    with pytest.raises(EarlierBehind, match="what lies before offset 3 of partition 0") as cut:
        child.recovered()
    assert "the packed log was cut: delete that partition's state" in str(cut.value)
    await topic.lived(0)
    with pytest.raises(EarlierBehind):
        child.recovered()
    parent.lose_disk()
    await topic.lived(0)
    assert await topic.lived(1) == units(NEXT)


async def test_memory_that_is_older_than_anything_looked_up_is_not_needed(topic: Grown) -> None:
    await topic.lived(0)
    topic.worlds[0].broker.packed_low = 3
    topic.grow(NEXT).reach_back_ms = 0
    assert await topic.lived(1) == units(NEXT)


async def test_a_log_that_reaches_back_far_enough_needs_no_other(topic: Grown) -> None:
    await topic.lived(0)
    child = topic.grow(NEXT)
    await topic.lived(1)
    child.lose_disk()
    topic.worlds[0].broker.packed.clear()
    with pytest.raises(EarlierBehind):
        child.recovered()
    child.reach_back_ms = 0
    table = child.recovered()
    assert table.applied == len(NEXT) - 1
    table.close()


# -- the partitions that were there ----------------------------------------------------------------


async def test_a_partition_that_was_there_goes_on_with_its_state(topic: Grown) -> None:
    await topic.lived(0, 5)
    parent = topic.worlds[0]
    topic.grow([])
    packed = len(parent.broker.packed)
    table = parent.recovered()
    assert (table.applied, table.meta.partitions) == (4, 2)
    assert (table.layout.settled_at, table.layout.begun_with) == (8, 1)
    table.close()
    assert len(parent.broker.packed) == packed
    await topic.lived(0)
    assert parent.broker.packed[packed:]


@pytest.mark.parametrize("count", [3, 4])
async def test_a_table_of_a_count_that_never_was_is_refused_and_left_alone(
    topic: Grown, count: int
) -> None:
    await topic.lived(0)
    parent = topic.worlds[0]
    table = parent.recovered()
    table.replace(lambda _: None, replace(table.meta, partitions=count))
    table.close()
    topic.grow([])
    for _ in range(2):
        with pytest.raises(
            PartitionCountChanged, match=f"made with {count} partitions, the topic has 2"
        ):
            parent.recovered()


async def test_a_growth_that_nobody_made_known_is_refused(topic: Grown) -> None:
    await topic.lived(0)
    child = topic.grow(USES)
    topic.logs.pop()
    for world in (topic.worlds[0], child):
        with pytest.raises(PartitionCountChanged, match="`tailrace topics grow --partitions 2`"):
            world.recovered()


async def test_a_silent_ledger_is_asked_until_it_says_how_the_topic_grew(
    topic: Grown, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(recovery, "RETRY_PAUSE_S", 0.0)
    await topic.lived(0)
    child = topic.grow(USES + NEXT)
    laid, asked = child.layout, 0

    def slow(*args: Any) -> Layout | None:
        nonlocal asked
        asked += 1
        return laid(*args) if asked > 2 else None

    child.layout = slow
    assert await topic.lived(1) == units(NEXT)
    assert asked > 2


async def test_a_new_partition_tells_the_ledger_under_a_log_of_its_own(topic: Grown) -> None:
    await topic.lived(0)
    topic.grow(NEXT)
    await topic.lived(1)
    grown = topic.logs[-1].log_id
    assert topic.ledger.positions == {(ROOT, 0): len(USES) - 1, (grown, 1): len(NEXT) - 1}
    told = {(batch.log_id, batch.begun_with) for batch in topic.ledger.batches}
    assert told == {(ROOT, 1), (grown, None)}
    assert topic.worlds[1].broker.packed
    table = topic.worlds[1].recovered()
    assert (table.log.topic_id, table.log.topic) == (topic_id_of(grown), topics.EVENTS)
    table.close()


# -- rules taken out -------------------------------------------------------------------------------


def looks_nowhere_else(patch: Patch) -> None:
    patch.setattr(Before, "elsewhere", lambda *_: [])
    patch.setattr(Before, "missing", lambda *_: None)


def waits_for_nothing(patch: Patch) -> None:
    patch.setattr(Before, "missing", lambda *_: None)


def takes_it_for_the_log_of_the_topic(patch: Patch) -> None:
    def laid(_: Grown, life_id: str, partitions: int, _partition: int) -> Layout:
        return Layout(life_id, life_id, partitions, ((0, 1), (0, partitions)))

    patch.setattr(Grown, "laid_out", laid)


PLANTS: list[tuple[Callable[[Patch], None], Callable[..., Any]]] = [
    (
        looks_nowhere_else,
        test_copies_on_the_new_partition_count_nothing_and_the_rest_counts_once,
    ),
    (waits_for_nothing, test_nothing_settled_is_waited_for_too),
    (
        takes_it_for_the_log_of_the_topic,
        test_a_new_partition_tells_the_ledger_under_a_log_of_its_own,
    ),
]


@pytest.mark.parametrize(("plant", "claim"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
async def test_a_rule_taken_out_is_noticed(
    topic: Grown, monkeypatch: Patch, plant: Callable[[Patch], None], claim: Callable[..., Any]
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, LogRefused, pytest.fail.Exception)) as noticed:
        await claim(topic)
    assert not isinstance(noticed.value, RecoveryGap)
