"""The packed log of one partition → packed records, in groups worth one write."""

from collections.abc import Iterator
from typing import Final

from streams.engine.errors import ForeignPackedRecord
from streams.engine.log import LogId
from streams.engine.log_reader import Cancelled, LogReader
from streams.engine.packed import PackedRecord, decode
from streams.engine.settlement import ID_BYTES

_GROUP_ID_BYTES: Final = 20_000 * ID_BYTES
_GROUP_RECORDS: Final = 2_000

Group = tuple[list[PackedRecord], int]
"""Packed records, and the offset of the packed log to go on from."""


class PackedReader:
    """Reads one partition of the packed log."""

    def __init__(self, reader: LogReader, topic: str, log: LogId, cancelled: Cancelled) -> None:
        self.topic = topic
        self._reader = reader
        self._log = log
        self._cancelled = cancelled

    def marks(self) -> tuple[int, int]:
        """First offset, and the one after the last."""
        return self._reader.marks(self.topic, self._log.partition)

    def groups(self, start: int, end: int) -> Iterator[Group]:
        """Packed records from `start` up to before `end`.

        Raises:
            ForeignPackedRecord, UnknownPackedVersion, PackedRecordDamaged: hold the partition.
            RecoveryCancelled: the partition moved away meanwhile.
            KafkaException: the log cannot be read.
        """
        group: list[PackedRecord] = []
        id_bytes = 0
        at = start
        partition = self._log.partition
        for batch in self._reader.read(self.topic, partition, start, end, self._cancelled):
            for message in batch:
                record = decode(message.value() or b"")
                self._check_foreign(record)
                group.append(record)
                id_bytes += len(record.ids)
                at = (message.offset() or 0) + 1
                if len(group) >= _GROUP_RECORDS or id_bytes >= _GROUP_ID_BYTES:
                    yield group, at
                    group, id_bytes = [], 0
        if group:
            yield group, at

    def _check_foreign(self, record: PackedRecord) -> None:
        if (record.topic_id, record.partition) != (self._log.topic_id, self._log.partition):
            raise ForeignPackedRecord(
                f"{self._log}: the packed log {self.topic} holds the state of topic id "
                f"{record.topic_id}, partition {record.partition}: the source was deleted and "
                "created again, or two services share the packed log. Bring the old source back, "
                "or give the new one a packed log of its own"
            )


def continuing(
    applied: int, records: list[PackedRecord]
) -> tuple[list[PackedRecord], list[PackedRecord]]:
    """Records that continue `applied` without a gap, and those that do not yet."""
    ready: list[PackedRecord] = []
    waiting: list[PackedRecord] = []
    for record in sorted(records, key=lambda r: r.first):
        if record.first <= applied + 1:
            ready.append(record)
            applied = max(applied, record.last)
        else:
            waiting.append(record)
    return ready, waiting
