"""Reads parts of a log from given offsets, outside the group."""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streams.engine.errors import RecoveryCancelled

_BATCH: Final = 5_000
# consume() waits its whole timeout unless the batch is full, an end of partition included.
_WAIT_S: Final = 0.05
_TIMEOUT_S: Final = 10.0

Cancelled = Callable[[], bool]


class LogReader:
    """A consumer that is no member of the group; used by one thread."""

    def __init__(self, consumer: Consumer) -> None:
        """Use a consumer with `enable.partition.eof`, `auto.offset.reset=error`, no commits."""
        self._consumer = consumer

    def marks(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset of the log, and the one after its last.

        Raises:
            KafkaException: the broker cannot be asked.
        """
        marks = self._consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=_TIMEOUT_S, cached=False
        )
        # The stub knows no None; librdkafka answers with it on a timeout.
        if marks is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{topic}[{partition}]"))
        low, high = marks
        return low, high

    def read(
        self, topic: str, partition: int, start: int, end: int, cancelled: Cancelled
    ) -> Generator[list[Message], None, None]:
        """Records from `start` up to before `end`, in batches.

        Raises:
            RecoveryCancelled: the partition moved away meanwhile.
            KafkaException: the log cannot be read.
        """
        if start >= end:
            return
        self._consumer.assign([TopicPartition(topic, partition, start)])
        try:
            at = start
            while at < end:
                if cancelled():
                    raise RecoveryCancelled(f"{topic}[{partition}]: moved away while it was read")
                records, at = self._batch(at, end)
                if records:
                    yield records
        finally:
            self._consumer.unassign()

    def record_at(
        self, topic: str, partition: int, offset: int, cancelled: Cancelled
    ) -> Message | None:
        """The record at an offset, None when the log has none there."""
        with closing(self.read(topic, partition, offset, offset + 1, cancelled)) as batches:
            found = next(batches, None)
        return found[0] if found and found[0].offset() == offset else None

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _batch(self, at: int, end: int) -> tuple[list[Message], int]:
        """The next records before `end`, and the offset to go on from."""
        records: list[Message] = []
        for message in self._consumer.consume(min(_BATCH, end - at), _WAIT_S):
            error = message.error()
            offset = message.offset()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                # Offsets at the very end may hold no record, such as a transaction's marker.
                at = max(at, offset or 0)
            elif offset is not None and offset < end:
                records.append(message)
                at = offset + 1
            else:
                at = end
        return records, at
