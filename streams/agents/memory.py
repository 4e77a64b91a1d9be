"""What a worker keeps in memory of one partition: its readings, and which the ledger lacks.

The state store holds the same, written before memory changes; so memory is dropped without a
thought whenever a chunk fails or a partition moves.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from streams.core.fact import Series
from streams.core.instant import MINUTE_US
from streams.core.level import Key, Reading, decode_key, decode_reading, encode_key
from streams.engine.errors import TableClosed
from streams.engine.table import PartitionTable

_CLOSED_BY_FLOOR: Final = frozenset({"accepted", "canary"})


class PartitionMemory:
    """The readings of one open partition table."""

    def __init__(self, table: PartitionTable) -> None:
        self.table = table
        self.readings: dict[Key, Reading] = {}
        self.dirty: set[Key] = set()
        self.catalogue_hash = b""
        self._dropped_below_us = -1
        for raw_key, raw_reading in table.levels():
            key, reading = decode_key(raw_key), decode_reading(raw_reading)
            self.readings[key] = reading
            if reading.last_offset > table.acknowledged:
                self.dirty.add(key)

    def settled(self, readings: Mapping[Key, Reading], catalogue_hash: bytes) -> None:
        """Takes over what a settled chunk wrote. Call only after the table has it."""
        self.readings.update(readings)
        self.dirty.update(readings)
        self.catalogue_hash = catalogue_hash

    def acknowledge(self, position: int, told: Iterable[Key], sent: Sequence[bytes]) -> None:
        """The ledger confirmed everything up to `position`: these readings and stored facts.

        A reading that has grown beyond it stays dirty. Only the position is written: what it does
        not cover is told again by whoever opens the table next.

        Raises:
            TableClosed: the partition was handed over meanwhile; nothing is changed.
        """
        self.table.acknowledge(position, sent)
        readings = self.readings
        self.dirty.difference_update(k for k in told if readings[k].last_offset <= position)

    def drop_closed(self, skew_max_us: Callable[[Series], int]) -> int:
        """Forgets readings that nothing can change any more; the number forgotten.

        At or below the floor every first copy of usage goes to review, so none can be accepted
        into a window that ended a skew cutoff before the floor, nor into an accepted cell below it.
        Other cells below it still grow: by that very review, by corrections, by what cannot be
        used. A dropped one would begin again at another birth and the ledger refuse it; they are as
        few as the cases people look at. Canaries are one a minute and no amount, so theirs may go.

        Args:
            skew_max_us: the skew cutoff of the meter version that a series belongs to.

        Raises:
            TableClosed: the partition was handed over meanwhile; nothing is changed.
        """
        floor_us = self.table.floor_us
        if floor_us <= self._dropped_below_us:
            return 0
        closed = [
            key
            for key in self.readings
            if key not in self.dirty
            and (
                key.window_end_us + skew_max_us(key) <= floor_us
                if isinstance(key, Series)
                else key.verdict_class in _CLOSED_BY_FLOOR and key.minute_us + MINUTE_US <= floor_us
            )
        ]
        self.table.drop_levels(encode_key(key) for key in closed)
        for key in closed:
            del self.readings[key]
        self._dropped_below_us = floor_us
        return len(closed)


def memory_of(table: PartitionTable) -> PartitionMemory:
    """The memory of this very table, loaded where there is none yet.

    It hangs on the table, so a table that is discarded takes its memory along.
    """
    if not isinstance(table.memory, PartitionMemory):
        table.memory = PartitionMemory(table)
    return table.memory


def memories_of(tables: Iterable[PartitionTable]) -> list[PartitionMemory]:
    """The memories of the tables that are still open; a partition may move at any moment."""
    memories = []
    for table in tables:
        with contextlib.suppress(TableClosed):
            memories.append(memory_of(table))
    return memories
