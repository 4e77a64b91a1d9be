"""Does the source log still continue where the state ends? Asked before anything is read."""

from dataclasses import dataclass

from confluent_kafka import Message

from streams.engine.before import CONTINUE
from streams.engine.errors import AnchorMismatch, LogGap, LogTruncated
from streams.engine.log import LogId, anchor_of
from streams.engine.log_reader import Cancelled, LogReader
from streams.engine.table import PartitionTable


@dataclass(frozen=True, slots=True)
class SourceMarks:
    """Where the source log begins and ends."""

    low: int
    """Offset of its first record."""
    high: int
    """Offset after its last record."""
    first_ms: int | None
    """Log append time of its first record; only asked when the log no longer begins at 0."""
    last_ms: int | None
    """Log append time of its last record; likewise."""


def source_marks(reader: LogReader, log: LogId, cancelled: Cancelled) -> SourceMarks:
    """Ask where the source log begins and ends."""
    low, high = reader.marks(log.topic, log.partition)
    if low in (0, high):
        return SourceMarks(low, high, None, None)
    first = reader.record_at(log.topic, log.partition, low, cancelled)
    last = reader.record_at(log.topic, log.partition, high - 1, cancelled)
    return SourceMarks(low, high, _time_ms(first), _time_ms(last))


def check_position(
    reader: LogReader,
    table: PartitionTable,
    marks: SourceMarks,
    acknowledged: int,
    cancelled: Cancelled,
) -> None:
    """Refuse a log that does not continue the table.

    Raises:
        LogTruncated: it ends before the table, or before what the ledger has.
        LogGap: what comes next was removed.
        AnchorMismatch: another record lies at the applied offset.
    """
    log, applied = table.log, table.applied
    known = max(applied, acknowledged)
    if known >= marks.high:
        raise LogTruncated(
            f"{log}: settled up to offset {known}, but the log ends at {marks.high - 1}: its end "
            f"was lost (unclean leader election, restored broker). It is not read. {CONTINUE}"
        )
    if applied + 1 < marks.low:
        raise LogGap(
            f"{log}: offsets {applied + 1} to {marks.low - 1} were removed before they were "
            f"settled: retention was shorter than the backlog. {CONTINUE}"
        )
    if not table.meta.anchor or applied < marks.low:
        return
    record = reader.record_at(log.topic, log.partition, applied, cancelled)
    found = anchor_of(applied, record.key(), record.value()) if record is not None else b""
    if found != table.meta.anchor:
        raise AnchorMismatch(
            f"{log}: the record at offset {applied} is not the one that was settled there: this "
            f"log has another history (restored or mirrored broker). It is not read. {CONTINUE}"
        )


def _time_ms(record: Message | None) -> int | None:
    return None if record is None else record.timestamp()[1]
