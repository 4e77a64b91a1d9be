"""The service around the agents: who hears of a failure, who is stopped by what, what it tells."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import ClientSession

from streams.adapters.metrics import WORKER_METRICS, exposition
from streams.agents.admit import WAITS_FOR_LEDGER
from streams.agents.memory import memory_of
from streams.agents.overdue import UnpunctualMetersError
from streams.agents.publish_limits import lent_max
from streams.app import Service
from streams.core.instant import HOUR_US
from streams.core.orders import Orders
from streams.core.retry import Breaker
from streams.engine.chunk import Chunk
from streams.engine.errors import PartitionHeld, StateUnavailable
from streams.engine.fail_stop import ExitCode
from streams.engine.group_offsets import Notes
from streams.engine.table import PartitionTable
from tests.support.events import T0_US, usage
from tests.unit.agents.parts import SETTINGS, ServiceBench, StoppedError, ToldChunk
from tests.unit.agents.world import Life, World


@pytest.fixture
def bench() -> ServiceBench:
    return ServiceBench()


# -- agents ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [PartitionHeld("waits"), ValueError("a bug")])
async def test_whatever_the_agent_raises_the_feeder_hears_of(
    bench: ServiceBench, error: Exception
) -> None:
    assert bench.parts
    bench.admitter.error = error
    chunk = ToldChunk()
    await bench.service._take(cast("Chunk", chunk))
    assert chunk.errors == [error]
    assert bench.exits == [], "the engine decides what follows"


async def test_an_agent_that_is_cancelled_says_so_and_stops(bench: ServiceBench) -> None:
    assert bench.parts
    bench.admitter.error = asyncio.CancelledError()
    chunk = ToldChunk()
    with pytest.raises(asyncio.CancelledError):
        await bench.service._take(cast("Chunk", chunk))
    assert chunk.errors == [bench.admitter.error]


def test_every_lane_that_may_be_lent_is_published_at_once(bench: ServiceBench) -> None:
    """Settling takes no place of sending: those who wait for the ledger are others."""
    settings = bench.service.settings
    lent = lent_max(settings.publish_lanes, settings.publish_rate_per_s)
    assert lent > settings.publish_lanes
    assert bench.service.app.agents["publish"].concurrency == lent


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("never seen before"), ExitCode.AGENT_FAILED),
        # As where a chunk meets it: whoever watches exit codes frees the disk and looks no further.
        (StateUnavailable("No space left on device"), ExitCode.STATE_UNAVAILABLE),
    ],
)
async def test_a_loop_that_fails_ends_the_process_by_name(
    bench: ServiceBench, error: Exception, code: ExitCode
) -> None:
    async def fails() -> None:
        raise error

    await bench.service._guarded("facts", fails)
    assert bench.exits == [code]


async def test_a_loop_that_is_cancelled_ends_quietly(bench: ServiceBench) -> None:
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


@pytest.fixture
def remembering(bench: ServiceBench) -> None:
    """The worker has the state of a partition, be it empty."""
    table = SimpleNamespace(memory=None, applied=-1, acknowledged=-1, floor_us=-1, levels=list)
    bench.feeder.tables = {0: cast("PartitionTable", table)}


@pytest.mark.usefixtures("remembering")
async def test_publishing_looks_and_rests(bench: ServiceBench, rounds: list[float]) -> None:
    assert bench.parts
    with pytest.raises(StoppedError):
        await bench.service._look()
    assert rounds == [0.02] * 3
    assert bench.publisher.looks == 3


async def test_nothing_is_published_by_a_worker_that_remembers_nothing_of_the_ledger(
    bench: ServiceBench, rounds: list[float]
) -> None:
    """All its partitions are refused, or others have them: a restored ledger would pass."""
    assert bench.parts
    assert bench.feeder.serving
    with pytest.raises(StoppedError):
        await bench.service._look()
    assert bench.publisher.looks == 0


@pytest.mark.usefixtures("remembering")
async def test_nothing_is_published_once_the_ledger_went_back(
    bench: ServiceBench, rounds: list[float]
) -> None:
    bench.parts.facts.figures.went_back = "restored from a backup"
    with pytest.raises(StoppedError):
        await bench.service._look()
    assert bench.publisher.looks == 0
    assert dict(_plain(bench.service))["usage_ledger_went_back"] == 1
    # A lane that came back would end the publisher's rest at once, again and again.
    assert bench.publisher.rests == 0
    assert rounds == [0.02] * 3


@pytest.mark.usefixtures("remembering")
async def test_nothing_is_published_while_the_ledger_lacks_what_was_sent(
    bench: ServiceBench, rounds: list[float]
) -> None:
    assert bench.parts
    bench.feeder.notes = Notes(frozenset({"[7,1]"}), 1.0)
    bench.attempts.there = False
    with pytest.raises(StoppedError):
        await bench.service._look()
    assert bench.publisher.looks == 0
    assert "[7,1]" in bench.attempts.learnt
    assert dict(_plain(bench.service))["usage_ledger_went_back"] == 1


@pytest.mark.usefixtures("remembering")
@pytest.mark.parametrize(
    ("part", "lacks"),
    [("attempts", "in_touch"), ("overdue", "checked")],
    ids=["what others sent is known", "meters and customers were compared"],
)
async def test_nothing_is_published_before(
    part: str, lacks: str, bench: ServiceBench, rounds: list[float]
) -> None:
    assert bench.parts
    setattr(getattr(bench, part), lacks, False)
    with pytest.raises(StoppedError):
        await bench.service._look()
    assert bench.publisher.looks == 0


async def test_a_worker_refuses_meters_that_cannot_make_an_invoice(bench: ServiceBench) -> None:
    """Exit 78: starting it again would change nothing."""

    async def refuses() -> None:
        message = "meter a: too slow"
        raise UnpunctualMetersError(message)

    await bench.service._guarded("overdue", refuses)
    assert bench.exits == [ExitCode.REFUSED] == [78]


async def test_facts_are_told_every_interval(bench: ServiceBench, rounds: list[float]) -> None:
    assert bench.parts
    bench.facts.events = None
    bench.admitter.entries.ring()
    with pytest.raises(StoppedError):
        await bench.service._tell()
    assert rounds == [0.05] * 3, "and no sooner while the ledger is away, whoever rings"
    assert bench.facts.sent == 3
    assert bench.publisher.wakes == 0


async def test_an_event_that_is_an_entry_of_its_own_waits_for_no_interval() -> None:
    """Neither for that of the facts nor for that of publishing."""
    bench = ServiceBench(replace(SETTINGS, facts_interval_ms=3_600_000))
    assert bench.parts
    telling = asyncio.get_running_loop().create_task(bench.service._tell())
    async with asyncio.timeout(5):
        await bench.facts.asked.wait()
        bench.facts.asked.clear()
        bench.facts.events = 1
        bench.admitter.entries.ring()
        await bench.facts.asked.wait()
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    assert (bench.facts.sent, bench.publisher.wakes) == (2, 1)


async def test_only_partitions_that_wait_for_the_catalogue_go_on_by_themselves(
    bench: ServiceBench,
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
    bench: ServiceBench,
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


async def test_it_says_what_it_waits_for(bench: ServiceBench) -> None:
    assert bench.service.waits_for() == "the meter catalogue in the ledger"
    assert bench.parts
    assert bench.service.waits_for() == "the meter catalogue in the ledger"
    await bench.book.refresh()
    bench.feeder.serving = False
    assert "its partitions" in (bench.service.waits_for() or "")
    bench.feeder.broker_errors_since = "2026-11-30T04:37:00Z"
    assert "unreachable since 2026-11-30T04:37:00Z" in (bench.service.waits_for() or "")
    bench.feeder.serving = True
    assert bench.service.waits_for() is None


def test_before_its_loop_runs_it_has_no_figures(bench: ServiceBench) -> None:
    assert list(bench.service.samples()) == []
    with pytest.raises(RuntimeError, match="when its loop runs"):
        bench.service._running  # noqa: B018 - the point of the test


async def test_every_metric_of_the_table_is_fed(bench: ServiceBench) -> None:
    parts = bench.parts
    parts.admitter.figures.verdicts.update(accepted=2, dead=1)
    parts.publisher.figures.states["recorded"] = 3
    for counter in ("noted", "refused", "ignored"):
        getattr(bench.sweeper.figures, counter)["x"] = 1
    table = cast("PartitionTable", SimpleNamespace(applied=41, acknowledged=40))
    bench.feeder.tables, bench.feeder.held = {5: table}, {7: "held"}
    bench.ledger.ordered = Orders(pauses={"tenant": 2})
    await bench.book.refresh()
    await bench.audits.refresh()
    samples = list(bench.service.samples())
    assert {name for name, _, _ in samples} == {metric.name for metric in WORKER_METRICS}
    text = exposition(bench.service.samples)().decode()
    assert 'usage_partition_applied_offset{partition="5"} 41.0' in text
    assert 'usage_partition_told_offset{partition="5"} 40.0' in text
    assert 'usage_partition_held{partition="7"} 1.0' in text
    assert 'usage_verdicts_total{verdict="accepted"} 2.0' in text
    assert "usage_sink_open 0.0" in text
    assert 'usage_publishing_paused{scope="tenant"} 2.0' in text


async def test_ledger_failures_of_both_sides_are_one_figure(bench: ServiceBench) -> None:
    bench.parts.facts.figures.ledger_failures = 2
    bench.parts.publisher.figures.ledger_failures = 3
    bench.publisher.breaker = Breaker().tripped(0, "HTTP 401", 0.5)
    figures = dict(_plain(bench.service))
    assert figures["usage_ledger_failures_total"] == 5
    assert figures["usage_sink_open"] == 1


# -- a whole life ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("remembering")
async def test_it_starts_serves_its_pages_hands_over_and_drains(bench: ServiceBench) -> None:
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
        address = probe._pages.address
        async with ClientSession() as session, session.get(f"{address}/ready") as page:
            assert await page.text() == "ready\n"
        bench.publisher.ended = bench.feeder.ended = bench.opened
        await bench.service._before_shutdown()
        ended = ["lanes given back", "drained", "-two", "-one"]
        assert bench.opened == ["+one", "+two", *ended], "the ledger is the last to go"
        await app.stop()
    assert bench.exits == []
    assert bench.meters.asked.is_set()


def test_two_services_live_in_one_process() -> None:
    one, other = ServiceBench(), ServiceBench()
    assert one.service.app is not other.service.app
    assert set(one.service.app.agents) == {"admit", "publish"}
