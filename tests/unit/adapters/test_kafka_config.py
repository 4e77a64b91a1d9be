"""Output producers: every option a guarantee rests on, and what becomes of undelivered records.

librdkafka runs for real, against no broker or the one it brings along for tests.
"""

from typing import Any, Final, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.adapters import kafka
from streams.adapters.kafka import OutputProducer, producer_config
from streams.engine.partitioner import home_of
from streams.ports import OutputsDeadError, UndeliveredError

Config = dict[str, str | int | bool]
NOWHERE: Final = "127.0.0.1:1"
ALONE: Final[Config] = {"test.mock.num.brokers": 1, "bootstrap.servers": ""}


def config(**changes: Any) -> Config:
    return producer_config(NOWHERE, 0) | {"log_level": 0} | changes


def test_options_that_guarantees_rest_on_are_given() -> None:
    given = producer_config("broker:9092", linger_ms=5)
    assert given["enable.idempotence"] is True
    assert given["acks"] == "all"
    assert given["partitioner"] == "murmur2_random"
    assert given["linger.ms"] == 5
    assert given["bootstrap.servers"] == "broker:9092"


def test_a_delivery_fails_before_its_chunk_is_given_up() -> None:
    assert isinstance(producer_config(NOWHERE, 5)["message.timeout.ms"], int)
    assert producer_config(NOWHERE, 5)["message.timeout.ms"] < 46_000  # type: ignore[operator]  # a number, as checked


async def test_keys_go_to_the_partition_that_kafkas_own_clients_choose() -> None:
    partitions: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        partitions[message.key() or b""] = message.partition() or 0

    producer = Producer({**config(), **ALONE, "allow.auto.create.topics": True})
    keys = [f"tenant-{n}".encode() for n in range(40)] + [b"hot#0", b"hot#1", "größe".encode()]
    for key in keys:
        producer.produce("usage.accepted", b"v", key, on_delivery=delivered)
    assert producer.flush(20) == 0
    home = home_of(
        len(producer.list_topics("usage.accepted", 10).topics["usage.accepted"].partitions)
    )
    assert partitions == {key: home(key) for key in keys}


async def test_what_was_flushed_is_delivered() -> None:
    outputs = OutputProducer({**config(), **ALONE})
    for number in range(100):
        outputs.produce("usage.accepted", b"acme", str(number).encode())
    await outputs.flush()
    assert len(outputs._producer) == 0


async def test_an_undelivered_record_is_told_once() -> None:
    outputs = OutputProducer(config(**{"message.timeout.ms": 50}))
    outputs.produce("usage.accepted", b"acme", b"1")
    outputs.produce("usage.accepted", b"acme", b"2")
    with pytest.raises(UndeliveredError, match="_MSG_TIMED_OUT"):
        await outputs.flush()
    await outputs.flush()


async def test_a_record_that_is_too_large_is_refused_at_once() -> None:
    outputs = OutputProducer(config())
    with pytest.raises(UndeliveredError, match=r"usage\.accepted: MSG_SIZE_TOO_LARGE"):
        outputs.produce("usage.accepted", b"acme", bytes(9 << 20))
    await outputs.flush()


async def test_a_full_queue_is_waited_for() -> None:
    settings = {**config(**{"queue.buffering.max.messages": 10}), **ALONE}
    outputs = OutputProducer(settings)
    for number in range(100):
        outputs.produce("usage.accepted", b"acme", str(number).encode())
    await outputs.flush()


class FakeProducer:
    """Answers as told; what no broker can be made to say on request."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.delivered = config["on_delivery"]
        self.refuses: KafkaError | None = None
        self.answers: list[KafkaError | None] = []

    def produce(self, *_: object) -> None:
        if self.refuses is not None:
            raise KafkaException(self.refuses)

    def flush(self) -> int:
        for answer in self.answers:
            self.delivered(answer, None)
        self.answers = []
        return 0

    def __len__(self) -> int:
        return len(self.answers)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> tuple[OutputProducer, FakeProducer]:
    monkeypatch.setattr(kafka, "Producer", FakeProducer)
    outputs = OutputProducer(config())
    return outputs, cast("FakeProducer", outputs._producer)


async def test_a_producer_that_is_dead_for_good_has_another_name(
    fake: tuple[OutputProducer, FakeProducer],
) -> None:
    outputs, producer = fake
    timed_out = KafkaError(KafkaError._MSG_TIMED_OUT)
    producer.answers = [None, timed_out, KafkaError(KafkaError._FATAL)]
    with pytest.raises(OutputsDeadError, match="_FATAL"):
        await outputs.flush()
    producer.answers = [KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "gap", True)]
    with pytest.raises(OutputsDeadError, match="gap"):
        await outputs.flush()
    producer.refuses = KafkaError(KafkaError._FATAL)
    with pytest.raises(OutputsDeadError):
        outputs.produce("usage.accepted", b"acme", b"1")
    producer.answers = [None, timed_out]
    with pytest.raises(UndeliveredError):
        await outputs.flush()
