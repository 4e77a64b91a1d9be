"""Ledger and topic → rows of each data set, day by day."""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from psycopg.rows import dict_row

from streams.cli.database import Connection, rows, statements
from streams.cli.export_columns import Name, Row
from streams.cli.topic_read import TopicRead
from streams.core.instant import DAY_US, HOUR_US, from_us, to_us

ROWS_AT_ONCE: Final = 10_000
SPOOL_BYTES: Final = 8 << 20
"""Kept of a day in memory before it goes to the spool."""
EARLIER_US: Final = 2 * HOUR_US
"""Usage of an instant is in the log no more than minutes before it; clocks get the rest."""


class Days(NamedTuple):
    """Windows that begin from `from_us` on and before `to_us`."""

    from_us: int
    to_us: int


class Counted(NamedTuple):
    """What the ledger counted of a day."""

    events: int
    digest: int


def day_text(day_us: int) -> str:
    """As it stands in a path."""
    return from_us(day_us).strftime("%Y-%m-%d")


def read_counted(ledger: Connection, days: Days) -> dict[str, Counted]:
    """What each day's accepted events must come to."""
    return {
        day_text(line["day_us"]): Counted(line["events"], int(line["digest"]))
        for line in rows(ledger, "export_counted", days._asdict())
    }


def ledger_days(ledger: Connection, name: Name, days: Days) -> Iterator[tuple[str, Iterator[Row]]]:
    """A data set of the ledger, one day after the other; each has to be used up before the next."""
    query = statements("streams.cli")[f"export_{name.value}"].statement
    with ledger.cursor(name=f"export_{name.value}", row_factory=dict_row) as cursor:
        cursor.itersize = ROWS_AT_ONCE
        cursor.execute(query, days._asdict())
        yield from groupby(map(_readable, cursor), key=_day_of)


def _day_of(row: Row) -> str:
    start_us = int(row["window_start"])
    return day_text(start_us - start_us % DAY_US)


def _readable(row: dict[str, Any]) -> Row:
    if "digest" in row:
        row["digest"] = f"{int(row['digest']):032x}"
    return row


class _Event(msgspec.Struct):
    """What analysts need of the original record."""

    event_id: str
    source: str
    tenant_id: str
    event_key: str
    type: str
    metric: str
    occurred_at: datetime
    received_at: datetime
    content: str
    quantity: str = ""
    delta: str = ""
    attributes: msgspec.Raw = msgspec.Raw(b"{}")


class _Accepted(msgspec.Struct):
    """A record of usage.accepted."""

    source_partition: int
    source_offset: int
    catalogue: int
    window_start: datetime
    window_end: datetime
    units: str
    event: _Event


class _Begins(msgspec.Struct):
    window_start: datetime


class _EventReceived(msgspec.Struct):
    received_at: datetime


class _Received(msgspec.Struct):
    event: _EventReceived


_DECODER: Final = msgspec.json.Decoder(_Accepted)
_RECEIVED: Final = msgspec.json.Decoder(_Received)
_BEGINS: Final = msgspec.json.Decoder(_Begins)


@dataclass(slots=True)
class Spool:
    """Records by day, on disk: a day is sorted in memory, a month need not fit there."""

    folder: Path
    _held: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _bytes: int = 0

    def add(self, day: str, value: bytes) -> None:
        """One record."""
        self._held[day].append(value)
        self._bytes += len(value)
        if self._bytes > SPOOL_BYTES:
            self.flush()

    def flush(self) -> None:
        """What is held goes to disk."""
        for day, values in self._held.items():
            with (self.folder / day).open("ab") as file:
                for value in values:
                    file.write(len(value).to_bytes(4, "big") + value)
        self._held.clear()
        self._bytes = 0

    def days(self) -> list[str]:
        """Days with records, in order."""
        self.flush()
        return sorted(path.name for path in self.folder.iterdir())

    def values(self, day: str) -> Iterator[bytes]:
        """The records of one."""
        with (self.folder / day).open("rb") as file:
            while head := file.read(4):
                yield file.read(int.from_bytes(head, "big"))


def accepted_days(
    topic: TopicRead, days: Days, show: Callable[[int, int], None]
) -> Iterator[tuple[str, Iterator[Row]]]:
    """Accepted events by the day of their window, the first record of each, in their log's order.

    Args:
        topic: usage.accepted.
        days: windows that are wanted.
        show: told how many records of how many are read.

    Raises:
        KafkaException: the log cannot be read.
    """

    def wanted(value: bytes) -> int | None:
        start_us = to_us(_BEGINS.decode(value).window_start)
        return start_us if days.from_us <= start_us < days.to_us else None

    return spooled_days(topic, days.from_us, wanted, show)


def without_erased(
    days: Iterator[tuple[str, Iterator[Row]]], erased: Mapping[str, int]
) -> Iterator[tuple[str, Iterator[Row]]]:
    """The same without attributes of what was received before its tenant was erased.

    Args:
        days: accepted events; Kafka keeps their attributes until they expire there.
        erased: when a tenant was erased last, in microseconds.
    """

    def kept(row: Row) -> Row:
        is_erased = row["received_at"] <= erased.get(row["tenant_id"], -1)
        return {**row, "attributes": "{}"} if is_erased else row

    for day, events in days:
        yield day, map(kept, events)


def spooled_days(
    topic: TopicRead,
    since_us: int,
    wanted: Callable[[bytes], int | None],
    show: Callable[[int, int], None],
) -> Iterator[tuple[str, Iterator[Row]]]:
    """The records since an instant that are wanted, by the day of the instant that `wanted` gives.

    Raises:
        KafkaException: the log cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="tailrace-export-") as folder:
        spool = Spool(Path(folder))
        for value in _values(topic, since_us, show):
            at_us = wanted(value)
            if at_us is not None:
                spool.add(day_text(at_us - at_us % DAY_US), value)
        for day in spool.days():
            yield day, iter(unique(spool.values(day)))


def _values(topic: TopicRead, since_us: int, show: Callable[[int, int], None]) -> Iterator[bytes]:
    ranges = []
    for partition in topic.partitions():
        low, high = topic.marks(partition)
        start = topic.offset_at(partition, (since_us - EARLIER_US) // 1_000, high)
        ranges.append((partition, max(low, start), high))
    total, done = sum(high - start for _, start, high in ranges), 0
    for partition, start, high in ranges:
        with closing(topic.read(partition, start, high)) as batches:
            for batch in batches:
                yield from (message.value() or b"" for message in batch)
                done += len(batch)
                show(done, total)


def received_us(value: bytes) -> int:
    """When the event of a record of usage.accepted was received."""
    return to_us(_RECEIVED.decode(value).event.received_at)


def unique(values: Iterator[bytes]) -> list[Row]:
    """One row an event, of its first record: outputs are produced at least once."""
    first: dict[str, _Accepted] = {}
    for value in values:
        record = _DECODER.decode(value)
        known = first.get(record.event.event_id)
        if known is None or record.source_offset < known.source_offset:
            first[record.event.event_id] = record
    ordered = sorted(first.values(), key=lambda r: (r.source_partition, r.source_offset))
    return [_row(record) for record in ordered]


def _row(record: _Accepted) -> Mapping[str, Any]:
    event = record.event
    return {
        "event_id": event.event_id,
        "source": event.source,
        "tenant_id": event.tenant_id,
        "event_key": event.event_key,
        "type": event.type,
        "metric": event.metric,
        "quantity": event.quantity or event.delta,
        "units": int(record.units),
        "occurred_at": to_us(event.occurred_at),
        "received_at": to_us(event.received_at),
        "window_start": to_us(record.window_start),
        "window_end": to_us(record.window_end),
        "catalogue_version": record.catalogue,
        "source_partition": record.source_partition,
        "source_offset": record.source_offset,
        "content": event.content,
        "attributes": bytes(event.attributes).decode(),
    }
