"""The packed log of one partition → packed records, in groups worth one write."""

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final

from streams.engine.before import CONTINUE, Before
from streams.engine.errors import ForeignPackedRecord
from streams.engine.log import LogId
from streams.engine.log_reader import Cancelled, LogReader
from streams.engine.packed import PackedRecord, decode
from streams.engine.recovery_needs import Recovery
from streams.engine.settlement import ID_BYTES

_GROUP_ID_BYTES: Final = 50_000 * ID_BYTES
_GROUP_RECORDS: Final = 2_000

Group = tuple[list[PackedRecord], int]
"""Packed records, and the offset of the packed log to go on from."""


class PackedReader:
    """Reads one partition of the packed log."""

    def __init__(
        self, reader: LogReader, needs: Recovery, log: LogId, cancelled: Cancelled, before: Before
    ) -> None:
        self.topic = needs.packed_topic
        self._from_version_1 = needs.rules.from_version_1
        self._before = before
        self._reader = reader
        self._log = log
        self._cancelled = cancelled

    def marks(self) -> tuple[int, int]:
        """First offset, and the one after the last."""
        return self._reader.marks(self.topic, self._log.partition)

    def elsewhere(self) -> Iterator[list[PackedRecord]]:
        """Packed records of earlier logs that lie in other partitions, as memory alone.

        Raises:
            UnknownPackedVersion, PackedRecordDamaged: hold the partition.
            RecoveryCancelled: the partition moved away meanwhile.
            KafkaException: the log cannot be read.
        """
        for partition in self._before.elsewhere(self._log.partition):
            low, high = self._reader.marks(self.topic, partition)
            with closing(self._groups(partition, low, high)) as groups:
                for group, _ in groups:
                    yield group
                    if self._before.covers(partition):
                        break

    def groups(self, start: int, end: int) -> Iterator[Group]:
        """Packed records from `start` up to before `end`; those of earlier logs as memory alone.

        Raises:
            LedgerSilent: there are some of another log, and the ledger must say whether it is one.
            ForeignPackedRecord, UnknownPackedVersion, PackedRecordDamaged: hold the partition.
            RecoveryCancelled: the partition moved away meanwhile.
            KafkaException: the log cannot be read.
        """
        return self._groups(self._log.partition, start, end)

    def _groups(self, partition: int, start: int, end: int) -> Generator[Group, None, None]:
        group: list[PackedRecord] = []
        id_bytes = 0
        at = start
        for batch in self._reader.read(self.topic, partition, start, end, self._cancelled):
            for message in batch:
                at = (message.offset() or 0) + 1
                record = self._kept(decode(message.value() or b"", self._from_version_1), partition)
                if record is None:
                    continue
                group.append(record)
                id_bytes += len(record.ids)
                if len(group) >= _GROUP_RECORDS or id_bytes >= _GROUP_ID_BYTES:
                    yield group, at
                    group, id_bytes = [], 0
        if group:
            yield group, at

    def _kept(self, record: PackedRecord, partition: int) -> PackedRecord | None:
        log = self._log
        if partition != log.partition:
            return self._before.remember(record, log.topic_id)
        if (record.topic_id, record.partition) == (log.topic_id, log.partition):
            return record
        if record.partition == log.partition and self._before.continues(record.topic_id):
            return self._before.remember(record, log.topic_id)
        raise ForeignPackedRecord(
            f"{log}: the packed log {self.topic} holds the state of topic id {record.topic_id}, "
            f"partition {record.partition}: the source was deleted and created again, or two "
            f"services share the packed log. Its records are not read. {CONTINUE}"
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
