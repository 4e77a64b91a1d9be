"""The service: settings → a Faust app with its two agents and the loops around them.

Faust is the frame (app, agents, channels, worker); Kafka is consumed by the engine's feeder, which
puts one chunk at a time on the admit channel. `build` makes an app without touching anything;
everything that needs a running loop is made in `Service.run`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import faust
import structlog
from faust.app.base import BootStrategy

from streams.adapters.clock import Clock
from streams.adapters.metrics import Sample, exposition
from streams.adapters.probe import Probe
from streams.agents.admit import WAITS_FOR_LEDGER, Admitter
from streams.agents.attempt_memory import AttemptMemory
from streams.agents.audit_watch import AuditWatch
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.dead_letters import DeadLetterPump
from streams.agents.facts import FactSender
from streams.agents.holds import Holds
from streams.agents.memory import PartitionMemory, memories_of
from streams.agents.meter_watch import MeterWatch
from streams.agents.overdue import OverduePass, UnpunctualMetersError, overdue_samples
from streams.agents.publish import Lent, Publisher
from streams.agents.publish_limits import lent_max
from streams.agents.rejections import Rejections, report_samples
from streams.agents.samples import admit_samples, fact_samples, partition_samples, publish_samples
from streams.engine.chunk import Chunk
from streams.engine.errors import StateUnavailable, TableClosed
from streams.engine.fail_stop import ExitCode, FailStop
from streams.engine.feeder import Feeder
from streams.settings import Settings

FOR_EVER_US: Final = 1 << 62
"""No skew cutoff is known for the series: it is kept."""
log = structlog.get_logger("worker")


@dataclass(frozen=True, slots=True)
class Resource:
    """Something to open when the loop runs and to close at the end.

    `open` must not wait for the other side: a worker starts while its ledger is away.
    """

    open: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything a running worker is made of."""

    book: CatalogueBook
    admitter: Admitter
    facts: FactSender
    holds: Holds
    publisher: Publisher
    attempts: AttemptMemory
    overdue: OverduePass
    dead_letters: DeadLetterPump
    rejections: Rejections
    meters: MeterWatch
    audits: AuditWatch
    feeder: Feeder
    resources: tuple[Resource, ...]


class _Boot(BootStrategy):
    """No broker connection and no web server of Faust's own."""

    enable_kafka = False
    enable_web = False


class _App(faust.App):
    BootStrategy = _Boot


class Service:
    """One worker's app and the parts it runs."""

    def __init__(
        self, settings: Settings, make: Callable[[], Parts], clock: Clock, fail_stop: FailStop
    ) -> None:
        self.settings = settings
        self.parts: Parts | None = None
        self._make = make
        self._clock = clock
        self._fail_stop = fail_stop
        self._loops: list[asyncio.Task[None]] = []
        self._probe: Probe | None = None
        self.app = _App(
            settings.group,
            broker="kafka://unused",
            store="memory://",
            # Faust makes its own folder at start; it belongs beside our state, not in the
            # directory that somebody happened to start from.
            datadir=Path(settings.data_dir) / "faust",
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
        )
        self._admit_channel = self.app.channel()
        self._publish_channel = self.app.channel()
        self.app.agent(self._admit_channel, name="admit", concurrency=1)(self._admit)
        lent = lent_max(settings.publish_lanes, settings.publish_rate_per_s)
        self.app.agent(self._publish_channel, name="publish", concurrency=lent)(self._publish)
        self.app.task(self._run)
        self.app.on_before_shutdown.connect(self._before_shutdown)

    # -- agents ------------------------------------------------------------------------------------

    async def _admit(self, stream: Any) -> None:
        async for chunk in stream:
            await self._take(chunk)

    async def _take(self, chunk: Chunk) -> None:
        try:
            await self._running.admitter.admit(chunk)
        except BaseException as error:
            # Whatever it is, the feeder must hear of it; it decides between retry, hold and exit.
            chunk.failed(error)
            if not isinstance(error, Exception):
                raise

    async def _publish(self, stream: Any) -> None:
        async for lent in stream:
            await self._guarded("publish", partial(self._running.publisher.publish, lent))

    # -- life --------------------------------------------------------------------------------------

    @property
    def _running(self) -> Parts:
        if self.parts is None:
            message = "the worker's parts are made when its loop runs"
            raise RuntimeError(message)
        return self.parts

    async def _run(self) -> None:
        # Without this a channel delivers nothing, silently.
        self.app.flow_control.resume()
        parts = self.parts = self._make()
        for resource in parts.resources:
            await resource.open()
        host, port = self.settings.metrics_host, self.settings.metrics_port
        self._probe = Probe(
            host, port, self.waits_for, exposition(self.samples), lambda: parts.feeder.held
        )
        try:
            address = await self._probe.start()
        except OSError as error:
            self._fail_stop(ExitCode.ENGINE_FAILED, f"TAILRACE_METRICS_PORT {port}: {error}")
            return
        log.info("probe", address=address)
        self._start("catalogue", lambda: parts.book.keep_fresh(self.settings.catalogue_refresh_s))
        self._start("facts", self._tell)
        self._start("audits", parts.audits.keep_fresh)
        self._start("publish", self._look)
        self._start("overdue", lambda: parts.overdue.keep_looking(parts.book, self._ledger_stands))
        self._start("dead_letters", self._pump)
        sweep = partial(parts.rejections.keep_sweeping, float(self.settings.report_sweep_s))
        self._start("reports", lambda: sweep(self._ledger_went_back))
        self._start("meters", parts.meters.keep_looking)
        parts.feeder.start(asyncio.get_running_loop(), self._put_chunk)

    async def _put_chunk(self, chunk: Chunk) -> None:
        await self._admit_channel.send(value=chunk)

    async def _put_lent(self, lent: Lent) -> None:
        await self._publish_channel.send(value=lent)

    def _start(self, name: str, body: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(name, body), name=name)
        self._loops.append(task)

    async def _guarded(self, name: str, body: Callable[[], Awaitable[None]]) -> None:
        try:
            await body()
        except asyncio.CancelledError:
            raise
        except UnpunctualMetersError as error:
            self._fail_stop(ExitCode.REFUSED, str(error))
        except StateUnavailable as error:
            self._fail_stop(ExitCode.STATE_UNAVAILABLE, str(error))
        except Exception as error:  # the last fence: never go on half alive
            log.critical("loop_failed", loop=name, exc_info=error)
            self._fail_stop(ExitCode.AGENT_FAILED, f"{name}: {type(error).__name__}: {error}")

    async def _before_shutdown(self, *_args: Any, **_kwargs: Any) -> None:
        """Drains: lanes are given back, the chunk in hand is settled, then the group is left."""
        if self.parts is None:
            return
        await self.parts.publisher.drain()
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self.parts.feeder.drain)
        for resource in reversed(self.parts.resources):
            await resource.close()
        if self._probe is not None:
            await self._probe.stop()

    # -- loops -------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        parts, pause_s = self._running, self.settings.facts_interval_ms / 1_000
        while True:
            memories = memories_of(parts.feeder.tables.values())
            if told := await parts.facts.send(memories):
                parts.publisher.wake()
            self._forget_closed(parts, memories)
            await parts.holds.report(parts.feeder.held)
            self._resume_waiting(parts)
            await parts.admitter.entries.rest(pause_s, deaf=told is None)

    def _forget_closed(self, parts: Parts, memories: list[PartitionMemory]) -> None:
        """State stays as large as the horizon, however long the worker lives."""
        catalogue = parts.book.catalogue
        if catalogue is None:
            return
        skew = {(v.metric, v.version): v.skew_max_us for v in catalogue.versions}
        for memory in memories:
            with contextlib.suppress(TableClosed):
                memory.drop_closed(lambda s: skew.get((s.metric, s.catalogue_version), FOR_EVER_US))

    def _resume_waiting(self, parts: Parts) -> None:
        """Partitions go on once what they waited for is there: the catalogue, or a decision."""
        for partition in parts.holds.skipped(parts.book.orders):
            parts.feeder.resume(partition)
        if parts.book.age_s() > 2 * self.settings.catalogue_refresh_s:
            return
        for partition, reason in parts.feeder.held.items():
            if WAITS_FOR_LEDGER in reason:
                parts.feeder.resume(partition)

    async def _ledger_stands(self) -> bool:
        """Asked each time: a restored ledger would have amounts sent that Stripe has already."""
        parts = self._running
        memories = memories_of(parts.feeder.tables.values())
        serves = parts.feeder.serving and memories  # against no state every ledger would pass
        if not (serves and parts.attempts.catch_up(parts.feeder)):
            return False
        # Both, so that whoever adopts sees all that is missing.
        return all([await parts.attempts.stands(), await parts.facts.check(memories)])

    def _ledger_went_back(self) -> bool:
        parts = self._running
        return (parts.facts.figures.went_back or parts.attempts.went_back) is not None

    async def _look(self) -> None:
        parts, pause_s = self._running, self.settings.publish_interval_ms / 1_000
        while True:
            if stands := parts.overdue.checked and await self._ledger_stands():
                await parts.publisher.look(self._put_lent)
            await (parts.publisher.rest(pause_s) if stands else asyncio.sleep(pause_s))

    async def _pump(self) -> None:
        while True:
            await self._running.dead_letters.pump()
            await asyncio.sleep(1.0)

    # -- what it says of itself --------------------------------------------------------------------

    def waits_for(self) -> str | None:
        """None when this worker serves, else what it waits for."""
        if self.parts is None or self.parts.book.catalogue is None:
            return "the meter catalogue in the ledger"
        if not self.parts.feeder.serving:
            since = self.parts.feeder.broker_errors_since
            away = "" if since is None else f"; Kafka is unreachable since {since}"
            return f"its partitions: joining the group or reading their state{away}"
        return None

    def samples(self) -> Iterator[Sample]:
        """The figures behind /metrics."""
        if (parts := self.parts) is None:
            return
        facts, publish = parts.facts.figures, parts.publisher.figures
        yield from admit_samples(parts.admitter.figures)
        yield from partition_samples(parts.feeder.tables, parts.feeder.held)
        yield from fact_samples(facts, publish.ledger_failures)
        yield "usage_ledger_went_back", None, int(self._ledger_went_back())
        yield "usage_catalogue_age_seconds", None, parts.book.age_s()
        yield from publish_samples(publish)
        yield from report_samples(parts.rejections.figures)
        for scope, count in parts.book.orders.pauses.items():
            yield "usage_publishing_paused", scope, count
        yield from parts.audits.samples()
        yield from overdue_samples(parts.overdue.figures)
        yield "usage_sink_open", None, int(parts.publisher.breaker.state != "closed")
