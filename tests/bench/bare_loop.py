"""The same job as a bare loop on librdkafka: what Python can do with recovery and nothing else.

One fetch, one pass, one RocksDB batch with ids, totals and offsets, one packed changelog record a
partition. No groups that move, no checks whose log it is, no ledger: a ceiling, not a product.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from rocksdict import (
    BlockBasedOptions,
    MemtableFactory,
    Options,
    Rdict,
    SliceTransform,
    WriteBatch,
)

FETCH: Final = 10_000
HOUR_US: Final = 3_600_000_000
SKEW_MAX_US: Final = 24 * HOUR_US
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
Series = tuple[str, str, int]


class Task(msgspec.Struct, frozen=True):
    """What the loop is told on its command line, as JSON."""

    bootstrap: str
    source: str
    outputs: str
    changelog: str
    data: str
    result: str
    ends: list[int]
    scales: dict[str, int]


class Usage(msgspec.Struct, frozen=True, gc=False):
    """The fields that are used, and no others."""

    event_id: str
    tenant_id: str
    metric: str
    quantity: str
    occurred_at: datetime
    received_at: datetime


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """One changelog record: ids that are new and totals as they are now, of one partition."""

    last: int
    ids: bytes
    totals: list[tuple[Series, tuple[int, int]]]


class Result(msgspec.Struct, frozen=True):
    """What the loop says at its end."""

    records: int
    duplicates: int


@dataclass(slots=True)
class Changes:
    """What one fetch changes in one partition."""

    last: int = -1
    ids: list[bytes] = field(default_factory=list)
    touched: dict[Series, tuple[int, int]] = field(default_factory=dict)


class Loop:
    """Reads to the given ends, then writes its result and waits to be ended."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.decode = msgspec.json.Decoder(Usage).decode
        self.pack = msgspec.msgpack.Encoder().encode
        self.totals: dict[Series, tuple[int, int]] = {}
        self.records = self.duplicates = 0
        self.db = Rdict(
            str(Path(task.data)),
            options=_options(hashed=False),
            column_families={"default": _options(hashed=False), "ids": _options(hashed=True)},
        )
        self.ids = self.db.get_column_family("ids")
        self.producer = Producer(
            {
                "bootstrap.servers": task.bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
                "delivery.report.only.error": True,
                "on_delivery": _undelivered,
            }
        )

    def run(self) -> None:
        """The whole job."""
        task = self.task
        consumer = Consumer(
            {
                "bootstrap.servers": task.bootstrap,
                "group.id": "bench-loop",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "queued.max.messages.kbytes": 65_536,
            }
        )
        left = {number: end for number, end in enumerate(task.ends) if end}
        consumer.assign([TopicPartition(task.source, number, 0) for number in left])
        while left:
            messages = consumer.consume(FETCH, 0.1)
            if not messages:
                continue
            changes = self._judge(messages)
            self.producer.flush()
            self._settle(changes)
            for partition, change in changes.items():
                if change.last + 1 >= task.ends[partition]:
                    left.pop(partition, None)
        consumer.close()
        result = msgspec.json.encode(Result(self.records, self.duplicates))
        staged = Path(task.result + ".part")
        staged.write_bytes(result)
        staged.replace(task.result)

    def _judge(self, messages: list[Message]) -> dict[int, Changes]:
        decoded = [(message, self._read(message.value() or b"")) for message in messages]
        names = [read[0] for _, read in decoded if read is not None]
        # A list of keys answers with a list, which the stub does not say.
        found = cast("list[bytes | None]", self.ids.get(list[Any](names)))
        known = {name for name, value in zip(names, found, strict=True) if value is not None}
        changes: dict[int, Changes] = {}
        for message, read in decoded:
            partition, offset = message.partition(), message.offset()
            if partition is None or offset is None:
                raise SystemExit(f"not a record: {message.error()}")
            change = changes.setdefault(partition, Changes())
            change.last = offset
            self.records += 1
            if read is None:
                self._out("dead", message.key(), message.value() or b"")
            elif read[0] in known:
                self.duplicates += 1
            else:
                known.add(read[0])
                change.ids.append(read[0])
                self._take(change, message, read[1], read[2])
        return changes

    def _read(self, value: bytes) -> tuple[bytes, Usage, int] | None:
        try:
            event = self.decode(value)
            units = _units(event.quantity, self.task.scales[event.metric])
            return bytes.fromhex(event.event_id.replace("-", "")), event, units
        except (ValueError, KeyError):
            return None

    def _take(self, change: Changes, message: Message, event: Usage, units: int) -> None:
        occurred_us = (event.occurred_at - EPOCH) // MICROSECOND
        value = message.value() or b""
        if (event.received_at - EPOCH) // MICROSECOND - occurred_us > SKEW_MAX_US:
            self._out("review", message.key(), b'{"reason":"late","event":%b}' % value)
            return
        start_us = occurred_us - occurred_us % HOUR_US
        series = (event.tenant_id, event.metric, start_us)
        count, total = self.totals.get(series, (0, 0))
        self.totals[series] = change.touched[series] = (count + 1, total + units)
        self._out("accepted", message.key(), b'{"window":%d,"event":%b}' % (start_us, value))

    def _out(self, kind: str, key: bytes | None, value: bytes) -> None:
        while True:
            try:
                self.producer.produce(f"{self.task.outputs}.{kind}", value, key)
            except BufferError:
                self.producer.poll(0.05)
            else:
                return

    def _settle(self, changes: dict[int, Changes]) -> None:
        batch = WriteBatch(raw_mode=True)
        family = self.db.get_column_family_handle("ids")
        for partition, change in changes.items():
            packed = Packed(change.last, b"".join(change.ids), list(change.touched.items()))
            self.producer.produce(self.task.changelog, self.pack(packed), partition=partition)
            place = change.last.to_bytes(8, "big")
            for name in change.ids:
                batch.put(name, place, family)
            for series, total in change.touched.items():
                batch.put(b"t" + self.pack(series), self.pack(total))
            batch.put(b"o%d" % partition, place)
        self.producer.flush()
        self.db.write(batch)


def _units(quantity: str, scale: int) -> int:
    whole, _, fraction = quantity.partition(".")
    return int(whole + fraction.ljust(scale, "0"))


def _options(*, hashed: bool) -> Options:
    """Memtable and filter as the product has them, so that only the work around them differs."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_allow_concurrent_memtable_write(False)
    options.set_write_buffer_size(16 << 20)
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)
    options.set_block_based_table_factory(blocks)
    if hashed:
        options.set_prefix_extractor(SliceTransform.create_fixed_prefix(3))
        options.set_memtable_factory(
            MemtableFactory.hash_link_list(50_000)  # type: ignore[call-arg]  # stub lacks it
        )
    return options


def _undelivered(error: object, _message: object) -> None:
    raise SystemExit(f"not delivered: {error}")


def main() -> None:
    """Does the job, then waits until standard input is closed, so that it can be measured."""
    Loop(msgspec.json.decode(sys.argv[1], type=Task)).run()
    sys.stdin.read()


if __name__ == "__main__":
    main()
