"""A topic that gets more partitions under workers: nothing is written for the count of before."""

import asyncio
from typing import Any

import pytest

from streams.engine.chunk import Chunk
from streams.engine.group import _RECOVERY_THREADS, Group
from streams.engine.log_guard import TopicInquiry
from tests.integration.engine.toy import Worker
from tests.integration.engine.world import PARTITIONS, World
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration
GROWN = 2 * PARTITIONS


async def all_held(worker: Worker, reason: str) -> None:
    await eventually(
        "all partitions are held", lambda: set(worker.feeder.held) == set(range(GROWN)), 25
    )
    assert all(reason in text for text in worker.feeder.held.values()), worker.feeder.held


async def test_a_running_worker_holds_every_partition_once_its_topic_has_grown(
    world: World,
) -> None:
    world.produce(2_000)
    worker = await world.start("one", chunk_records_max=50)
    await world.settled(worker)
    world.grow(GROWN)
    settled = [end - 1 for end in world.ends()][:PARTITIONS]
    # Of these some belong to the new partitions, whose state this worker does not have.
    world.produce(2_000)
    await all_held(worker, "PartitionCountChanged")
    said = f"has {GROWN} partitions, {PARTITIONS} are configured"
    assert all(said in text for text in worker.feeder.held.values())
    assert worker.feeder.tables == {}
    await world.stop(worker)

    again = await world.start("one")
    await world.settled(again)
    world.expect_exact(again)
    for partition, last in enumerate(settled):
        firsts = [first for number, first, *_ in again.agent.chunks if number == partition]
        assert min(firsts) == last + 1, "something was settled by the count of before"
    assert world.exits == []


async def test_what_was_fetched_before_it_grew_is_not_settled_by_the_count_of_before(
    world: World,
) -> None:
    worker = await world.start("one", chunk_records_max=50)
    await world.serving(worker)
    grown = asyncio.Event()

    async def grow(_chunk: Chunk) -> None:
        if not grown.is_set():
            grown.set()
            await asyncio.get_running_loop().run_in_executor(None, world.grow, GROWN)
            world.produce(500)

    worker.agent.before = grow
    world.produce(500)
    await asyncio.wait_for(grown.wait(), 30)
    await all_held(worker, "PartitionCountChanged")
    await world.stop(worker)
    await world.expect_exact_anew("one")


async def test_with_the_new_count_everything_counts_once_and_again_from_every_disk(
    world: World,
) -> None:
    world.produce(3_000)
    worker = await world.start("one", chunk_records_max=100)
    await world.settled(worker)
    await world.stop(worker)
    # A backlog by the old count, and one by the new one with copies of all that was before.
    world.produce(1_000)
    world.grow(GROWN)
    world.produce(3_000)
    one = await world.start("one", chunk_records_max=100)
    two = await world.start("two", chunk_records_max=100)
    await world.serving(one, two)
    await world.settled(one, two)
    world.expect_exact(one, two)
    tables = world.tables(one, two)
    assert all(tables[p].meta.partitions == GROWN for p in range(GROWN))
    assert {tables[p].log.topic_id for p in range(PARTITIONS)} == {world.topic_id()}
    assert len({table.log.topic_id for table in tables.values()}) == 2
    assert any(tables[p].applied >= 0 for p in range(PARTITIONS, GROWN))
    for each in (one, two):
        await world.stop(each)
    await world.expect_exact_anew("one", "two")


async def test_a_topic_grows_twice(world: World) -> None:
    for count in (GROWN, 2 * GROWN):
        world.produce(1_500)
        world.grow(count)
    world.produce(1_500)
    worker = await world.start("one", chunk_records_max=100)
    await world.settled(worker)
    world.expect_exact(worker)
    await world.stop(worker)
    await world.expect_exact_anew("one")


async def waiting_first(world: World, patch: pytest.MonkeyPatch) -> Worker:
    """A backlog, and a worker that is given the new partitions before those they wait for."""
    on_assign = Group._on_assign

    def new_ones_first(self: Group, consumer: Any, partitions: list[Any]) -> None:
        on_assign(self, consumer, sorted(partitions, key=lambda p: -p.partition))

    patch.setattr(Group, "_on_assign", new_ones_first)
    world.produce(3_000)
    world.grow(GROWN)
    world.produce(1_000)
    return await world.start("one", chunk_records_max=100)


async def test_more_partitions_wait_than_threads_recover_and_all_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert GROWN - PARTITIONS > _RECOVERY_THREADS
    waited: set[int] = set()
    hold = Group.hold

    def held(self: Group, assigned: Any, reason: str) -> None:
        if "EarlierBehind" in reason:
            waited.add(assigned.partition)
        hold(self, assigned, reason)

    monkeypatch.setattr(Group, "hold", held)
    worker = await waiting_first(world, monkeypatch)
    await world.settled(worker)
    world.expect_exact(worker)
    assert len(waited) > _RECOVERY_THREADS
    assert worker.feeder.held == {}
    await world.stop(worker)
    await world.expect_exact_anew("one")


async def test_a_partition_waits_for_one_that_is_held_and_no_other_waits(world: World) -> None:
    world.produce(3_000)
    world.grow(GROWN)
    world.produce(1_000)
    worker = await world.start("one", chunk_records_max=100)
    worker.feeder.hold(1, "the operator wants to look")
    await eventually("partition 1 is held", lambda: 1 in worker.feeder.held, 30)
    others = set(range(GROWN)) - {1, 5}
    await eventually("the others go on", lambda: others <= set(worker.feeder.tables), 60)
    await eventually("partition 5 waits", lambda: set(worker.feeder.held) == {1, 5}, 30)
    assert "EarlierBehind" in worker.feeder.held[5]
    assert "partition 1 of the log before" in worker.feeder.held[5]
    worker.feeder.resume(1)
    await world.settled(worker)
    world.expect_exact(worker)


# -- rules taken out -------------------------------------------------------------------------------


async def test_a_count_that_is_not_compared_with_each_fetch_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = TopicInquiry.verify

    async def only_the_id(self: TopicInquiry, log: Any, life: Any, question: Any) -> None:
        answer = await asyncio.wrap_future(question)
        await verify(self, log, type(life)(life.topic_id, len(answer.partitions)), question)

    monkeypatch.setattr(TopicInquiry, "verify", only_the_id)
    with pytest.raises(AssertionError):
        await test_what_was_fetched_before_it_grew_is_not_settled_by_the_count_of_before(world)
