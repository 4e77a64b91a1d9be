"""A settlement → one packed record on the broker, with the offset it got.

The producer is the engine's own: one record at a time, its delivery awaited. Deliveries are
reported on a thread of their own, because nothing else polls this producer.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message

from streams.engine.errors import ChunkTooLarge, DeliveryFailed
from streams.engine.packed import encode, pack
from streams.engine.settlement import Settlement
from streams.engine.table import PartitionTable

_POLL_S: Final = 0.25

DeliveryReport = Callable[[KafkaError | None, Message], None]


class RecordProducer(Protocol):
    """The part of confluent-kafka's `Producer` that is used here."""

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        partition: int = -1,
        on_delivery: DeliveryReport | None = None,
    ) -> None:
        """Queue one record."""

    def poll(self, timeout: float = -1) -> int:
        """Run delivery reports."""

    def flush(self, timeout: float = -1) -> int:
        """Wait for what is queued; returns what is still queued."""


class PackedLog:
    """Appends packed records; used by one event loop."""

    def __init__(self, producer: RecordProducer, topic: str, *, record_bytes_max: int) -> None:
        """Use a producer that nothing else uses.

        Args:
            producer: idempotent, `linger.ms` 0, `message.timeout.ms` above a broker restart.
            topic: the packed log; as many partitions as the source topic.
            record_bytes_max: greatest packed record; half of the topic's `max.message.bytes`.
        """
        self._producer = producer
        self._topic = topic
        self._record_bytes_max = record_bytes_max
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._report, name="packed-log", daemon=True)

    def start(self) -> None:
        """Start reporting deliveries."""
        self._thread.start()

    async def append(self, table: PartitionTable, settlement: Settlement) -> None:
        """Write the settlement's packed record and note the offset it got in the settlement.

        Raises:
            SettlementRefused: it cannot be stored, so it must not get into the log either.
            ChunkTooLarge: nothing was written; the feeder tries again with a smaller chunk.
            DeliveryFailed: the broker did not take it in time; it may or may not be in the log,
                and both are right.
        """
        settlement.check()
        record = pack(
            table.log,
            settlement,
            timestamp_ms_max=table.time_after(settlement),
            floor_us=table.floor_us,
            confirmed=table.confirmed,
        )
        value = encode(record)
        if len(value) > self._record_bytes_max:
            raise ChunkTooLarge(
                f"packed record of {settlement.first}..{settlement.last} of {table.log} has "
                f"{len(value)} bytes, {self._record_bytes_max} are allowed"
            )
        settlement.packed_offset = await self._deliver(value, table.log.partition)

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait for what is in flight, then stop the reporting thread."""
        self._producer.flush(timeout_s)
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    async def _deliver(self, value: bytes, partition: int) -> int:
        loop = asyncio.get_running_loop()
        delivered: asyncio.Future[int] = loop.create_future()

        def resolve(error: KafkaError | None, offset: int) -> None:
            if delivered.done():
                return
            if error is None:
                delivered.set_result(offset)
            else:
                delivered.set_exception(self._failed(partition, error))

        def report(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            loop.call_soon_threadsafe(resolve, error, -1 if offset is None else offset)

        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=report)
        except KafkaException as error:
            raise self._failed(partition, error.args[0]) from error
        except BufferError as error:
            raise DeliveryFailed(f"{self._topic}[{partition}]: producer queue full") from error
        return await delivered

    def _failed(self, partition: int, error: KafkaError) -> DeliveryFailed | ChunkTooLarge:
        text = f"{self._topic}[{partition}]: {error.name()}: {error.str()}"
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return ChunkTooLarge(f"{text}: raise max.message.bytes of the topic")
        return DeliveryFailed(text)

    def _report(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(_POLL_S)
