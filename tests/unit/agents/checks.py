"""What must hold of a partition at any moment, and at the end of all lives."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from streams import topics
from streams.agents.memory import memory_of
from streams.engine.chunk import Chunk
from streams.engine.table import PartitionTable
from tests.unit.agents.outside import identity_of
from tests.unit.agents.world import Death, DeathError, Life, World


def check_state(world: World, table: PartitionTable) -> None:
    """The state is the fold of the log up to `applied`; what the ledger lacks is marked so."""
    oracle = world.expected(table.applied)
    readings = memory_of(table).readings
    assert readings == oracle.readings
    ids = list(oracle.marks)
    assert dict(zip(ids, table.seen(ids), strict=True)) == oracle.marks
    ledger, dirty = world.ledger, memory_of(table).dirty
    for key, reading in readings.items():
        told = ledger.levels.get(key) or ledger.cells.get(key)
        assert key in dirty or (told is not None and told.count == reading.records), key
    unsent = {int.from_bytes(key[:8], "big") for key, _ in table.unsent(10_000, table.applied)}
    for offset, fact in oracle.facts:
        assert offset in unsent or identity_of(fact) in ledger.facts, f"fact of {offset} is lost"


def check_end(world: World, table: PartitionTable) -> None:
    """Everything is settled and told, in the amounts that the log says, and on the outputs."""
    check_state(world, table)
    oracle, ledger = world.expected(), world.ledger
    last = world.broker.source[-1].offset
    assert (table.applied, table.acknowledged) == (last, last)
    assert not memory_of(table).dirty
    assert table.unsent(1, last) == []
    assert max(ledger.positions.values()) == last
    assert ledger.findings == []
    told = {k: (f.count, f.digest, f.birth_offset) for k, f in ledger.cells.items()}
    told |= {k: (f.count, f.digest, f.birth_offset) for k, f in ledger.levels.items()}
    readings = oracle.readings
    assert told == {k: (r.records, r.digest, r.birth_offset) for k, r in readings.items()}
    assert {k: f.total for k, f in ledger.levels.items()} == {
        k: r.total for k, r in readings.items() if k in ledger.levels
    }
    assert ledger.facts == {identity_of(fact): fact for _, fact in oracle.facts}
    for topic, expected in (
        (topics.ACCEPTED, oracle.accepted),
        (topics.REVIEW, oracle.review),
        (topics.DEAD_LETTER, oracle.dead_letter),
    ):
        assert not Counter(expected) - Counter(world.broker.outputs.get(topic, [])), topic


async def live(world: World, deaths: Sequence[Death], sizes: Sequence[int]) -> None:
    """Lives one after the other, each dying as told, the last one to the end; checks each.

    At last the disk is lost and the source with it, so that the packed log alone must know all.
    """
    for death in deaths:
        life = Life(world, death.hook())
        check_state(world, life.table)
        async with life:
            try:
                await life.work(sizes)
            except DeathError:
                world.clock.now_s += 60
        if death.disk_lost:
            world.lose_disk()
    life = Life(world)
    check_state(world, life.table)
    async with life:
        await life.work(sizes)
        assert life.held is None
        check_end(world, life.table)
    world.lose_disk()
    world.broker.low = world.broker.source[-1].offset + 1
    rebuilt = world.recovered()
    try:
        check_end_rebuilt(world, rebuilt)
    finally:
        rebuilt.close()


def check_end_rebuilt(world: World, table: PartitionTable) -> None:
    """A state from the packed log alone judges the next record as the lost one would have."""
    assert table.applied == world.broker.source[-1].offset
    check_state(world, table)


def totals(life: Life) -> Counter[str]:
    """Units in the levels by metric."""
    sums: Counter[str] = Counter()
    for key, reading in memory_of(life.table).readings.items():
        sums[getattr(key, "metric", "-")] += reading.total
    return +sums


def whole(life: Life, **changes: Any) -> Chunk:
    chunk = life.chunk()
    assert chunk is not None
    for name, value in changes.items():
        setattr(chunk, name, value)
    return chunk
