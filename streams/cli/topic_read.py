"""A topic's records between two offsets, read by nobody's group: no commits, nothing moves."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from streams.engine.log_reader import LogReader
from streams.kafka_access import client_config
from streams.settings import Settings

_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class TopicRead:
    """One topic, open for reading."""

    name: str
    consumer: Consumer
    reader: LogReader

    def partitions(self) -> list[int]:
        """Their numbers.

        Raises:
            KafkaException: the broker does not answer, or has no such topic.
        """
        found = self.consumer.list_topics(self.name, timeout=_TIMEOUT_S).topics[self.name]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def marks(self, partition: int) -> tuple[int, int]:
        """First offset that is there, and the one after the last."""
        return self.reader.marks(self.name, partition)

    def offset_at(self, partition: int, instant_ms: int, end: int) -> int:
        """The first offset whose record the log took at that instant or later; `end` for none."""
        asked = [TopicPartition(self.name, partition, max(0, instant_ms))]
        (found,) = self.consumer.offsets_for_times(asked, timeout=_TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return end if found.offset < 0 else min(found.offset, end)

    def read(self, partition: int, start: int, end: int) -> Generator[list[Message], None, None]:
        """Records from `start` up to before `end`, in batches. Close it before the next is read.

        Raises:
            KafkaException: the log cannot be read.
        """
        return self.reader.read(self.name, partition, start, end, _never)


def _never() -> bool:
    return False


@contextmanager
def reading(settings: Settings, topic: str, purpose: str) -> Iterator[TopicRead]:
    """The topic, until the end of the block."""
    consumer = Consumer(
        {
            **client_config(settings),
            "client.id": f"tailrace-{purpose}",
            # librdkafka asks for a name; nothing is ever committed under it.
            "group.id": f"tailrace.{purpose}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            # A broker that has nothing new answers at once: the next partition waits for that.
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed",
            "check.crcs": True,
            "log_level": 2,
        }
    )
    try:
        yield TopicRead(topic, consumer, LogReader(consumer))
    finally:
        consumer.close()
