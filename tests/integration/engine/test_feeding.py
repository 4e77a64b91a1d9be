"""Chunks from a real broker: exact through restarts, rebalances, pauses and holds."""

import asyncio
import shutil
from pathlib import Path

import pytest

from streams.engine.chunk import Chunk
from streams.engine.errors import (
    ChunkTooLarge,
    DataDirectoryInUse,
    DeliveryFailed,
    PartitionHeld,
    StateDamaged,
)
from streams.engine.fail_stop import ExitCode
from tests.integration.engine.world import PARTITIONS, World
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def test_every_event_counts_once_and_again_after_warm_and_cold_starts(world: World) -> None:
    world.produce(8_000)
    worker = await world.start("one")
    await world.settled(worker)
    world.expect_exact(worker)
    figures = worker.feeder.figures()
    assert [p.state for p in figures.partitions] == ["feeding"] * PARTITIONS
    await eventually(
        "the lag is known",
        lambda: [p.lag for p in worker.feeder.figures().partitions] == [0] * PARTITIONS,
        30,
    )
    await world.stop(worker)
    await world.expect_exact_anew("one")


async def test_partitions_move_between_workers_under_load_and_nothing_is_repeated(
    world: World,
) -> None:
    world.produce(3_000)
    one = await world.start("one", chunk_records_max=200)
    await world.serving(one)
    two = await world.start("two", chunk_records_max=200)
    world.produce(3_000)
    three = await world.start("three", chunk_records_max=200)
    await world.serving(one, two, three)
    world.produce(3_000)
    await world.stop(one)
    await world.serving(two, three)
    world.produce(3_000)
    await world.stop(three)
    await world.settled(two)
    world.expect_exact(two)
    covered: dict[int, set[int]] = {}
    for worker in (one, two, three):
        for partition, first, last, _, _ in worker.agent.chunks:
            offsets = set(range(first, last + 1))
            assert not offsets & covered.setdefault(partition, set())
            covered[partition] |= offsets
    await world.stop(two)
    await world.expect_exact_anew("one", "two", "three")


async def test_a_held_partition_waits_while_the_others_go_on(world: World) -> None:
    worker = await world.start("one")
    await world.serving(worker)
    worker.feeder.hold(1, "the operator wants to look")
    await eventually(
        "it is held", lambda: worker.feeder.held == {1: "the operator wants to look"}, 30
    )
    world.produce(2_000)
    others = [0, 2, 3]
    await eventually(
        "the others are settled",
        lambda: all(worker.feeder.figures().partitions[p].lag == 0 for p in others),
        30,
    )
    assert worker.feeder.tables[1].applied == -1
    worker.feeder.resume(1)
    await world.settled(worker)
    world.expect_exact(worker)


async def test_a_paused_partition_goes_on_where_it_stood(world: World) -> None:
    worker = await world.start("one")
    world.produce(1_000)
    await world.settled(worker)
    worker.feeder.pause(2)
    await eventually("paused", lambda: worker.feeder.figures().partitions[2].state == "paused", 30)
    stood = worker.feeder.tables[2].applied
    world.produce(1_000)
    await eventually("others", lambda: worker.feeder.figures().partitions[0].lag == 0, 30)
    assert worker.feeder.tables[2].applied == stood
    worker.feeder.resume(2)
    await world.settled(worker)
    world.expect_exact(worker)


@pytest.mark.parametrize(
    "error",
    [
        DeliveryFailed("the broker was away"),
        ChunkTooLarge("too large"),
        StateDamaged("a block has a wrong checksum"),
    ],
)
async def test_a_chunk_that_could_not_be_settled_is_read_again_from_a_new_table(
    world: World, error: Exception
) -> None:
    world.produce(4_000)
    worker = await world.start("one")
    failed: list[Chunk] = []

    async def fail_twice(chunk: Chunk) -> None:
        await asyncio.sleep(0)
        if len(failed) < 2:
            failed.append(chunk)
            raise error

    worker.agent.before = fail_twice
    await world.settled(worker)
    world.expect_exact(worker)
    assert all(chunk.table.closed for chunk in failed)
    figures = worker.feeder.figures()
    assert (figures.discarded, figures.recoveries) == (2, PARTITIONS + 2)
    assert not any(single for _, _, _, single, _ in worker.agent.chunks)
    assert world.exits == []


async def test_state_deleted_under_a_running_worker_is_rebuilt_once_it_is_missed(
    world: World,
) -> None:
    world.produce(4_000)
    worker = await world.start("one")
    missed: list[Path] = []

    async def delete_once(chunk: Chunk) -> None:
        await asyncio.sleep(0)
        if not missed and chunk.first > 0:
            missed.append(chunk.table.path)
            shutil.rmtree(chunk.table.path)
            chunk.table.flush()

    worker.agent.before = delete_once
    await world.settled(worker)
    world.produce(1_000)
    await world.settled(worker)
    world.expect_exact(worker)
    assert len(missed) == 1
    assert world.exits == []


async def test_a_chunk_too_large_comes_back_in_halves_until_it_fits(world: World) -> None:
    world.produce(2_000)
    worker = await world.start("one", packed_bytes_max=3_000)
    await world.settled(worker)
    world.expect_exact(worker)
    await world.stop(worker)
    await world.expect_exact_anew()


async def test_a_partition_the_agent_wants_held_keeps_what_it_settled_and_its_table(
    world: World,
) -> None:
    worker = await world.start("one")
    await world.serving(worker)

    async def unknown_rules(chunk: Chunk) -> None:
        await asyncio.sleep(0)
        if chunk.log.partition == 3 and chunk.last > 50:
            raise PartitionHeld("the catalogue is newer than this worker: upgrade it")

    worker.agent.before = unknown_rules
    world.produce(2_000)
    await eventually("it is held", lambda: 3 in worker.feeder.held, 30)
    assert "upgrade it" in worker.feeder.held[3]
    await eventually("its table is open", lambda: 3 in worker.feeder.tables, 30)
    worker.agent.before = None
    worker.feeder.resume(3)
    await world.settled(worker)
    world.expect_exact(worker)
    assert not any(single for _, _, _, single, _ in worker.agent.chunks)


async def test_an_agent_that_raises_ends_the_process_by_name(world: World) -> None:
    world.produce(100)
    worker = await world.start("one")

    async def surprise(chunk: Chunk) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError(chunk.first)

    worker.agent.before = surprise
    await eventually("the process ends", lambda: world.exits == [ExitCode.AGENT_FAILED], 30)


async def test_a_chunk_nobody_answers_for_ends_the_process_at_its_deadline(world: World) -> None:
    world.produce(100)
    worker = await world.start("one", settle_deadline_s=1.0, delivery_timeout_ms=900)
    release = asyncio.Event()

    async def sleep_on(chunk: Chunk) -> None:
        await release.wait()

    worker.agent.before = sleep_on
    await eventually("the process ends", lambda: world.exits == [ExitCode.SETTLE_DEADLINE], 30)
    release.set()


async def test_two_workers_never_share_a_data_directory(world: World) -> None:
    await world.start("one")
    with pytest.raises(DataDirectoryInUse, match="held by process"):
        await world.start("one")


async def test_headers_are_there_on_request(world: World) -> None:
    world.produce(10)
    seen: list[object] = []
    worker = await world.start("one")

    async def look(chunk: Chunk) -> None:
        await asyncio.sleep(0)
        seen.extend(chunk.headers(index) for index in range(len(chunk.records)))

    worker.agent.before = look
    await world.settled(worker)
    assert seen == [[]] * 10


async def test_flipped_bytes_on_disk_are_set_aside_and_rebuilt(world: World) -> None:
    world.produce(6_000)
    worker = await world.start("one")
    await world.settled(worker)
    paths = [table.path for table in worker.feeder.tables.values()]
    for table in worker.feeder.tables.values():
        table.flush()
    await world.stop(worker)
    for path in paths:
        flip(path)
    world.produce(2_000)
    again = await world.start("one")
    await world.settled(again)
    world.expect_exact(again)
    assert list(paths[0].parent.glob("*.corrupt-1"))


def flip(path: Path) -> None:
    for file in path.glob("*.sst"):
        data = bytearray(file.read_bytes())
        for at in range(100, len(data) - 400, 700):
            data[at] ^= 0xFF
        file.write_bytes(bytes(data))
