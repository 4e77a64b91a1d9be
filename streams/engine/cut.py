"""Fetched messages → the records of the next chunk."""

from collections.abc import Sequence

from confluent_kafka import Message

from streams.engine.log import Record
from streams.engine.table import PartitionTable


def cut(
    messages: Sequence[Message], table: PartitionTable, *, records_max: int, bytes_max: int
) -> tuple[list[Record], int]:
    """The records of the next chunk of one partition, and how many messages they use up.

    What the table has applied already is our own redelivery and is left out. A chunk never spans
    two generations: what is remembered must be the same for each of its records, however the log
    happens to be cut.

    Args:
        messages: fetched records of the partition, in order, not yet handed over.
        table: its state.
        records_max: at most so many.
        bytes_max: at most so many bytes of keys and values, but at least one record.
    """
    records: list[Record] = []
    applied = table.applied
    ends_ms = size = used = 0
    for message in messages:
        offset = message.offset()
        if offset is not None and offset > applied:
            key, value = message.key(), message.value()
            timestamp_ms = message.timestamp()[1]
            size += (len(key) if key else 0) + (len(value) if value else 0)
            if not records:
                ends_ms = table.generation_ends_ms(timestamp_ms)
            elif timestamp_ms >= ends_ms or size > bytes_max or len(records) >= records_max:
                break
            records.append(Record(offset, timestamp_ms, key, value))
        used += 1
    return records, used
