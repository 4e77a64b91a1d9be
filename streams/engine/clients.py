"""The engine's Kafka clients, made from its settings."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from streams.engine import kafka_config
from streams.engine.packed_log import PackedLog
from streams.engine.settings import EngineSettings

OnError = Callable[[KafkaError], None]


def group_consumer(settings: EngineSettings, on_error: OnError) -> Consumer:
    """The member of the group; one per worker, used by the feeder's thread."""
    config: dict[str, Any] = {**kafka_config.group_consumer_config(settings)}
    return Consumer(config | {"error_cb": on_error})


def reader(settings: EngineSettings) -> Consumer:
    """A consumer that recovers; never joins the group."""
    return Consumer({**kafka_config.reader_config(settings), "error_cb": _silent})


def admin(settings: EngineSettings) -> AdminClient:
    """The client that asks for topic ids; may be shared by threads."""
    config: dict[str, Any] = {**kafka_config.admin_config(settings)}
    return AdminClient(config | {"error_cb": _silent})


def packed_log(settings: EngineSettings) -> PackedLog:
    """The packed log, with a producer of its own. Call `start` before the first chunk."""
    producer = Producer({**kafka_config.packed_producer_config(settings), "error_cb": _silent})
    return PackedLog(producer, settings.packed_topic, record_bytes_max=settings.packed_bytes_max)


def _silent(error: KafkaError) -> None:
    """The call that fails says so; the feeder counts what its own consumer meets."""
    del error
