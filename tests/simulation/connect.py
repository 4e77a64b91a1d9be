"""Kafka Connect with Debezium: the outbox → the events topic, at least once.

It reads in the order of commits and notes now and then how far it got; killed, it begins again
there and repeats what came after.
"""

import asyncio
from collections.abc import Callable
from random import Random

from streams import topics
from streams.engine.partitioner import home_partition
from tests.simulation.broker import Broker
from tests.simulation.service import Service, wire_of
from tests.simulation.timeline import Process, Timeline

POLL_S_MAX = 60.0


class Connect:
    """One connector's task."""

    def __init__(
        self, timeline: Timeline, service: Service, broker: Broker, rng: Random,
        delay_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._timeline, self._service, self._broker = timeline, service, broker
        self._rng, self._delay_s = rng, delay_s
        self.stored = 0
        """How far the offset topic says it got."""
        self.lag_max = 8
        self.process: Process | None = None
        self.processes: list[Process] = []
        self.stopped = False
        """By a person: nobody else starts it."""

    @property
    def caught_up(self) -> bool:
        return self.process is not None and self._sent == len(self._service.outbox)

    def start(self) -> None:
        if self.stopped or self.process is not None:
            return
        self._sent = self.stored
        self.process = Process(self._timeline, "connect")
        self.processes.append(self.process)
        self.process.spawn(self._run(self.process))

    def kill(self) -> None:
        if self.process is not None:
            if self._sent > self.stored:
                self._timeline.strike("rows sent twice by a lagging offset")
            self._timeline.note("connect killed", self._sent - self.stored)
            self.process.kill()
            self.process = None

    async def _run(self, process: Process) -> None:
        while True:
            if self._sent >= len(self._service.outbox):
                await self._service.written.rung()
                await asyncio.sleep(POLL_S_MAX * self._rng.random())
                continue
            if self._broker.away:
                self._timeline.strike("broker_away")
                await asyncio.sleep(POLL_S_MAX * self._rng.random())
                continue
            await asyncio.sleep(self._delay_s())
            process.check()
            key, value = wire_of(self._service.outbox[self._sent])
            partition = home_partition(key, self._broker.partitions)
            self._broker.append(topics.EVENTS, partition, key, value)
            self._sent += 1
            if self._sent - self.stored >= self._rng.randrange(1, self.lag_max + 1):
                self.stored = self._sent
