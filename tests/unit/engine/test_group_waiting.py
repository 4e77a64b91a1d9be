"""A partition that waits for another one: tried again now and then, and in nobody's way."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import TopicPartition

from streams.engine.errors import EarlierBehind, RecoveryGap
from streams.engine.fail_stop import FailStop
from streams.engine.group import _RECOVERY_THREADS, Group
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streams.engine.log_reader import Cancelled
    from streams.engine.table import PartitionTable

TOPIC = "usage"
PARENTS = 4
"""Partitions that were there; as many came."""


@dataclass
class Consumer:
    """A member of the group, which does as it is told."""

    paused: set[int] = field(default_factory=set)
    sought: dict[int, int] = field(default_factory=dict)

    def incremental_assign(self, positions: list[TopicPartition]) -> None:
        assert positions

    def pause(self, positions: list[TopicPartition]) -> None:
        self.paused |= {each.partition for each in positions}

    def resume(self, positions: list[TopicPartition]) -> None:
        self.paused -= {each.partition for each in positions}

    def seek(self, position: TopicPartition) -> None:
        self.sought[position.partition] = position.offset

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        del timeout
        return asked

    def commit(self, **_: object) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """Nothing is open."""


class Recoveries:
    """The engine's recovery as far as this goes: a new partition needs the settled state of one."""

    def __init__(self) -> None:
        self.settled: set[int] = set()
        """Partitions whose state is read and written so far that a new one can go on."""
        self.tried: list[int] = []
        self.error: Callable[[int], Exception] = lambda number: EarlierBehind(f"of {number}")

    def __call__(self, partition: int, _cancelled: Cancelled) -> PartitionTable:
        self.tried.append(partition)
        if partition >= PARENTS and partition - PARENTS not in self.settled:
            raise self.error(partition)
        self.settled.add(partition)
        return cast("PartitionTable", SimpleNamespace(applied=7, close=lambda: None))


class Member:
    """A group's member whose rounds are the test's."""

    def __init__(self) -> None:
        self.consumer, self.recoveries = Consumer(), Recoveries()
        self.exits: list[int] = []
        self.group = Group(
            cast("Any", self.consumer), TOPIC, self.recoveries, FailStop(self.exits.append),
            records_max=10, note=lambda found: found,
        )  # fmt: skip

    def given(self, *partitions: int) -> None:
        places = [TopicPartition(TOPIC, number) for number in partitions]
        self.group._on_assign(cast("Any", self.consumer), places)

    def round(self) -> None:
        """Until what was begun has come to its end."""

        def ended() -> bool:
            self.group.take_recovered()
            return self.group.is_ready

        until("recoveries ended", ended)
        self.group.seek_back()


@pytest.fixture
def member() -> Iterator[Member]:
    made = Member()
    yield made
    made.group.close()
    assert made.exits == []


CHILDREN = tuple(range(PARENTS, 2 * PARENTS))


def test_more_of_them_than_threads_let_those_recover_that_they_wait_for(member: Member) -> None:
    assert len(CHILDREN) > _RECOVERY_THREADS
    member.given(*CHILDREN, *range(PARENTS))
    member.round()
    assert set(member.group.tables) == set(range(PARENTS))
    assert set(member.group.held) == set(CHILDREN)
    assert all(text.startswith("EarlierBehind: of ") for text in member.group.held.values())
    member.group.try_waiting()
    member.round()
    assert set(member.group.tables) == set(range(2 * PARENTS))
    assert member.group.held == {}
    assert member.consumer.paused == set()
    assert set(member.consumer.sought.values()) == {8}


def test_in_between_no_thread_waits_and_nothing_is_tried(member: Member) -> None:
    member.given(*CHILDREN)
    member.round()
    tried = list(member.recoveries.tried)
    member.round()
    assert member.recoveries.tried == tried
    assert member.group._executor._work_queue.empty()
    asked = threading.Event()
    for _ in range(_RECOVERY_THREADS):
        member.group._executor.submit(asked.wait)
    asked.set()


def test_it_waits_on_where_the_other_is_still_behind(member: Member) -> None:
    member.given(*CHILDREN)
    member.round()
    for _ in range(3):
        member.group.try_waiting()
        member.round()
        assert set(member.group.held) == set(CHILDREN)
    member.recoveries.settled.add(1)
    member.group.try_waiting()
    member.round()
    assert set(member.group.tables) == {5}


def test_what_is_held_for_a_person_is_not_tried_again(member: Member) -> None:
    member.recoveries.error = lambda number: RecoveryGap(f"of {number}")
    member.given(5)
    member.round()
    member.recoveries.settled.add(1)
    member.group.try_waiting()
    member.round()
    assert member.group.held == {5: "RecoveryGap: of 5"}
    member.group.resume(member.group.assigned[5])
    member.round()
    assert set(member.group.tables) == {5}


def test_a_person_who_holds_or_pauses_it_is_not_overruled(member: Member) -> None:
    member.given(5, 6)
    member.round()
    member.recoveries.settled |= {1, 2}
    held, paused = member.group.assigned[5], member.group.assigned[6]
    member.group.hold(held, "the operator wants to look")
    member.group.pause(paused)
    for _ in range(2):
        member.group.try_waiting()
        member.round()
    assert member.group.held[5] == "the operator wants to look"
    assert paused.paused
    assert member.group.tables == {}
    for assigned in (held, paused):
        member.group.resume(assigned)
    member.round()
    assert set(member.group.tables) == {5, 6}


def test_one_that_is_being_tried_is_not_tried_twice(member: Member) -> None:
    member.given(5)
    member.round()
    member.group.try_waiting()
    member.group.try_waiting()
    member.round()
    assert member.recoveries.tried == [5, 5]
