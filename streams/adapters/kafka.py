"""Kafka producers: output records and dead letters, delivered or an error."""

import asyncio
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.ports import OutputsDeadError, UndeliveredError

_QUEUE_PAUSE_S: Final = 0.05


def producer_config(
    bootstrap: str, linger_ms: int, security: Mapping[str, str] | None = None
) -> dict[str, str | int | bool]:
    """Every option that a guarantee rests on, none left to a default.

    The partitioner is Kafka's own murmur2: with librdkafka's default most keys would land on other
    partitions than those of Connect's producer.
    """
    return {
        **(security or {}),
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": linger_ms,
        "message.timeout.ms": 45_000,  # above a broker's restart, below the settle deadline
        "message.max.bytes": 8 << 20,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 262_144,
        # From 3 on a dead broker is told many times a second; the feeder's own line names it.
        "log_level": 2,
    }


class OutputProducer:
    """The output topics behind one idempotent producer.

    For one user alone: `flush` tells whoever calls it of every failure since the last call, so a
    second user would be told of the first one's and the first of none.
    """

    def __init__(self, config: Mapping[str, str | int | bool]) -> None:
        self._errors: list[KafkaError] = []
        self._producer = Producer(
            {**config, "delivery.report.only.error": True, "on_delivery": self._delivered}
        )

    def produce(self, topic: str, key: bytes | None, value: bytes) -> None:
        """Hands a record to the producer's queue; waits for room when the queue is full.

        Raises:
            UndeliveredError: the record is refused at once (too large, unknown topic).
            OutputsDeadError: the producer is dead for good.
        """
        while True:
            try:
                self._producer.produce(topic, value, key)
            except BufferError:
                self._producer.poll(_QUEUE_PAUSE_S)
            except KafkaException as error:
                raise _fault(topic, error.args[0]) from error
            else:
                return

    async def flush(self) -> None:
        """Waits, off the event loop, until every record was taken.

        Raises:
            UndeliveredError: at least one was not; its record is still only in the source topic.
            OutputsDeadError: the same, and the producer is dead for good.
        """
        if len(self._producer):
            await asyncio.get_running_loop().run_in_executor(None, self._producer.flush)
        if self._errors:
            errors, self._errors = self._errors, []
            worst = next((error for error in errors if _is_fatal(error)), errors[0])
            raise _fault("output record not delivered", worst)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._errors.append(error)


def _fault(what: str, error: KafkaError) -> UndeliveredError | OutputsDeadError:
    message = f"{what}: {error.name()}: {error.str()}"
    return OutputsDeadError(message) if _is_fatal(error) else UndeliveredError(message)


def _is_fatal(error: KafkaError) -> bool:
    # A producer that is dead already answers with the code alone, without the mark.
    return error.fatal() or error.code() == KafkaError._FATAL
