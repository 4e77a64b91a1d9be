"""The service around the agents: who hears of a failure, who is stopped by what, what it tells."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from aiohttp import ClientSession

from streams import worker
from streams.adapters.clock import SystemClock
from streams.adapters.metrics import METRICS, exposition
from streams.agents.admit import WAITS_FOR_LEDGER, AdmitFigures
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.facts import FactFigures
from streams.agents.memory import memory_of
from streams.agents.publish import Lent, PublishFigures
from streams.app import Parts, Resource, Service
from streams.core.instant import HOUR_US
from streams.core.retry import Breaker
from streams.engine.chunk import Chunk
from streams.engine.errors import PartitionHeld
from streams.engine.fail_stop import ExitCode, FailStop
from streams.engine.table import PartitionTable
from streams.settings import Settings, load
from streams.worker import HOUR_MS, build, crash_hook, engine_settings, stripe_settings
from tests.support.events import T0_US, usage
from tests.unit.agents.outside import Clock, Ledger
from tests.unit.agents.world import Life, World

SETTINGS: Final = load(
    {
        "TAILRACE_KAFKA_BOOTSTRAP": "127.0.0.1:1",
        "TAILRACE_LEDGER_DSN": "postgresql://nobody@127.0.0.1:1/ledger",
        "TAILRACE_DATA_DIR": "/nonexistent",
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
    resumed: list[int] = field(default_factory=list)
    put: Callable[[Chunk], Awaitable[None]] | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    drained: bool = False

    def resume(self, partition: int) -> None:
        self.resumed.append(partition)

    def start(self, _loop: object, put: Callable[[Chunk], Awaitable[None]]) -> None:
        self.put = put
        self.started.set()

    def drain(self) -> None:
        self.drained = True


class Admitter:
    def __init__(self) -> None:
        self.figures = AdmitFigures()
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
        self.looks = 0
        self.error: Exception | None = None
        self.lent: list[object] = []
        self.asked = asyncio.Event()

    async def look(self, put: Callable[[Lent], Awaitable[object]]) -> int:
        self.looks += 1
        if self.looks == 1:
            await put(cast("Lent", "a lane"))
            return 1
        return 0

    async def publish(self, lent: object) -> None:
        self.lent.append(lent)
        self.asked.set()
        if self.error is not None:
            raise self.error


class Sender:
    def __init__(self) -> None:
        self.figures = FactFigures()
        self.sent = 0

    async def send(self, _memories: object) -> None:
        self.sent += 1


class Pump:
    async def pump(self) -> None:
        """Nothing is dead."""


class Bench:
    """A service whose parts are recorded instead of made."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.clock, self.ledger = Clock(), Ledger()
        self.exits: list[int] = []
        self.fail_stop = FailStop(self.exits.append)
        self.book = CatalogueBook(self.ledger, self.clock)
        self.feeder, self.admitter, self.publisher = Feeder(), Admitter(), Publisher()
        self.facts = Sender()
        self.opened: list[str] = []
        self.service = Service(settings, self.make, self.clock, self.fail_stop)

    def make(self) -> Parts:
        return Parts(
            book=self.book,
            admitter=cast("Any", self.admitter),
            facts=cast("Any", self.facts),
            publisher=cast("Any", self.publisher),
            dead_letters=cast("Any", Pump()),
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


@pytest.fixture
def bench() -> Bench:
    return Bench()


class ToldChunk:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)


# -- agents ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [PartitionHeld("waits"), ValueError("a bug")])
async def test_whatever_the_agent_raises_the_feeder_hears_of(
    bench: Bench, error: Exception
) -> None:
    assert bench.parts
    bench.admitter.error = error
    chunk = ToldChunk()
    await bench.service._take(cast("Chunk", chunk))
    assert chunk.errors == [error]
    assert bench.exits == [], "the engine decides what follows"


async def test_an_agent_that_is_cancelled_says_so_and_stops(bench: Bench) -> None:
    assert bench.parts
    bench.admitter.error = asyncio.CancelledError()
    chunk = ToldChunk()
    with pytest.raises(asyncio.CancelledError):
        await bench.service._take(cast("Chunk", chunk))
    assert chunk.errors == [bench.admitter.error]


async def test_a_loop_that_fails_ends_the_process_by_name(bench: Bench) -> None:
    async def fails() -> None:
        message = "never seen before"
        raise ValueError(message)

    await bench.service._guarded("facts", fails)
    assert bench.exits == [ExitCode.AGENT_FAILED]


async def test_a_loop_that_is_cancelled_ends_quietly(bench: Bench) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await bench.service._guarded("facts", cancelled)
    assert bench.exits == []


# -- loops ----------------------------------------------------------------------------------------


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses of a loop; the third ends it."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise StoppedError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses


async def test_publishing_looks_again_at_once_while_there_is_work(
    bench: Bench, rounds: list[float]
) -> None:
    assert bench.parts
    with pytest.raises(StoppedError):
        await bench.service._look()
    assert rounds == [0.01, 0.02, 0.02]
    assert bench.publisher.looks == 3


async def test_nothing_is_published_once_the_ledger_went_back(
    bench: Bench, rounds: list[float]
) -> None:
    bench.parts.facts.figures.went_back = "restored from a backup"
    with pytest.raises(StoppedError):
        await bench.service._look()
    assert bench.publisher.looks == 0
    assert dict(_plain(bench.service))["usage_ledger_went_back"] == 1


async def test_facts_are_told_every_interval(bench: Bench, rounds: list[float]) -> None:
    assert bench.parts
    with pytest.raises(StoppedError):
        await bench.service._tell()
    assert rounds == [0.05] * 3
    assert bench.facts.sent == 3


async def test_only_partitions_that_wait_for_the_catalogue_go_on_by_themselves(
    bench: Bench,
) -> None:
    bench.feeder.held = {1: WAITS_FOR_LEDGER, 2: "schema version 2 is unknown here", 3: "operator"}
    bench.service._resume_waiting(bench.parts)
    assert bench.feeder.resumed == [], "before the first reading there is nothing to judge by"
    await bench.book.refresh()
    bench.service._resume_waiting(bench.parts)
    assert bench.feeder.resumed == [1]
    bench.clock.now_s += 121
    bench.service._resume_waiting(bench.parts)
    assert bench.feeder.resumed == [1], "a reading that old says the ledger is away"


async def test_state_is_dropped_by_the_cutoffs_of_the_catalogue(
    bench: Bench,
    world_of: Callable[[Any], World],
    begin: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of([usage("a", "5"), usage("b", "1.5", metric="storage")])
    life: Life = await begin(world)
    await life.feed()
    await life.tell()
    memory = memory_of(life.table)
    # `storage` is late after an hour, `api_calls` after a day.
    monkeypatch.setattr(PartitionTable, "floor_us", T0_US + 3 * HOUR_US)
    bench.service._forget_closed(bench.parts, [memory])
    assert len(memory.readings) == 3, "without a catalogue nobody knows the cutoffs"
    await bench.book.refresh()
    bench.service._forget_closed(bench.parts, [memory])
    assert [getattr(key, "metric", "cell") for key in memory.readings] == ["api_calls"]
    life.table.close()
    bench.service._forget_closed(bench.parts, [memory])


# -- what it says of itself -----------------------------------------------------------------------


def _plain(service: Service) -> list[tuple[str, float]]:
    return [(name, value) for name, label, value in service.samples() if label is None]


async def test_it_says_what_it_waits_for(bench: Bench) -> None:
    assert bench.service.waits_for() == "the meter catalogue in the ledger"
    assert bench.parts
    assert bench.service.waits_for() == "the meter catalogue in the ledger"
    await bench.book.refresh()
    bench.feeder.serving = False
    assert "its partitions" in (bench.service.waits_for() or "")
    bench.feeder.serving = True
    assert bench.service.waits_for() is None


def test_before_its_loop_runs_it_has_no_figures(bench: Bench) -> None:
    assert list(bench.service.samples()) == []
    with pytest.raises(RuntimeError, match="when its loop runs"):
        bench.service._running  # noqa: B018 - the point of the test


async def test_every_metric_of_the_table_is_fed(bench: Bench) -> None:
    parts = bench.parts
    parts.admitter.figures.verdicts.update(accepted=2, dead=1)
    parts.publisher.figures.states["recorded"] = 3
    table = cast("PartitionTable", SimpleNamespace(applied=41, acknowledged=40))
    bench.feeder.tables, bench.feeder.held = {5: table}, {7: "held"}
    await bench.book.refresh()
    samples = list(bench.service.samples())
    assert {name for name, _, _ in samples} == {metric.name for metric in METRICS}
    text = exposition(bench.service.samples)().decode()
    assert 'usage_partition_applied_offset{partition="5"} 41.0' in text
    assert 'usage_partition_told_offset{partition="5"} 40.0' in text
    assert 'usage_partition_held{partition="7"} 1.0' in text
    assert 'usage_verdicts_total{verdict="accepted"} 2.0' in text
    assert "usage_sink_open 0.0" in text


async def test_ledger_failures_of_both_sides_are_one_figure(bench: Bench) -> None:
    bench.parts.facts.figures.ledger_failures = 2
    bench.parts.publisher.figures.ledger_failures = 3
    bench.publisher.breaker = Breaker().tripped(0, "HTTP 401", 0.5)
    figures = dict(_plain(bench.service))
    assert figures["usage_ledger_failures_total"] == 5
    assert figures["usage_sink_open"] == 1


# -- a whole life ---------------------------------------------------------------------------------


async def test_it_starts_serves_its_pages_hands_over_and_drains(bench: Bench) -> None:
    """Faust for real, without a broker: a chunk and a lane reach their agents."""
    app = bench.service.app
    async with asyncio.timeout(20):
        await app.maybe_start()
        await bench.feeder.started.wait()
        assert bench.feeder.put is not None
        chunk = ToldChunk()
        await bench.feeder.put(cast("Chunk", chunk))
        await bench.admitter.asked.wait()
        await bench.publisher.asked.wait()
        assert bench.admitter.taken == [chunk]
        assert bench.publisher.lent == ["a lane"]
        assert bench.opened == ["+one", "+two"]
        probe = bench.service._probe
        assert probe is not None
        assert probe._runner is not None
        host, port = probe._runner.addresses[0][:2]
        async with ClientSession() as session, session.get(f"http://{host}:{port}/ready") as page:
            assert await page.text() == "ready\n"
        await bench.service._before_shutdown()
        assert bench.feeder.drained
        assert bench.opened == ["+one", "+two", "-two", "-one"]
        await app.stop()
    assert bench.exits == []


def test_two_services_live_in_one_process() -> None:
    one, other = Bench(), Bench()
    assert one.service.app is not other.service.app
    assert set(one.service.app.agents) == {"admit", "publish"}


# -- the worker's wiring --------------------------------------------------------------------------


def test_building_a_worker_touches_nothing() -> None:
    """The data directory does not exist, nor a broker, nor a ledger."""
    service = build(SETTINGS)
    assert service.parts is None


def test_the_engine_is_told_what_the_settings_say() -> None:
    engine = engine_settings(SETTINGS, "host:1:abc")
    assert (engine.topic, engine.packed_topic) == ("usage.events", "usage.admit-log")
    assert engine.horizon_ms == 168 * HOUR_MS
    assert engine.reach_back_ms == (168 + 24) * HOUR_MS
    assert engine.settle_deadline_s == 60
    assert engine.fetch_wait_s == 0.1
    assert engine.instance_id is None
    assert engine.client_id == "host:1:abc"


def test_a_request_is_over_before_its_lease() -> None:
    stripe = stripe_settings(SETTINGS)
    assert stripe.connect_timeout_s + stripe.read_timeout_s == stripe.deadline_s
    assert 2 * stripe.deadline_s <= SETTINGS.publish_lease_s
    assert stripe.connections_max == SETTINGS.publish_lanes


async def test_each_user_of_output_topics_has_a_producer_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shared, one would be told of the other's failure, and the other of none."""
    made: list[object] = []

    def producer(_config: object) -> object:
        made.append(object())
        return made[-1]

    monkeypatch.setattr(worker, "OutputProducer", producer)

    made_of = worker._parts(SETTINGS, SystemClock(), FailStop(lambda _code: None), "w")
    for resource in made_of.resources:
        await resource.close()
    assert made_of.admitter._outputs is made[0] or made_of.admitter._outputs is made[1]
    assert made_of.dead_letters._outputs is not made_of.admitter._outputs


def test_in_production_no_step_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    crash_hook(SETTINGS)("decided")
    assert killed == []
    hook = crash_hook(load({"TAILRACE_CRASH_AT": "decided:2"}))
    hook("decided")
    assert killed == []
    hook("decided")
    assert killed == [(os.getpid(), signal.SIGKILL)]
