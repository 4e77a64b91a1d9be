"""One worker: the product's service and agents, above a feeder of our own without threads."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, cast

from streams import topics
from streams.agents.admit import Admitter
from streams.agents.attempt_memory import AttemptMemory
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.dead_letters import DeadLetterPump
from streams.agents.facts import FactSender
from streams.agents.holds import Holds
from streams.agents.overdue import OverduePass
from streams.agents.publish import Publisher
from streams.agents.publish_limits import PublishLimits, lent_max
from streams.agents.rejections import Rejections
from streams.app import Parts, Service
from streams.core.instant import HOUR_US
from streams.engine.fail_stop import FailStop
from streams.engine.packed_log import PackedLog
from streams.engine.partitioner import home_of
from streams.settings import Settings
from tests.simulation.broker import Broker, OutputQueue, PackedProducer
from tests.simulation.disk import Disk
from tests.simulation.feeder import Feeder
from tests.simulation.ledger.database import Catalogue, Database, Pool
from tests.simulation.stripe import REQUEST_S, Reports, Sink, Stripe
from tests.simulation.timeline import Process, Timeline

RECORD_BYTES_MAX: Final = 1 << 20
SETTINGS: Final = Settings(
    data_dir="modelled", facts_interval_ms=120_000, catalogue_refresh_s=1_200, publish_lanes=4,
    publish_interval_ms=150_000, publish_lease_s=60, publish_rate_per_s=50, horizon_h=6,
)  # fmt: skip
SWEEP_S: Final = 1_200.0
PUMP_S: Final = 1_800.0


def unhurried(settings: Settings) -> Settings:
    """For days: what happens between two looks happens all the same."""
    return replace(settings, facts_interval_ms=600_000, publish_interval_ms=700_000)


@dataclass(frozen=True, slots=True)
class Outside:
    """Everything that outlives a worker."""

    timeline: Timeline
    broker: Broker
    database: Database
    stripe: Stripe
    rng: Random
    delay_s: Callable[[], float]
    answer_lost: Callable[[], bool]
    died: Callable[["Worker"], None]
    """Told of a worker that ended itself."""
    settings: Settings = SETTINGS


class Clock:
    """A worker's two clocks: the wall's may step, the other counts through suspensions."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.ahead_us = 0
        self._asked = 0

    def now_us(self) -> int:
        return self._timeline.now_us() + self.ahead_us

    def elapsed_s(self) -> float:
        # Never the same twice: what is asked later is later, as with nanoseconds.
        self._asked += 1
        return self._timeline.now_s + self._asked * 1e-9


class Channel:
    """A channel of Faust's."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, *, value: object) -> None:
        self._queue.put_nowait(value)

    def __aiter__(self) -> "Channel":
        return self

    async def __anext__(self) -> Any:
        return await self._queue.get()


class Worker:
    """One process, from start to death."""

    def __init__(self, outside: Outside, name: str, disk: Disk) -> None:
        self.outside, self.name, self.disk = outside, name, disk
        self.process = Process(outside.timeline, name)
        self.clock = Clock(outside.timeline)
        self.ended: int | None = None
        fail_stop = FailStop(self._end)
        self.pool = Pool(outside.database, self.process, outside.delay_s, outside.answer_lost)
        facts, publishing = self.pool.facts(), self.pool.publishing()
        catalogue = Catalogue(outside.database, self.pool)
        self.feeder = Feeder(self, fail_stop)
        settings = outside.settings
        holds = Holds(catalogue, self.clock, name)
        book = CatalogueBook(catalogue, self.clock, settings.horizon_h * HOUR_US)
        outputs = OutputQueue(outside.broker, self.process, outside.delay_s)
        packed_log = PackedLog(
            PackedProducer(outside.broker, outside.delay_s), topics.ADMIT_LOG,
            record_bytes_max=RECORD_BYTES_MAX,
        )  # fmt: skip
        home = home_of(outside.broker.partitions)
        self.facts = FactSender(facts, self.feeder.rebuild)
        pause_s = settings.publish_interval_ms / 1_000
        attempts = AttemptMemory(publishing, disk, self.clock.elapsed_s, pause_s)
        self.publisher = Publisher(
            attempts, Sink(outside.stripe, self.process, outside.database), self.clock,
            PublishLimits(
                name, settings.publish_lanes, settings.publish_lease_s, REQUEST_S,
                settings.publish_rate_per_s,
            ),
            outside.rng.random,
        )  # fmt: skip
        dead = OutputQueue(outside.broker, self.process, outside.delay_s)
        self.parts = Parts(
            book=book,
            admitter=Admitter(book, outputs, packed_log, self.clock, home, holds.note),
            facts=self.facts,
            holds=holds,
            publisher=self.publisher,
            attempts=attempts,
            overdue=cast("Any", _NothingOverdue())
            if outside.database.tables.cycle is None
            else OverduePass(self.pool.carry()),
            dead_letters=DeadLetterPump(publishing, dead),
            rejections=Rejections(
                self.pool.rejections(), Reports(outside.stripe, self.process), self.clock
            ),
            meters=cast("Any", None),
            audits=cast("Any", None),
            feeder=cast("Any", self.feeder),
            resources=(),
        )
        # Without Faust's frame: its channels are ours, and its agents tasks.
        self.service = Service.__new__(Service)
        self.service.settings, self.service.parts = settings, self.parts
        self.service._fail_stop, self.service._clock = fail_stop, self.clock
        self.service._admit_channel = cast("Any", Channel())
        self.service._publish_channel = cast("Any", Channel())

    def start(self) -> None:
        """Starts its loops and agents."""
        service, settings = self.service, self.outside.settings
        self.outside.timeline.note("started", self.name)
        lent = lent_max(settings.publish_lanes, settings.publish_rate_per_s)
        lanes = [service._publish(service._publish_channel) for _ in range(lent)]
        for body in (
            service._guarded(
                "catalogue", lambda: self.parts.book.keep_fresh(settings.catalogue_refresh_s)
            ),
            service._guarded("facts", service._tell),
            service._guarded("publish", service._look),
            service._guarded("dead_letters", self._pump),
            service._guarded("reports", self._sweep),
            service._admit(service._admit_channel),
            *lanes,
            self.feeder.run(),
            self.feeder.commit_notes(),
        ):
            self.process.spawn(body)
        if isinstance(self.parts.overdue, OverduePass):
            watch = self.parts.overdue.keep_looking
            self.process.spawn(
                service._guarded("overdue", lambda: watch(self.parts.book, service._ledger_stands))
            )

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.alive:
            self.process.kill()
            self.disk.let_go()
            self.outside.broker.group.watch(self.process)
            self.outside.timeline.note("killed", self.name)

    def _end(self, code: int) -> None:
        """It ended itself."""
        if not self.process.alive:
            return
        self.ended = code
        self.outside.timeline.note("ended itself", self.name, code)
        self.kill()
        self.outside.died(self)

    async def _sweep(self) -> None:
        await self.parts.rejections.keep_sweeping(
            SWEEP_S, lambda: self.facts.figures.went_back is not None
        )

    async def _pump(self) -> None:
        while True:
            await self.parts.dead_letters.pump()
            await asyncio.sleep(PUMP_S)


class _NothingOverdue:
    """Customers without a billing cycle miss no invoice."""

    checked = True
