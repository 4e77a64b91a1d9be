"""Applied offsets → the group's offsets, with marks and notes as their metadata.

Positions are never read from here: the state has its own. The group's offsets show lag, carry the
marks of the poison rule and a note that the service wants remembered when every disk is lost, and
their commit is the one question that tells whether a member still counts.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from streams.engine.assigned import Assigned
from streams.engine.kafka_faults import error_of, text_of
from streams.engine.poison import Mark

log = structlog.get_logger("engine")

Note = Callable[[str], str]
"""What the service wants noted now, given what a partition carried when it came; on any thread.

The owner before may have noted what this service has not heard of: it decides what stays.
"""


class Notes(NamedTuple):
    """What workers noted with any partition; one value, so that no thread sees half of it."""

    texts: frozenset[str]
    read_s: float
    """When they were asked for, by the feeder's clock."""


class Carried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What travels with a partition as metadata of the group's offset."""

    mark: Mark | None = None
    """Who is trying what."""
    note: str = ""
    """The service's own; it means nothing to the engine."""

    def encode(self) -> str:
        """Text for the offset's metadata."""
        return msgspec.json.encode(self).decode()


def carried(metadata: str | None) -> Carried:
    """Read what travelled; nothing for anything else."""
    try:
        return msgspec.json.decode(metadata or "{}", type=Carried)
    except msgspec.DecodeError:
        return Carried()


class GroupOffsets:
    """Commits of one topic. `ask` may be called from any thread."""

    def __init__(self, consumer: Consumer, topic: str, note: Note) -> None:
        """Args: the member, its topic, and what the service wants noted now."""
        self._consumer = consumer
        self._topic = topic
        self._note = note

    def commit(self, assigned: Iterable[Assigned], *, wait: bool) -> None:
        """Tell the group how far partitions are; for lag displays and marks, not for positions."""
        offsets = []
        for one in assigned:
            if one.table is None:
                continue
            applied, note = one.table.applied, self._note(one.found_note)
            moved = applied > max(one.committed, -1)
            if not moved and note == one.noted:
                continue
            mark = one.isolation.after(applied) if moved else one.isolation.at(applied)
            one.committed, one.noted = applied, note
            text = Carried(mark, note).encode()
            offsets.append(TopicPartition(self._topic, one.partition, applied + 1, text))
        if not offsets:
            return
        try:
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as exception:
            log.warning("commit_failed", error=text_of(error_of(exception)))

    def mark(self, assigned: Assigned, mark: Mark | None) -> bool:
        """Write a mark durably; whether the group took it."""
        applied = assigned.table.applied if assigned.table is not None else None
        if applied is None:
            return True
        text = Carried(mark, self._note(assigned.found_note)).encode()
        offset = TopicPartition(self._topic, assigned.partition, applied + 1, text)
        try:
            self._consumer.commit(offsets=[offset], asynchronous=False)
        except KafkaException as exception:
            log.warning("mark_refused", error=text_of(error_of(exception)))
            return False
        assigned.committed = applied
        return True

    def ask(self, assigned: Assigned) -> None:
        """Commit again what is committed already, only to hear whether we still may.

        Raises:
            KafkaException: the group's answer.
        """
        if assigned.table is None:
            return
        applied = assigned.table.applied
        text = Carried(assigned.isolation.at(applied), self._note(assigned.found_note)).encode()
        offset = TopicPartition(self._topic, assigned.partition, applied + 1, text)
        self._consumer.commit(offsets=[offset], asynchronous=False)
