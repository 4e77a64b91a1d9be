"""A consumed record, as far as the engine looks at it."""

from streams.core.decided import SourceRecord


class Message:
    """As confluent-kafka hands it out."""

    __slots__ = ("_partition", "_record", "_topic")

    def __init__(self, topic: str, partition: int, record: SourceRecord) -> None:
        self._topic, self._partition, self._record = topic, partition, record

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._record.offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def timestamp(self) -> tuple[int, int]:
        return 2, self._record.timestamp_ms
