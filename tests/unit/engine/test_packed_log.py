"""Packed records on their way to the broker, and what becomes of them there."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.engine.chunk import Chunk, Guards, Record
from streams.engine.errors import ChunkTooLarge, DeliveryFailed, SettlementRefused
from streams.engine.packed import decode
from streams.engine.packed_log import PackedLog
from streams.engine.settle import settle
from streams.engine.table import PartitionTable
from tests.unit.engine.build import settlement


class FakeProducer:
    """Reports deliveries when it is polled, as librdkafka does."""

    def __init__(self, answer: int | KafkaError | Exception) -> None:
        self.answer = answer
        self.sent: list[tuple[str, bytes, int]] = []
        self._report: Callable[[Any, Any], None] | None = None
        self._queued = threading.Event()

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        partition: int = -1,
        on_delivery: Callable[[Any, Any], None] | None = None,
    ) -> None:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.sent.append((topic, value or b"", partition))
        self._report = on_delivery
        self._queued.set()

    def poll(self, timeout: float = -1) -> int:
        if self._queued.wait(timeout) and self._report is not None:
            self._queued.clear()
            failed = isinstance(self.answer, KafkaError)
            message = SimpleNamespace(offset=lambda: None if failed else self.answer)
            self._report(self.answer if failed else None, message)
            return 1
        return 0

    def flush(self, timeout: float = -1) -> int:  # noqa: ARG002  # as the client is called
        return 0


def packed_log(answer: int | KafkaError | Exception, bytes_max: int = 10_000) -> PackedLog:
    log = PackedLog(FakeProducer(answer), "usage.admit-log", record_bytes_max=bytes_max)
    log.start()
    return log


def chunk_of(table: PartitionTable, steps: list[str]) -> Chunk:
    records = [Record(n, 5_000, b"k", b"v") for n in range(4)]
    table.enter(5_000)
    return Chunk(table.log, 0, 3, records, table, guards=Guards(crash_at=steps.append))


async def test_a_chunk_is_settled_in_the_one_order_that_survives_crashes(
    table: PartitionTable,
) -> None:
    steps: list[str] = []
    chunk = chunk_of(table, steps)
    log = packed_log(41)
    batch = settlement(0, 3)
    await settle(chunk, batch, log)
    log.close()
    assert steps == ["packed_produced", "batch_written", "settled"]
    assert (table.applied, batch.packed_offset, chunk.error) == (3, 41, None)
    assert chunk.done.is_set()


async def test_what_is_written_carries_the_life_of_the_log_and_the_floor(
    table: PartitionTable,
) -> None:
    producer = FakeProducer(0)
    log = PackedLog(producer, "usage.admit-log", record_bytes_max=10_000)
    log.start()
    table.enter(5_000)
    await log.append(table, settlement(0, 3))
    log.close()
    topic, value, partition = producer.sent[0]
    record = decode(value, lambda _: b"")
    assert (topic, partition) == ("usage.admit-log", table.log.partition)
    assert (record.topic_id, record.floor_us) == (table.log.topic_id, -1)
    assert record.timestamp_ms_max == 5_000


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (KafkaError(KafkaError._MSG_TIMED_OUT), DeliveryFailed),
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), ChunkTooLarge),
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), ChunkTooLarge),
        (KafkaException(KafkaError(KafkaError._FATAL)), DeliveryFailed),
        (BufferError("queue full"), DeliveryFailed),
    ],
)
async def test_a_record_that_is_not_on_the_broker_settles_nothing(
    table: PartitionTable, answer: KafkaError | Exception, error: type[Exception]
) -> None:
    steps: list[str] = []
    chunk = chunk_of(table, steps)
    log = packed_log(answer)
    with pytest.raises(error):
        await settle(chunk, settlement(0, 3), log)
    log.close()
    assert (table.applied, steps, chunk.done.is_set()) == (-1, [], False)


async def test_a_record_above_the_limit_is_not_even_sent(table: PartitionTable) -> None:
    log = packed_log(0, bytes_max=20)
    table.enter(5_000)
    with pytest.raises(ChunkTooLarge, match="20 are allowed"):
        await log.append(table, settlement(0, 3))
    log.close()


async def test_what_cannot_be_stored_does_not_get_into_the_log(table: PartitionTable) -> None:
    producer = FakeProducer(0)
    log = PackedLog(producer, "usage.admit-log", record_bytes_max=10_000)
    table.enter(5_000)
    with pytest.raises(SettlementRefused, match="anchor"):
        await log.append(table, settlement(0, 3, anchor=b"short"))
    assert producer.sent == []


def test_a_chunk_called_settled_too_early_is_a_failed_one(table: PartitionTable) -> None:
    chunk = chunk_of(table, [])
    chunk.settled()
    assert "settle the table first" in str(chunk.error)


def test_the_first_outcome_of_a_chunk_counts(table: PartitionTable) -> None:
    chunk = chunk_of(table, [])
    first = ValueError("first")
    chunk.failed(first)
    chunk.failed(ValueError("second"))
    chunk.settled()
    assert chunk.error is first


def test_the_anchor_names_the_last_record_and_nothing_else(table: PartitionTable) -> None:
    chunk = chunk_of(table, [])
    other = Chunk(table.log, 0, 3, [Record(3, 9, b"k", b"v")], table)
    moved = Chunk(table.log, 0, 4, [Record(4, 9, b"k", b"v")], table)
    changed = Chunk(table.log, 0, 3, [Record(3, 9, b"k", None)], table)
    assert chunk.anchor == other.anchor
    assert len({chunk.anchor, moved.anchor, changed.anchor}) == 3
