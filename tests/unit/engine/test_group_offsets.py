"""What a commit carries: progress, the mark of who is trying what, and the service's own note."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streams.engine.assigned import Assigned
from streams.engine.fail_stop import FailStop
from streams.engine.group import Group
from streams.engine.group_offsets import Carried, GroupOffsets, carried
from streams.engine.poison import SINGLE_FROM_START, Isolation, Mark


@dataclass
class Consumer:
    """A member that is told what to commit, and asked for it."""

    offsets: dict[int, TopicPartition] = field(default_factory=dict)
    commits: int = 0
    away: bool = False

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        del asynchronous
        self.commits += 1
        self.offsets |= {each.partition: each for each in offsets}

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        del timeout
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return [self.offsets.get(each.partition, each) for each in asked]


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def notes() -> list[str]:
    return ["first"]


@pytest.fixture
def offsets(consumer: Consumer, notes: list[str]) -> GroupOffsets:
    return GroupOffsets(cast("Any", consumer), "usage.events", lambda found: found or notes[-1])


def at(applied: int, mark: Mark | None = None) -> Assigned:
    table = cast("Any", SimpleNamespace(applied=applied))
    return Assigned(0, 100, table=table, isolation=Isolation(mark))


def test_a_note_travels_with_progress_and_alone_but_not_again(
    offsets: GroupOffsets, consumer: Consumer, notes: list[str]
) -> None:
    one = at(7)
    offsets.commit([one], wait=False)
    assert (consumer.offsets[0].offset, consumer.offsets[0].metadata) == (
        8, Carried(note="first").encode(),
    )  # fmt: skip
    offsets.commit([one], wait=False)
    assert consumer.commits == 1
    notes.append("second")
    offsets.commit([one], wait=False)
    assert carried(consumer.offsets[0].metadata).note == "second"
    assert consumer.commits == 2


def test_what_a_partition_carried_when_it_came_is_asked_for_with_every_commit(
    offsets: GroupOffsets, consumer: Consumer
) -> None:
    one, other = at(7), at(7)
    one.found_note, other.partition = "of its former owner", 1
    offsets.commit([one, other], wait=False)
    said = {number: carried(each.metadata).note for number, each in consumer.offsets.items()}
    assert said == {0: "of its former owner", 1: "first"}
    assert offsets.mark(one, None)
    assert carried(consumer.offsets[0].metadata).note == "of its former owner"
    offsets.ask(one)
    assert carried(consumer.offsets[0].metadata).note == "of its former owner"


def test_a_note_leaves_the_mark_of_a_chunk_that_was_not_settled(
    offsets: GroupOffsets, consumer: Consumer, notes: list[str]
) -> None:
    mark = Mark(7, 1, 99)
    one = at(7, mark)
    offsets.commit([one], wait=False)
    notes.append("second")
    assert offsets.mark(one, mark)
    offsets.commit([one], wait=False)
    assert carried(consumer.offsets[0].metadata) == Carried(mark, "second")
    offsets.ask(one)
    assert carried(consumer.offsets[0].metadata) == Carried(mark, "second")


def test_a_note_leaves_the_mark_between_two_records_handed_over_alone(
    offsets: GroupOffsets, consumer: Consumer, notes: list[str]
) -> None:
    mark = Mark(7, SINGLE_FROM_START, 99, trying=8, tries=1)
    one = at(8, mark)
    offsets.commit([one], wait=False)
    assert carried(consumer.offsets[0].metadata) == Carried(mark, "first")
    notes.append("second")
    offsets.commit([one], wait=False)
    assert carried(consumer.offsets[0].metadata) == Carried(mark, "second")
    offsets.ask(one)
    assert carried(consumer.offsets[0].metadata) == Carried(mark, "second")


def test_whoever_starts_reads_the_notes_of_all_partitions(consumer: Consumer) -> None:
    for partition, note in enumerate(("first", "", "second")):
        text = Carried(note=note).encode()
        consumer.offsets[partition] = TopicPartition("usage.events", partition, 1, text)
    consumer.offsets[3] = TopicPartition("usage.events", 3, 1, "somebody else's")
    group = Group(
        cast("Any", consumer), "usage.events", cast("Any", None), FailStop(), records_max=1,
        note=lambda _found: "",
    )  # fmt: skip
    assert group.read_notes(5) == frozenset({"first", "second"})
    consumer.away = True
    assert group.read_notes(5) is None
