"""A topic, its packed log, workers on them, and what must come out."""

import asyncio
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from streams.agents.lineage import laid_out, told_of
from streams.core.growth import Life, Log, grown_log_id
from streams.core.identity import log_uuid
from streams.crash_points import CrashAt, never
from streams.engine.fail_stop import FailStop
from streams.engine.log import LogId
from streams.engine.table import PartitionTable
from tests.integration.engine.toy import Worker, settings, unknown_to_the_ledger
from tests.support.waiting import eventually, until

PARTITIONS = 4
Levels = dict[str, tuple[int, int]]


class World:
    """One topic of one test."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.topic = f"usage-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.expected: Levels = {}
        self.facts = 0
        self.produced = 0
        self.partitions = PARTITIONS
        self.growths: list[Log] = []
        """As a person made them known; empty for a topic that never grew."""
        self.exits: list[int] = []
        self._names: set[str] = set()
        self._random = random.Random(7)
        self._workers: list[Worker] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self.create()

    # -- topics ------------------------------------------------------------------------------------

    def create(self, *names: str) -> None:
        self._all(
            self.admin.create_topics(
                [
                    NewTopic(
                        name,
                        self.partitions,
                        1,
                        config={
                            "message.timestamp.type": "LogAppendTime",
                            "max.message.bytes": str(8 << 20),
                        },
                    )
                    for name in names or (self.topic, self.packed)
                ]
            )
        )

    def grow(self, partitions: int) -> None:
        """The topic gets more partitions, then its packed log, and whoever starts now knows how."""
        root = log_uuid(self.topic_id())
        self.growths = self.growths or [Log(root, 0, self.partitions)]
        self._all(
            self.admin.create_partitions(
                [NewPartitions(name, partitions) for name in (self.topic, self.packed)]
            )
        )
        until("the broker shows all partitions", lambda: len(self.ends()) == partitions, 30)
        boundaries = self.ends()[: self.partitions]
        grown = grown_log_id(root, self.partitions, partitions)
        self.growths.append(Log(grown, self.partitions, partitions, tuple(boundaries)))
        self.partitions = partitions

    def topic_id(self) -> str:
        asked = self.admin.describe_topics(TopicCollection([self.topic]))
        return str(asked[self.topic].result().topic_id)

    def ends(self) -> list[int]:
        """Where the partitions of the topic end."""
        found: list[int] = []

        def asked() -> bool:
            partitions = (
                self.admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            )
            places = [TopicPartition(self.topic, number) for number in sorted(partitions)]
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # confluent_kafka leaves it untyped
            answers = self.admin.list_offsets(dict.fromkeys(places, latest))
            try:
                found[:] = [answers[place].result().offset for place in places]
            except KafkaException:  # a new partition has no leader for a moment
                return False
            return True

        until("every partition says where it ends", asked, 30)
        return found

    def delete(self, name: str) -> None:
        self._all(self.admin.delete_topics([name]))
        until(f"{name} is gone", lambda: name not in self.admin.list_topics(timeout=10).topics, 30)

    def remove_records(self, name: str, before: int) -> None:
        """Remove the records below an offset of every partition, as retention does."""
        offsets = [TopicPartition(name, n, before) for n in range(self.partitions)]
        self._all(self.admin.delete_records(offsets))

    @property
    def packed(self) -> str:
        return f"{self.topic}.packed"

    @staticmethod
    def _all(futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result()

    # -- usage -------------------------------------------------------------------------------------

    def produce(self, events: int, *, series: int = 40) -> None:
        """Produce events, one in ten of them a copy of an earlier one."""
        producer = self._producer()
        for _ in range(events):
            n = len(self._names)
            if n and self._random.random() < 0.1:
                n = self._random.randrange(n)
            self._send(producer, f"e{n}", f"s{n % series}", n % 97)
        self._flush(producer)

    def produce_raw(self, series: str, values: list[bytes]) -> None:
        """Produce records as they are; nothing is expected of them."""
        producer = self._producer()
        for value in values:
            producer.produce(self.topic, value, series.encode())
            self.produced += 1
        self._flush(producer)

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )

    def _send(self, producer: Producer, name: str, series: str, quantity: int) -> None:
        producer.produce(self.topic, f"{name} {series} {quantity}".encode(), series.encode())
        self.produced += 1
        if name not in self._names:
            self._names.add(name)
            count, total = self.expected.get(series, (0, 0))
            self.expected[series] = (count + 1, total + quantity)
            self.facts += quantity % 10 == 0

    @staticmethod
    def _flush(producer: Producer) -> None:
        if producer.flush(30):
            raise AssertionError("the broker did not take what the test produced")

    # -- workers in this process -------------------------------------------------------------------

    async def start(
        self,
        name: str,
        *,
        crash_at: CrashAt = never,
        acknowledged: Callable[[LogId], int] = unknown_to_the_ledger,
        **changes: object,
    ) -> Worker:
        lives = (Life(tuple(self.growths)),) if self.growths else ()
        changes = {"partitions": self.partitions} | changes
        worker = Worker(
            settings(self.bootstrap, self.topic, self.directory / name, **changes),
            FailStop(self.exits.append),
            crash_at=crash_at,
            acknowledged=acknowledged,
            layout=partial(laid_out, lives),
            before=lambda log: told_of(lives, log.partition, lambda _: -1),
        )
        self._workers.append(worker)
        worker.packed_log.start()
        worker.feeder.start(asyncio.get_running_loop(), worker.agent.put)
        return worker

    async def stop(self, worker: Worker) -> None:
        self._workers.remove(worker)
        await asyncio.get_running_loop().run_in_executor(None, worker.feeder.drain, 60.0)
        worker.packed_log.close()

    async def serving(self, *workers: Worker) -> None:
        """Wait until the workers share the partitions and have read their state."""

        def shared() -> bool:
            owned = [p for w in workers for p in (*w.feeder.tables, *w.feeder.held)]
            return set(owned) == set(range(self.partitions)) and all(
                w.feeder.serving for w in workers
            )

        await eventually("the workers share the partitions", shared, 40)

    async def settled(self, *workers: Worker, deadline_s: float = 60) -> None:
        """Wait until everything produced is settled by these workers together."""

        def done() -> bool:
            tables = self.tables(*workers)
            applied = sum(table.applied + 1 for table in tables.values())
            return len(tables) == self.partitions and applied >= self.produced

        await eventually(f"{self.produced} records are settled", done, deadline_s)

    @staticmethod
    def tables(*workers: Worker) -> dict[int, PartitionTable]:
        return {p: t for worker in workers for p, t in worker.feeder.tables.items()}

    def expect_exact(self, *workers: Worker) -> None:
        """Nothing lost, nothing counted twice: levels and facts are those of the events."""
        tables = self.tables(*workers)
        assert len(tables) == self.partitions
        levels: Levels = {}
        for table in tables.values():
            for key, value in table.levels():
                # A series of a grown topic has a level in each log that it was in.
                count, total = levels.get(key.decode(), (0, 0))
                count += int.from_bytes(value[:8], "big")
                levels[key.decode()] = count, total + int.from_bytes(value[8:], "big")
        assert levels == self.expected
        assert sum(table.meta.unsent for table in tables.values()) == self.facts

    async def expect_exact_anew(self, *names: str) -> None:
        """The same from a directory kept, and from the packed log alone."""
        for name in (*names, f"cold-{uuid.uuid4().hex[:4]}"):
            worker = await self.start(name)
            await self.settled(worker)
            self.expect_exact(worker)
            await self.stop(worker)
        assert self.exits == []

    # -- workers as processes ----------------------------------------------------------------------

    def spawn(self, name: str, crash: str = "") -> "subprocess.Popen[bytes]":
        arguments = (self.bootstrap, self.topic, str(self.directory / name), crash)
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                (sys.executable, "-m", "tests.integration.engine.toy_worker", *arguments),
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    async def ended(self, process: "subprocess.Popen[bytes]", deadline_s: float = 60) -> int:
        await eventually("the worker ended", lambda: process.poll() is not None, deadline_s)
        return int(process.returncode)

    def committed(self) -> int:
        """How many records the group says are settled."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.topic}.group",
                "log_level": 0,
            }
        )
        offsets = consumer.committed(
            [TopicPartition(self.topic, n) for n in range(self.partitions)], timeout=10
        )
        consumer.close()
        return sum(max(0, offset.offset) for offset in offsets)

    async def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(10)
        for worker in list(self._workers):
            await self.stop(worker)
