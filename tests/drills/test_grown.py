"""The topics get more partitions, with a backlog on both sides, and nothing is forgotten."""

import shutil
from typing import Final

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from streams import topics
from tests.drills.asked import assert_none_arrived, assert_nothing_lost, connector_state, repair
from tests.drills.test_logs_cut import admin, ends, held
from tests.support import witness
from tests.support.books import (
    Books,
    assert_exact,
    await_settled,
    record,
    scattered,
    show_pending,
    write,
)
from tests.support.live import LiveStack, LiveWorker
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
EVENTS: Final = 300
COUNT: Final = "24"


@pytest.mark.drill(
    name="partitions-grown",
    about="12 partitions become 24: copies of what was counted before still count nothing",
)
def test_twice_as_many_partitions(own_stack: LiveStack) -> None:
    stack, books, waiting = own_stack, Books(), Books()
    first = stack.start_worker("grown-1", chunk_records=20)
    write(stack, scattered("grown-a", EVENTS, tenants=30, seed=201), books)
    await_settled(stack, books)
    assert first.stop() == 0
    # These wait in Kafka, at home by the old count; nobody reads them before the topic has grown.
    write(stack, scattered("grown-b", EVENTS, tenants=30, seed=202), books)
    flowed(stack)

    assert stack.tailrace("connector", "stop").returncode == 0
    assert connector_state(stack) == "STOPPED"
    # And these in the service's database, as do canaries that name an old partition.
    write(stack, scattered("grown-c", EVENTS, tenants=30, seed=203), waiting)
    grow(stack)

    unaware = stack.start_worker("grown-1")
    until("the worker of before to say why it waits", lambda: said_why(unaware), 60)
    assert_none_arrived(stack, waiting)
    assert unaware.stop() == 0

    one = stack.start_worker("grown-1", partitions=COUNT, chunk_records=20)
    two = stack.start_worker(
        "grown-2", partitions=COUNT, chunk_records=20, crash_at="packed_produced:3"
    )
    applied = stack.tailrace("connector", "apply")
    assert applied.returncode == 0, applied.stderr
    two.await_death()
    two = stack.start_worker("grown-2", partitions=COUNT)
    for each in (books, waiting):
        await_settled(stack, each, 120)
        assert_exact(stack, each)

    for worker in (one, two):
        worker.kill()
        shutil.rmtree(worker.data_dir)
    witness.did("both workers and their disks are lost")
    stack.start_worker("grown-3", partitions=COUNT)
    repeated = repair(stack, "--even-if-healthy")
    assert repeated >= 3 * EVENTS / 2, "every row comes once more, to where its key is at home now"
    assert_nothing_lost(stack)
    for each in (books, waiting):
        await_settled(stack, each, 120)
        assert_exact(stack, each)
    replayed = stack.tailrace("replay", TAILRACE_PARTITIONS=COUNT)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


@pytest.mark.long
@pytest.mark.drill(
    name="partitions-altered",
    about="Another tool alters the topic while rows flow; a copy is written where its key was",
)
def test_a_topic_that_was_altered_by_hand(own_stack: LiveStack) -> None:
    stack, books, last = own_stack, Books(), Books()
    worker = stack.start_worker("altered-1")
    write(stack, scattered("altered-a", EVENTS, tenants=30, seed=211), books)
    await_settled(stack, books)
    client = admin(stack)
    altered = client.create_partitions([NewPartitions(topics.EVENTS, int(COUNT))])
    altered[topics.EVENTS].result(30)
    witness.did(f"{topics.EVENTS} is altered to {COUNT} partitions while the connector runs")
    write(stack, scattered("altered-b", EVENTS, tenants=30, seed=212), books)
    flowed(stack)
    until("the worker to notice", lambda: noticed(worker), 60)
    show_pending(stack, books)
    assert worker.stop() == 0

    assert stack.tailrace("connector", "stop").returncode == 0
    grow(stack)
    assert stack.tailrace("connector", "apply").returncode == 0
    write(stack, scattered("altered-c", EVENTS, tenants=30, seed=213), last)
    stack.start_worker("altered-1", partitions=COUNT)
    for each in (books, last):
        await_settled(stack, each, 120)
        assert_exact(stack, each)

    # Of tenants that only the audit looks at: what is skipped stays a dead letter.
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        for use in scattered("stray", 40, tenants=40, seed=214):
            record(service, use)
    flowed(stack)
    partition, offset = copy_to_its_old_partition(stack)
    until("it to hold its partition", lambda: held(stack, "belongs on another") == 1, 60)
    skip = ("held", "skip", str(partition), str(offset), "--reason", "a drill", "--yes")
    skipped = stack.tailrace(*skip)
    assert skipped.returncode == 0, skipped.stderr
    until("the partition to go on", lambda: held(stack, "") == 0, 60)
    repair(stack, "--even-if-healthy")
    assert_nothing_lost(stack)
    for each in (books, last):
        await_settled(stack, each, 120)
        assert_exact(stack, each)


def copy_to_its_old_partition(stack: LiveStack) -> tuple[int, int]:
    """What a producer would write that has not noticed; partition and offset of the copy."""
    bootstrap = {"bootstrap.servers": stack.facts["kafka_bootstrap"]}
    high = ends(stack, topics.EVENTS, int(COUNT))
    reader = Consumer({**bootstrap, "group.id": "drill"})
    try:
        last = [TopicPartition(topics.EVENTS, n, high[n] - 1) for n in range(12, 24) if high[n]]
        reader.assign(last)
        records = reader.consume(len(last), 30)
    finally:
        reader.close()
    stray = next(r for r in records if (r.key() or b"").startswith(b"stray"))
    partition = stray.partition() or 0
    delivered: list[int | None] = []
    producer = Producer(bootstrap)
    producer.produce(
        topics.EVENTS,
        key=stray.key(),
        value=stray.value(),
        partition=partition - 12,
        on_delivery=lambda _, message: delivered.append(message.offset()),
    )
    producer.flush(30)
    witness.did(f"a record of partition {partition} is written to {partition - 12} as well")
    (offset,) = delivered
    assert offset is not None
    return partition - 12, offset


def flowed(stack: LiveStack) -> None:
    """Everything recorded so far has reached the topic."""
    with psycopg.connect(stack.facts["postgres_dsn"]) as service:
        ((rows,),) = service.execute("SELECT count(*) FROM metering.usage_outbox").fetchall()
    until("rows to flow", lambda: flowed_records(stack) >= rows, 60)


def flowed_records(stack: LiveStack) -> int:
    return sum(
        ends(stack, topics.EVENTS, topics.counts(stack.facts["kafka_bootstrap"])[topics.EVENTS])
    )


def grow(stack: LiveStack) -> None:
    """What an operator types, each once more than needed."""
    command = ("topics", "grow", "--partitions", COUNT, "--reason", "a drill")
    planned = stack.tailrace(*command)
    assert planned.returncode == 2, planned.stdout + planned.stderr
    grown = stack.tailrace(*command, "--yes")
    assert grown.returncode == 0, grown.stderr
    assert f"{topics.EVENTS} from 12 to {COUNT} partitions" in grown.stdout
    again = stack.tailrace(*command, "--yes")
    assert again.stdout.startswith("nothing to grow"), again.stdout + again.stderr
    source = ("source", "grow", "--partitions", COUNT, "--yes")
    assert stack.tailrace(*source).returncode == 0
    assert stack.tailrace(*source).stdout.startswith("nothing to do")


def noticed(worker: LiveWorker) -> bool:
    return any("PartitionCountChanged" in line["reason"] for line in worker.said("partition_held"))


def said_why(worker: LiveWorker) -> bool:
    reasons = [line["reason"] for line in worker.said("partition_held")]
    return any(f"set TAILRACE_PARTITIONS={COUNT} and restart" in reason for reason in reasons)
