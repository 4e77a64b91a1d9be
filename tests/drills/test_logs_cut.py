"""A log is lost or cut: the events topic, or the workers' own changelog.

What a log no longer holds is never taken for usage that was not there. Where the state can be had
from the other log, it is; where records are missing, their partitions wait for a person, and the
commands that the message names bring the rows from the source again.
"""

import shutil
import signal
from typing import Final

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from sandbox.provision import PARTITIONS
from streams import topics
from streams.engine.fail_stop import ExitCode
from tests.drills.asked import assert_none_arrived, assert_nothing_lost, audit, repair
from tests.support import witness
from tests.support.books import Books, assert_exact, await_settled, scattered, write
from tests.support.live import LiveStack, LiveWorker
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 150


def admin(stack: LiveStack) -> AdminClient:
    return AdminClient({"bootstrap.servers": stack.facts["kafka_bootstrap"]})


def ends(stack: LiveStack, topic: str, partitions: int = PARTITIONS) -> list[int]:
    """The offset after the last record of each partition."""
    reader = Consumer({"bootstrap.servers": stack.facts["kafka_bootstrap"], "group.id": "drill"})
    try:
        marks = [reader.get_watermark_offsets(TopicPartition(topic, n)) for n in range(partitions)]
    finally:
        reader.close()
    return [high for _, high in marks]


def cut(stack: LiveStack, topic: str, before: list[int]) -> None:
    """Removes the records below an offset of each partition, as retention does."""
    wanted = [TopicPartition(topic, n, offset) for n, offset in enumerate(before)]
    client = admin(stack)
    for future in client.delete_records(wanted).values():
        future.result(30)
    witness.did(f"{sum(before)} records of {topic} are removed")


def lose_events_topic(stack: LiveStack) -> None:
    """Deletes the events topic, and makes it again as its message says."""
    client = admin(stack)
    client.delete_topics([topics.EVENTS])[topics.EVENTS].result(30)
    witness.did(f"{topics.EVENTS} is deleted")
    until("the broker to be rid of it", lambda: topics.EVENTS not in known_topics(stack), 30)
    applied = stack.tailrace("topics", "apply")
    assert f"created {topics.EVENTS}" in applied.stdout, applied.stdout + applied.stderr


def known_topics(stack: LiveStack) -> set[str]:
    return set(admin(stack).list_topics(timeout=10).topics)


def held(stack: LiveStack, reason: str) -> int:
    """Of how many partitions `tailrace status` says that they wait, and why."""
    said = msgspec.json.decode(stack.tailrace("status", "--json").stdout)
    return sum(reason in held["why"] for held in said["held"])


def adopt_and_repair(stack: LiveStack) -> int:
    """What the message of a log that cannot be read on names; the number of rows sent again."""
    adopted = stack.tailrace("topics", "adopt", "--yes", "--reason", "drill: the log was lost")
    assert adopted.returncode == 0, adopted.stderr
    assert adopted.stdout.startswith(f"adopted: {topics.EVENTS}")
    stack.parts.restart("worker-0")
    rows = repair(stack, "--even-if-healthy")
    again = stack.tailrace("topics", "adopt", "--yes", "--reason", "drill: once more")
    assert again.stdout.startswith("nothing to adopt"), again.stdout + again.stderr
    return rows


def assert_all_made_good(stack: LiveStack, *all_books: Books) -> None:
    for books in all_books:
        await_settled(stack, books)
    assert held(stack, "") == 0
    assert_nothing_lost(stack)
    for books in all_books:
        await_settled(stack, books)
        assert_exact(stack, books)


@pytest.mark.drill(
    name="packed-log-cut",
    about="The workers' own changelog is cut: state is rebuilt from the events",
)
def test_a_cut_changelog_costs_a_reading_of_the_events(own_stack: LiveStack) -> None:
    stack, before, after = own_stack, Books(), Books()
    write(stack, scattered("packed-before", EVENTS, seed=101), before)
    # Small chunks: the log of each partition has more than one record to be cut between.
    worker = stack.start_worker("packed", chunk_records=5)
    await_settled(stack, before)
    worker.stop()
    cut(stack, topics.ADMIT_LOG, [end // 2 for end in ends(stack, topics.ADMIT_LOG)])
    shutil.rmtree(worker.data_dir)
    witness.did("the disk of the worker is lost")
    write(stack, scattered("packed-after", EVENTS, seed=102), after)
    assert_none_arrived(stack, after)

    again = stack.start_worker("packed")
    await_settled(stack, after)
    fell_back = again.said("recovery_from_source")
    witness.did(f"the state of {len(fell_back)} partitions came from the events themselves")
    assert fell_back
    assert repair(stack, "--even-if-healthy") >= len(before.uses)
    assert_all_made_good(stack, before, after)


@pytest.mark.drill(
    name="events-topic-cut",
    about="Events are removed before they were read: their partitions are held, and the loss named",
)
def test_events_removed_before_they_were_read_hold_their_partitions(own_stack: LiveStack) -> None:
    stack, before, missing, after = own_stack, Books(), Books(), Books()
    stack.parts.scale(1)
    write(stack, scattered("cut-before", EVENTS, seed=111), before)
    await_settled(stack, before)
    stack.parts.scale(0)
    settled = ends(stack, topics.EVENTS)
    write(stack, scattered("cut-missing", EVENTS, seed=112), missing)
    until(
        "the usage to be in Kafka",
        lambda: sum(ends(stack, topics.EVENTS)) >= sum(settled) + len(missing.uses),
        60,
    )
    unread = ends(stack, topics.EVENTS)
    cut(stack, topics.EVENTS, unread)
    stack.parts.scale(1)
    write(stack, scattered("cut-after", EVENTS, seed=113), after)

    gaps = sum(old < new for old, new in zip(settled, unread, strict=True))
    until("the gaps to be seen", lambda: held(stack, "LogGap") == gaps, 60)
    assert_none_arrived(stack, missing)
    found = audit(stack)
    assert [finding["kind"] for finding in found["findings"]] == ["held"] * gaps
    assert (found["lost"], found["complete"]) == (0, False)
    witness.seen("partitions are held, and the audit says so", gaps)

    lose_events_topic(stack)
    assert adopt_and_repair(stack) >= len(missing.uses)
    assert_all_made_good(stack, before, missing, after)


def ended_by_name(worker: LiveWorker) -> bool:
    """It was still a member of its group when it met the new topic."""
    code = worker.process.poll()
    assert code in {None, ExitCode.LOG_CHANGED, ExitCode.CONSUMER_FATAL}
    return code is not None


def holds_all(worker: LiveWorker) -> bool:
    """The group had gone on without it, and it was given its partitions anew."""
    refused = [each for each in worker.said("partition_held") if "LogRecreated" in each["reason"]]
    return {each["partition"] for each in refused} == set(range(PARTITIONS))


@pytest.mark.drill(
    name="topic-recreated",
    about="The events topic is made anew: not read before it is adopted; the lost is sent again",
)
def test_an_events_topic_made_anew_is_not_read_before_it_is_adopted(own_stack: LiveStack) -> None:
    stack, before, missing, after = own_stack, Books(), Books(), Books()
    worker = stack.start_worker("recreated")
    write(stack, scattered("anew-before", EVENTS, seed=121), before)
    await_settled(stack, before)
    worker.signal(signal.SIGSTOP)
    settled = sum(ends(stack, topics.EVENTS))
    write(stack, scattered("anew-missing", EVENTS, seed=122), missing)
    until(
        "the usage to be in Kafka",
        lambda: sum(ends(stack, topics.EVENTS)) >= settled + len(missing.uses),
        60,
    )
    lose_events_topic(stack)
    write(stack, scattered("anew-after", EVENTS, seed=123), after)
    worker.signal(signal.SIGCONT)
    until("the worker to notice", lambda: ended_by_name(worker) or holds_all(worker), 60)
    stack.stop_workers()

    stack.parts.scale(1)  # with a disk of its own, so that it knows the log before from Kafka alone
    until("all to be held", lambda: held(stack, "ForeignPackedRecord") == PARTITIONS, 60)
    found = audit(stack)
    assert {finding["kind"] for finding in found["findings"]} == {"held"}
    assert (found["lost"], found["complete"]) == (0, False)
    witness.seen("partitions are held, and the audit says so", PARTITIONS)
    assert_none_arrived(stack, missing)
    assert_none_arrived(stack, after)

    assert adopt_and_repair(stack) >= len(missing.uses)
    assert_all_made_good(stack, before, missing, after)
