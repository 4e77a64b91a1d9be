"""Applied offsets → the group's offsets, with the marks of the poison rule as their metadata.

Positions are never read from here: the state has its own. The group's offsets show lag and carry
marks, and their commit is the one question that tells whether a member still counts.
"""

from collections.abc import Iterable

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from streams.engine.assigned import Assigned
from streams.engine.kafka_faults import error_of, text_of
from streams.engine.poison import Mark

log = structlog.get_logger("engine")


class GroupOffsets:
    """Commits of one topic. `ask` may be called from any thread."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def commit(self, assigned: Iterable[Assigned], *, wait: bool) -> None:
        """Tell the group how far partitions are; for lag displays and marks, not for positions."""
        offsets = []
        for one in assigned:
            if one.table is None or one.table.applied <= max(one.committed, -1):
                continue
            one.committed = applied = one.table.applied
            carried = one.isolation.metadata(applied)
            offsets.append(TopicPartition(self._topic, one.partition, applied + 1, carried))
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
        text = mark.encode() if mark is not None else ""
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
        mark = assigned.isolation.mark
        text = mark.encode() if mark is not None and mark.applied == applied else ""
        offset = TopicPartition(self._topic, assigned.partition, applied + 1, text)
        self._consumer.commit(offsets=[offset], asynchronous=False)
