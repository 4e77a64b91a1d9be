"""Logs that are not the ones settled before: refused by name, never swallowed."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from rocksdict import Cache

from streams.engine.chunk import Chunk
from streams.engine.data_dir import DataDirectory
from streams.engine.fail_stop import ExitCode
from streams.engine.table import open_table
from tests.integration.engine.toy import HOUR_MS, Worker
from tests.integration.engine.world import PARTITIONS, World
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


async def settle_some(world: World, events: int = 1_000) -> None:
    world.produce(events)
    worker = await world.start("one")
    await world.settled(worker)
    await world.stop(worker)


async def held(world: World, name: str, reason: str, partitions: int = PARTITIONS) -> Worker:
    """Start a worker and wait until it holds its partitions for that reason."""
    worker = await world.start(name)
    await eventually(
        f"{partitions} partitions are held", lambda: len(worker.feeder.held) == partitions, 30
    )
    assert all(reason in text for text in worker.feeder.held.values()), worker.feeder.held
    assert world.exits == []
    return worker


def forget(world: World, name: str) -> None:
    shutil.rmtree(world.directory / name / "tables")


async def test_a_topic_recreated_while_nobody_looked_is_not_read(world: World) -> None:
    await settle_some(world)
    world.delete(world.topic)
    world.create(world.topic)
    world.produce(2_000)
    worker = await held(world, "one", "LogRecreated")
    assert worker.agent.chunks == []
    assert worker.feeder.serving


async def test_state_of_another_log_is_given_back_as_it_was(world: World) -> None:
    """Whose it is may go on with it: another ledger's word has no place in it."""
    await settle_some(world)
    worker = await world.start("one")
    await world.serving(worker)
    metas = {p: t.meta for p, t in worker.feeder.tables.items()}
    await world.stop(worker)
    world.delete(world.topic)
    world.create(world.topic)
    world.produce(400)
    other = await world.start("one", acknowledged=lambda _: 10, horizon_ms=HOUR_MS)
    await eventually("all are held", lambda: len(other.feeder.held) == PARTITIONS, 30)
    assert all("TAILRACE_DATA_DIR" in text for text in other.feeder.held.values())
    await world.stop(other)
    for partition, meta in metas.items():
        path = DataDirectory(world.directory / "one").table(world.topic, partition)
        table = open_table(
            path, meta.log, partitions=PARTITIONS, width_ms=meta.width_ms, cache=Cache(1 << 20)
        )
        assert table.meta == meta
        table.close()


async def test_a_recreated_topic_is_refused_from_the_packed_log_alone(world: World) -> None:
    await settle_some(world)
    world.delete(world.topic)
    world.create(world.topic)
    world.produce(2_000)
    worker = await held(world, "new", "ForeignPackedRecord")
    assert worker.agent.chunks == []


async def test_a_topic_recreated_under_a_running_worker_ends_it_before_anything_is_written(
    world: World,
) -> None:
    world.produce(400)
    worker = await world.start("one")
    await world.settled(worker)
    before = {p: t.applied for p, t in worker.feeder.tables.items()}
    caught: list[Chunk] = []
    recreated = asyncio.Event()

    async def recreate(chunk: Chunk) -> None:
        if not caught:
            caught.append(chunk)
            await asyncio.get_running_loop().run_in_executor(None, again)
            recreated.set()

    def again() -> None:
        world.delete(world.topic)
        world.create(world.topic)

    worker.agent.before = recreate
    # The records are fetched from the old log; the question about them is answered too late.
    world.produce(400)
    await asyncio.wait_for(recreated.wait(), 30)
    # What was fetched from the old log may still be settled; the new log must never be.
    world.produce(4_000)
    await eventually("the worker ends", lambda: bool(world.exits), 40)
    assert world.exits[0] in (ExitCode.LOG_CHANGED, ExitCode.CONSUMER_FATAL)
    assert all(t.log.topic_id == caught[0].log.topic_id for t in worker.feeder.tables.values())
    assert all(t.applied <= before[p] + 400 for p, t in worker.feeder.tables.items())


async def test_records_removed_before_they_were_settled_are_a_gap(world: World) -> None:
    await settle_some(world)
    world.produce(3_000)
    world.remove_records(world.topic, 430)
    worker = await held(world, "one", "LogGap")
    assert worker.agent.chunks == []


async def test_records_removed_after_they_were_settled_are_no_matter(world: World) -> None:
    await settle_some(world)
    world.remove_records(world.topic, 150)
    world.produce(500)
    worker = await world.start("one")
    await world.settled(worker)
    world.expect_exact(worker)
    await world.stop(worker)
    await world.expect_exact_anew("one")


async def test_another_record_at_the_applied_offset_is_another_history(world: World) -> None:
    await settle_some(world)
    worker = await world.start("one")
    await world.serving(worker)
    for table in worker.feeder.tables.values():
        table.replace(lambda _: None, msgspec.structs.replace(table.meta, anchor=bytes(16)))
    await world.stop(worker)
    await held(world, "one", "AnchorMismatch")


async def test_a_log_that_ends_before_the_state_was_truncated(world: World) -> None:
    await settle_some(world)
    worker = await world.start("one")
    await world.serving(worker)
    for table in worker.feeder.tables.values():
        table.replace(lambda _: None, msgspec.structs.replace(table.meta, applied=10_000))
    await world.stop(worker)
    await held(world, "one", "LogTruncated")


async def test_a_changed_partition_count_is_refused(world: World) -> None:
    await settle_some(world)
    worker = await world.start("one", partitions=PARTITIONS + 1)
    await eventually("all are held", lambda: len(worker.feeder.held) == PARTITIONS, 30)
    assert all("PartitionCountChanged" in text for text in worker.feeder.held.values())


async def test_a_lost_packed_log_is_replaced_by_the_source(world: World) -> None:
    await settle_some(world, 3_000)
    world.delete(world.packed)
    world.create(world.packed)
    # One worker keeps its own state, another judges the source again.
    await world.expect_exact_anew("one")


async def test_a_gap_in_the_packed_log_falls_back_to_the_source(world: World) -> None:
    world.produce(2_000)
    worker = await world.start("one", chunk_records_max=50)
    await world.settled(worker)
    await world.stop(worker)
    world.remove_records(world.packed, 4)
    forget(world, "one")
    again = await world.start("one")
    await world.settled(again)
    world.expect_exact(again)
    assert min(first for _, first, _, _, _ in again.agent.chunks) == 0


async def test_a_table_the_packed_log_does_not_continue_is_rebuilt(world: World) -> None:
    await settle_some(world)
    worker = await world.start("two", chunk_records_max=50)
    world.produce(2_000)
    await world.settled(worker)
    await world.stop(worker)
    # What lies between the first worker's state and the rest is removed from the packed log.
    world.remove_records(world.packed, 6)
    again = await world.start("one")
    await world.settled(again)
    world.expect_exact(again)


async def test_neither_packed_log_nor_source_reaching_back_is_for_a_person(world: World) -> None:
    await settle_some(world)
    world.remove_records(world.topic, 20)
    world.delete(world.packed)
    world.create(world.packed)
    worker = await held(world, "new", "RecoveryGap")
    assert worker.agent.chunks == []


async def test_garbage_in_the_packed_log_holds_its_partition_alone(world: World) -> None:
    await settle_some(world)
    producer = Producer({"bootstrap.servers": world.bootstrap, "log_level": 0})
    producer.produce(world.packed, b"{}", partition=2)
    producer.produce(world.packed, b"TP\x09anything", partition=3)
    assert producer.flush(10) == 0
    world.produce(1_000)
    worker = await world.start("one")
    await eventually("two are held", lambda: sorted(worker.feeder.held) == [2, 3], 30)
    assert "PackedRecordDamaged" in worker.feeder.held[2]
    assert "UnknownPackedVersion" in worker.feeder.held[3]
    await eventually(
        "the others go on",
        lambda: all(worker.feeder.figures().partitions[p].lag == 0 for p in (0, 1)),
        30,
    )


async def test_topics_that_do_not_exist_are_named(world: World) -> None:
    world.delete(world.packed)
    worker = await world.start("one")
    await eventually("all are held", lambda: len(worker.feeder.held) == PARTITIONS, 40)
    assert all("create the topics" in text for text in worker.feeder.held.values())


async def test_half_a_recovery_is_thrown_away(world: World, tmp_path: Path) -> None:
    await settle_some(world)
    worker = await world.start("one")
    await world.serving(worker)
    for table in worker.feeder.tables.values():
        table.replace(lambda _: None, msgspec.structs.replace(table.meta, complete=False))
    await world.stop(worker)
    await world.expect_exact_anew("one")
