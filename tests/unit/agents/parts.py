"""A service whose parts are recorded instead of made."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from streams.agents.admit import AdmitFigures
from streams.agents.audit_watch import AuditWatch
from streams.agents.bell import Bell
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.facts import FactFigures
from streams.agents.holds import Holds
from streams.agents.overdue import OverdueFigures
from streams.agents.publish import Lent, PublishFigures
from streams.agents.rejections import RejectionFigures
from streams.app import Parts, Resource, Service
from streams.core.retry import Breaker
from streams.engine.chunk import Chunk
from streams.engine.fail_stop import FailStop
from streams.engine.group_offsets import Notes
from streams.engine.table import PartitionTable
from streams.ports import AuditNote
from streams.settings import Settings, load
from tests.unit.agents.outside import Clock, Ledger

SETTINGS: Final = load(
    {
        "TAILRACE_KAFKA_BOOTSTRAP": "127.0.0.1:1",
        "TAILRACE_LEDGER_DSN": "postgresql://nobody@127.0.0.1:1/ledger",
        "TAILRACE_DATA_DIR": tempfile.mkdtemp(prefix="tailrace-parts-"),
        "TAILRACE_STRIPE_API_KEY": "rk_test_x",
        "TAILRACE_FACTS_INTERVAL_MS": "50",
        "TAILRACE_PUBLISH_INTERVAL_MS": "20",
    }
)


class StoppedError(Exception):
    """Ends a loop that would run for ever."""


@dataclass
class Feeder:
    """What the service asks of the engine."""

    tables: dict[int, PartitionTable] = field(default_factory=dict)
    held: dict[int, str] = field(default_factory=dict)
    serving: bool = True
    broker_errors_since: str | None = None
    notes: Notes | None = None
    resumed: list[int] = field(default_factory=list)
    put: Callable[[Chunk], Awaitable[None]] | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: list[str] = field(default_factory=list)

    def resume(self, partition: int) -> None:
        self.resumed.append(partition)

    def start(self, _loop: object, put: Callable[[Chunk], Awaitable[None]]) -> None:
        self.put = put
        self.started.set()

    def drain(self) -> None:
        self.ended.append("drained")


class Admitter:
    def __init__(self) -> None:
        self.figures = AdmitFigures()
        self.entries = Bell(lambda: 0.0)
        self.error: BaseException | None = None
        self.taken: list[object] = []
        self.asked = asyncio.Event()

    async def admit(self, chunk: object) -> None:
        self.taken.append(chunk)
        self.asked.set()
        if self.error is not None:
            raise self.error


class Publisher:
    def __init__(self) -> None:
        self.figures = PublishFigures()
        self.breaker = Breaker()
        self.looks = self.rests = self.wakes = 0
        self.error: Exception | None = None
        self.lent: list[object] = []
        self.asked = asyncio.Event()
        self.ended: list[str] | None = None

    async def drain(self) -> None:
        if self.ended is not None:
            self.ended.append("lanes given back")

    async def look(self, put: Callable[[Lent], Awaitable[object]]) -> int:
        self.looks += 1
        if self.looks == 1:
            await put(cast("Lent", "a lane"))
            return 1
        return 0

    def wake(self) -> None:
        self.wakes += 1

    async def rest(self, pause_s: float) -> None:
        self.rests += 1
        await asyncio.sleep(pause_s)

    async def publish(self, lent: object) -> None:
        self.lent.append(lent)
        self.asked.set()
        if self.error is not None:
            raise self.error


class Sender:
    def __init__(self) -> None:
        self.figures = FactFigures()
        self.sent = 0
        self.events: int | None = 0
        """Told in each round."""
        self.asked = asyncio.Event()

    async def send(self, _memories: object) -> int | None:
        self.sent += 1
        self.asked.set()
        return self.events

    async def check(self, _memories: object) -> bool:
        return self.figures.went_back is None


class Pump:
    async def pump(self) -> None:
        """Nothing is dead."""


class Sweeper:
    def __init__(self) -> None:
        self.figures = RejectionFigures()
        self.asked: list[float] = []

    async def keep_sweeping(self, pause_s: float, _went_back: Callable[[], bool]) -> None:
        self.asked.append(pause_s)


class Audits:
    async def last_audits(self) -> list[AuditNote]:
        return [AuditNote("shop", 1_000_000, 0, 0, 0)]


class Meters:
    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def keep_looking(self) -> None:
        self.asked.set()


class Attempts:
    """What the worker remembers of the ledger's attempts."""

    def __init__(self) -> None:
        self.there = True
        self.went_back: str | None = None
        self.learnt: list[str] = []
        self.in_touch = True

    def catch_up(self, others: Feeder) -> bool:
        self.learnt += others.notes.texts if others.notes else ()
        return self.in_touch

    async def stands(self) -> bool:
        self.went_back = None if self.there else "the ledger lacks attempt 7"
        return self.there


class Overdue:
    def __init__(self) -> None:
        self.figures = OverdueFigures()
        self.checked = True

    async def keep_looking(self, _book: object, _may: object) -> None:
        """Nothing misses its invoice."""


class ServiceBench:
    """A service whose parts are recorded instead of made."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.clock, self.ledger = Clock(), Ledger()
        self.exits: list[int] = []
        self.fail_stop = FailStop(self.exits.append)
        self.book = CatalogueBook(self.ledger, self.clock)
        self.feeder, self.admitter, self.publisher = Feeder(), Admitter(), Publisher()
        self.facts, self.sweeper, self.overdue = Sender(), Sweeper(), Overdue()
        self.meters = Meters()
        self.holds = Holds(self.ledger, self.clock, "w1")
        self.audits = AuditWatch(Audits(), self.clock)
        self.attempts = Attempts()
        self.opened: list[str] = []
        self.service = Service(settings, self.make, self.clock, self.fail_stop)

    def make(self) -> Parts:
        return Parts(
            book=self.book,
            admitter=cast("Any", self.admitter),
            facts=cast("Any", self.facts),
            holds=self.holds,
            publisher=cast("Any", self.publisher),
            attempts=cast("Any", self.attempts),
            overdue=cast("Any", self.overdue),
            dead_letters=cast("Any", Pump()),
            rejections=cast("Any", self.sweeper),
            meters=cast("Any", self.meters),
            audits=self.audits,
            feeder=cast("Any", self.feeder),
            resources=(self.resource("one"), self.resource("two")),
        )

    def resource(self, name: str) -> Resource:
        async def opened() -> None:
            self.opened.append(f"+{name}")

        async def closed() -> None:
            self.opened.append(f"-{name}")

        return Resource(opened, closed)

    @property
    def parts(self) -> Parts:
        if self.service.parts is None:
            self.service.parts = self.make()
        return self.service.parts


class ToldChunk:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)
