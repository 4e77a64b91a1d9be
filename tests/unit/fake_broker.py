"""A broker's topics, partitions and settings, as an `AdminClient` sees and changes them."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic, OffsetSpec


def answered(value: Any = None) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


@dataclass
class Broker:
    """Topics with their partitions and settings, as an `AdminClient` sees and changes them."""

    partitions: dict[str, int] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    replication: dict[str, int] = field(default_factory=dict)
    records: dict[int, list[int]] = field(default_factory=dict)
    """By partition of the events topic: when the log took each of its records."""
    expired: dict[int, int] = field(default_factory=dict)
    """By partition: so many of them are gone."""
    fault: Exception | None = None
    silent: bool = False
    faults: list[KafkaError] = field(default_factory=list)
    """What the next questions for offsets are answered with."""

    def list_topics(self, **_: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        counts = {name: SimpleNamespace(partitions=[0] * n) for name, n in self.partitions.items()}
        return SimpleNamespace(topics=counts)

    def create_topics(self, wanted: list[NewTopic]) -> dict[str, "Future[Any]"]:
        for one in wanted:
            self.partitions[one.topic] = one.num_partitions
            self.configs[one.topic] = dict(one.config or {})
            self.replication[one.topic] = one.replication_factor
        return {one.topic: self._answer() for one in wanted}

    def describe_configs(self, asked: list[ConfigResource]) -> dict[Any, "Future[Any]"]:
        return {
            one: self._answer(
                {k: SimpleNamespace(value=v) for k, v in self.configs[one.name].items()}
            )
            for one in asked
        }

    def incremental_alter_configs(self, asked: list[ConfigResource]) -> dict[Any, "Future[Any]"]:
        for one in asked:
            self.configs[one.name] |= {e.name: str(e.value) for e in one.incremental_configs}
        return {one: self._answer() for one in asked}

    def create_partitions(
        self, wanted: list[NewPartitions], **_: float
    ) -> dict[str, "Future[Any]"]:
        if self.fault is not None:
            return {one.topic: answered(self.fault) for one in wanted}
        self.partitions |= {one.topic: one.new_total_count for one in wanted}
        return {one.topic: self._answer() for one in wanted}

    def list_offsets(
        self, asked: dict[TopicPartition, OffsetSpec], **_: Any
    ) -> dict[TopicPartition, "Future[Any]"]:
        if self.faults:
            fault = KafkaException(self.faults.pop(0))
            return {place: answered(fault) for place in asked}
        return {place: answered(self._found(place, spec)) for place, spec in asked.items()}

    def _found(self, place: TopicPartition, spec: OffsetSpec) -> SimpleNamespace:
        assert place.partition < self.partitions[place.topic]
        times = self.records.get(place.partition, [])
        if spec is OffsetSpec.latest():  # type: ignore[no-untyped-call]  # confluent_kafka leaves it untyped
            return SimpleNamespace(offset=len(times), timestamp=-1)
        there = list(enumerate(times))[self.expired.get(place.partition, 0) :]
        found = next((one for one in there if one[1] >= spec._value), (-1, -1))
        return SimpleNamespace(offset=found[0], timestamp=found[1])

    def _answer(self, value: Any = None) -> "Future[Any]":
        return Future() if self.silent else answered(value)
