"""Kafka: logs in lists, readers, producers, and a group whose members may just be gone."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition

from streams import topics
from streams.engine.log import Record
from streams.ports import UndeliveredError
from tests.simulation.timeline import Process, Timeline
from tests.simulation.turns import Bell
from tests.support.consumed import Message

TOPIC_ID: Final = "0Iw2YxKPTZqz4yIYwHZ/Gw"
SESSION_S: Final = 10.0
Keyed = tuple[bytes | None, bytes]


class Broker:
    """The logs, and who owns which partition."""

    def __init__(self, timeline: Timeline, partitions: int) -> None:
        self.timeline = timeline
        self.partitions = partitions
        self.logs: dict[str, list[list[Record]]] = {
            topic: [[] for _ in range(partitions)] for topic in (topics.EVENTS, topics.ADMIT_LOG)
        }
        self.grew_at: list[tuple[int, ...]] = []
        """Of each growth the ends of the partitions there were."""
        self.begins: dict[tuple[str, int], int] = {}
        """Where logs begin of which the beginning is gone; nobody but the oracle reads before."""
        self.outputs: dict[str, list[Keyed]] = {}
        self.group = Membership(self)
        self.away = False
        self.version = 0
        """Goes up with everything that somebody may wait for."""
        self._news = Bell(timeline)

    def append(self, topic: str, partition: int, key: bytes | None, value: bytes) -> int:
        """Puts a record at the end of a log; its offset."""
        log = self.logs[topic][partition]
        log.append(Record(len(log), self.timeline.now_us() // 1_000, key, value))
        self.timeline.note("append", topic, partition, len(log) - 1)
        if topic == topics.EVENTS:
            self.wake()
        return len(log) - 1

    def grow(self, partitions: int) -> None:
        """More partitions, as an operator orders them."""
        self.grew_at.append(tuple(len(log) for log in self.logs[topics.EVENTS]))
        for logs in self.logs.values():
            logs.extend([] for _ in range(partitions - self.partitions))
        self.timeline.note("grown", self.partitions, partitions)
        self.partitions = partitions
        self.wake()

    def cut(self, topic: str, partition: int, begin: int) -> None:
        """Everything before an offset is gone."""
        at = topic, partition
        self.begins[at] = max(begin, self.begins.get(at, 0))
        self.timeline.note("cut", topic, partition, self.begins[at])

    def wake(self) -> None:
        """Tells those who wait for something new that there is."""
        self.version += 1
        self._news.ring()

    async def news(self, seen: int) -> None:
        """Until there is something to read or to own that was not there at that version."""
        if seen == self.version:
            await self._news.rung()

    def describe_topics(self, topics: TopicCollection, **_: Any) -> dict[str, "Future[Any]"]:
        """As the admin client does."""
        answers: dict[str, Future[Any]] = {}
        for name in topics.topic_names:
            answers[name] = Future()
            life = SimpleNamespace(topic_id=TOPIC_ID, partitions=[None] * self.partitions)
            answers[name].set_result(life)
        return answers


class Reader:
    """The reading half of a consumer that is no member of the group."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: list[Message] = []

    def get_watermark_offsets(self, at: TopicPartition, **_: Any) -> tuple[int, int]:
        begin = self._broker.begins.get((at.topic, at.partition), 0)
        return begin, len(self._broker.logs[at.topic][at.partition])

    def assign(self, places: Sequence[TopicPartition]) -> None:
        at = places[0]
        if at.offset < self._broker.begins.get((at.topic, at.partition), 0):
            raise KafkaException(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))
        log = self._broker.logs[at.topic][at.partition]
        self._waiting = [Message(at.topic, at.partition, r) for r in log[at.offset :]]

    def unassign(self) -> None:
        self._waiting = []

    def consume(self, limit: int, _timeout_s: float) -> list[Message]:
        taken, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return taken

    def close(self) -> None:
        self._waiting = []


class Membership:
    """A consumer group with cooperative rebalancing: who is silent for a session is out of it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.members: list[Process] = []
        self.holders: dict[int, Process] = {}
        self.notes: dict[int, str] = {}
        """What was committed beside the offsets, by partition."""

    def join(self, process: Process) -> None:
        """Becomes a member; does nothing for one that is."""
        if process not in self.members:
            self.members.append(process)
            self._broker.wake()

    def leave(self, process: Process) -> None:
        """Is no member any more, whether it knows or not; what it held is free."""
        if process in self.members:
            self.members.remove(process)
        self.holders = {p: held for p, held in self.holders.items() if held is not process}
        self._broker.wake()

    def watch(self, process: Process) -> None:
        """It may have fallen silent: a session from now it is out, unless it is heard again."""

        def judge() -> None:
            silent_s = self._broker.timeline.now_s - process.stopped_at_s
            stopped = process.state == "stopped" and silent_s >= SESSION_S
            if (stopped or process.state == "dead") and process in self.members:
                if stopped and process in self.holders.values():
                    self._broker.timeline.strike("partition taken from a sleeper")
                self._broker.timeline.note("evicted", process.name)
                self.leave(process)

        self._broker.timeline.outside(SESSION_S + 0.001, judge)

    def share(self, process: Process) -> list[int]:
        """The partitions that are to be a member's."""
        number = self.members.index(process)
        return [p for p in range(self._broker.partitions) if p % len(self.members) == number]

    def take(self, process: Process, partition: int) -> bool:
        """Owns a partition, if its last owner has let go of it."""
        return self.holders.setdefault(partition, process) is process

    def give(self, process: Process, partition: int) -> None:
        """Lets go of a partition."""
        if self.holders.get(partition) is process:
            del self.holders[partition]
            self._broker.wake()

    def commit(self, process: Process) -> None:
        """A synchronous commit, which only a member may make.

        Raises:
            KafkaException: the group has gone on without it.
        """
        if process not in self.members:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))


class PackedProducer:
    """The packed log's producer: delivered in a moment, whether its process lives then or not."""

    def __init__(self, broker: Broker, delay_s: Callable[[], float]) -> None:
        self._broker, self._delay_s = broker, delay_s

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        partition: int = -1,
        on_delivery: Callable[[Any, Any], None] | None = None,
    ) -> None:
        timeline = self._broker.timeline

        def deliver() -> None:
            if self._broker.away:
                timeline.strike("broker_away")
                timeline.outside(1.0, deliver)
                return
            offset = self._broker.append(topic, partition, None, value or b"")
            if on_delivery is not None:
                on_delivery(None, SimpleNamespace(offset=lambda: offset))

        timeline.outside(self._delay_s(), deliver)

    def poll(self, timeout: float = -1) -> int:
        del timeout
        return 0

    def flush(self, timeout: float = -1) -> int:
        del timeout
        return 0


class OutputQueue:
    """A producer's queue, which dies with its process, before the output topics."""

    def __init__(self, broker: Broker, process: Process, delay_s: Callable[[], float]) -> None:
        self._broker, self._process, self._delay_s = broker, process, delay_s
        self._queue: list[tuple[str, Keyed]] = []

    def produce(self, topic: str, key: bytes | None, value: bytes) -> None:
        self._process.check()
        self._queue.append((topic, (key, value)))

    async def flush(self) -> None:
        queue, self._queue = self._queue, []
        if not queue:
            return
        await asyncio.sleep(self._delay_s())
        self._process.check()
        if self._broker.away:
            self._broker.timeline.strike("broker_away")
            message = "no broker took it in time"
            raise UndeliveredError(message)
        for topic, keyed in queue:
            self._broker.outputs.setdefault(topic, []).append(keyed)
