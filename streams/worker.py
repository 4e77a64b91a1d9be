"""One worker: settings → every part wired together → a Faust worker that runs until it is told.

A worker is one process with one data directory; start more of them to scale.
"""

import asyncio
import gc
import os
import random
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

import faust
import uvloop
from confluent_kafka import Producer

from streams import topics
from streams.adapters.attempt_file import AttemptFile
from streams.adapters.clock import SystemClock
from streams.adapters.kafka import OutputProducer, producer_config
from streams.adapters.ledger import Ledger
from streams.adapters.ledger_pool import LedgerPool
from streams.adapters.stripe import StripeSink
from streams.adapters.stripe_events import StripeEvents
from streams.agents.admit import Admitter
from streams.agents.attempt_memory import AttemptMemory
from streams.agents.audit_watch import AuditWatch
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.dead_letters import DeadLetterPump
from streams.agents.facts import FactSender
from streams.agents.holds import Holds, record_held
from streams.agents.lineage import Lineage
from streams.agents.meter_watch import MeterWatch
from streams.agents.overdue import OverduePass
from streams.agents.publish import Publisher
from streams.agents.publish_limits import PublishLimits
from streams.agents.rejections import Rejections
from streams.app import Parts, Resource, Service
from streams.core.instant import HOUR_US, wire_text
from streams.core.level import newer
from streams.core.mark import earlier, from_version_1
from streams.crash_points import CrashAt, crash_at, never
from streams.engine.absorb import MergeRules
from streams.engine.data_dir import DataDirectory
from streams.engine.errors import DataDirectoryInUse
from streams.engine.fail_stop import FailStop
from streams.engine.feeder import Feeder, Hooks
from streams.engine.hand_over import GivenUp
from streams.engine.kafka_config import packed_producer_config
from streams.engine.log import LogId, Record
from streams.engine.packed_log import PackedLog
from streams.engine.partitioner import home_of
from streams.engine.settings import EngineSettings
from streams.kafka_access import client_security
from streams.logs import configure_logging
from streams.settings import Settings, SettingsError
from streams.stripe_access import request_s_max, stripe_settings

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


def build(settings: Settings) -> Service:
    """The service as it runs in production; nothing is touched before its loop runs."""
    clock = SystemClock()
    fail_stop = FailStop()
    name = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    return Service(settings, lambda: _parts(settings, clock, fail_stop, name), clock, fail_stop)


def _parts(settings: Settings, clock: SystemClock, fail_stop: FailStop, name: str) -> Parts:
    """Everything, made on the loop that will run it."""
    loop = asyncio.get_running_loop()
    engine = engine_settings(settings, name)
    pool = LedgerPool(settings.ledger_dsn)
    reached = crash_hook(settings)
    ledger = Ledger(
        pool, account=settings.stripe_account, livemode=settings.livemode, crash_at=reached
    )
    sink = StripeSink(stripe_settings(settings), reached)
    packed_log = PackedLog(
        Producer(packed_producer_config(engine)),
        topics.ADMIT_LOG,
        record_bytes_max=topics.PACKED_BYTES_MAX,
    )
    book = CatalogueBook(ledger, clock, settings.horizon_h * HOUR_US)
    holds = Holds(ledger, clock, name)
    lineage = Lineage(ledger, loop)
    attempts = AttemptMemory(
        ledger,
        AttemptFile(Path(settings.data_dir)),
        clock.elapsed_s,
        settings.publish_interval_ms / 1_000,
    )
    admitter = Admitter(
        book, _outputs(settings), packed_log, clock, home_of(settings.partitions), holds.note
    )
    limits = PublishLimits(
        worker=name,
        lanes=settings.publish_lanes,
        lease_s=settings.publish_lease_s,
        request_s_max=request_s_max(settings),
        rate_per_s=settings.publish_rate_per_s,
    )
    feeder = Feeder(
        engine,
        Hooks(
            rules=MergeRules(pick_seen=earlier, merge_level=newer, from_version_1=from_version_1),
            acknowledged=lineage.acknowledged,
            clock=clock.elapsed_s,
            wall=lambda: wire_text(clock.now_us()),
            fail_stop=fail_stop,
            note=attempts.note,
            crash_at=reached,
            layout=lineage.layout,
            before=lineage.before,
            given_up=_on_loop(loop, holds),
        ),
    )
    return Parts(
        book=book,
        admitter=admitter,
        facts=FactSender(ledger, feeder.rebuild),
        holds=holds,
        publisher=Publisher(attempts, sink, clock, limits, random.random, reached),
        attempts=attempts,
        overdue=OverduePass(ledger.carry),
        dead_letters=DeadLetterPump(ledger.publishing, _outputs(settings)),
        rejections=Rejections(ledger.rejections, StripeEvents(sink), clock),
        meters=MeterWatch(book, ledger.catalogue, sink, clock, livemode=settings.livemode),
        audits=AuditWatch(ledger.audit, clock),
        feeder=feeder,
        resources=(Resource(pool.open, pool.close), Resource(_started(packed_log), sink.close)),
    )


def _on_loop(loop: asyncio.AbstractEventLoop, holds: Holds) -> GivenUp:
    """Records that the feeder's thread gives up, noted where holds are read."""

    def given_up(log: LogId, record: Record, reason: str) -> None:
        loop.call_soon_threadsafe(holds.note, record_held(log, record, reason))

    return given_up


def _outputs(settings: Settings) -> OutputProducer:
    """A producer for one user alone: shared, one would be told of the other's failures."""
    return OutputProducer(producer_config(settings.kafka_bootstrap, 5, client_security(settings)))


def _started(packed_log: PackedLog) -> Callable[[], Awaitable[None]]:
    async def start() -> None:
        packed_log.start()

    return start


def engine_settings(settings: Settings, name: str) -> EngineSettings:
    """What the engine is told.

    `reach_back` covers everything that may still change or be asked for: the horizon, the longest
    window with its skew, and a day.
    """
    horizon_ms = settings.horizon_h * HOUR_MS
    return EngineSettings(
        bootstrap=settings.kafka_bootstrap,
        group=settings.group,
        client_id=name,
        topic=topics.EVENTS,
        packed_topic=topics.ADMIT_LOG,
        partitions=settings.partitions,
        data_dir=Path(settings.data_dir),
        horizon_ms=horizon_ms,
        reach_back_ms=horizon_ms + DAY_MS,
        chunk_records_max=settings.chunk_records,
        packed_bytes_max=topics.PACKED_BYTES_MAX,
        fetch_wait_s=settings.chunk_wait_ms / 1_000,
        settle_deadline_s=float(settings.settle_deadline_s),
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.heartbeat_ms,
        group_protocol=settings.group_protocol,
        instance_id=settings.group_instance_id or None,
        security=client_security(settings),
    )


def crash_hook(settings: Settings) -> CrashAt:
    """For drills: a signal to this very process at a named step; in production nothing."""
    if not settings.crash_at:
        return never
    # To the thread that reached it: sent to the process, it may find that thread a step further.
    return crash_at(
        settings.crash_at, lambda number: signal.pthread_kill(threading.get_ident(), number)
    )


def run(settings: Settings) -> None:
    """Runs one worker until SIGTERM or SIGINT; does not return.

    Raises:
        SystemExit: 0 after an orderly stop, else the code of what ended it.
        SettingsError: the data directory cannot be made, or another process has it.
    """
    configure_logging(settings.log_level)
    uvloop.install()
    try:
        Path(settings.data_dir).mkdir(parents=True, exist_ok=True)
        # Asked here for the sake of the message; the feeder takes the directory for good.
        directory = DataDirectory(Path(settings.data_dir))
        directory.lock()
        directory.unlock()
    except DataDirectoryInUse as error:
        raise SettingsError([f"TAILRACE_DATA_DIR: {error}"]) from error
    except OSError as error:
        problem = f"TAILRACE_DATA_DIR: {settings.data_dir}: {error.strerror}"
        raise SettingsError([problem]) from error
    service = build(settings)
    # One generation of objects that live as long as the process, and rare full collections: with
    # the default a chunk's tuples set off a walk over every level again and again.
    gc.freeze()
    gc.set_threshold(50_000, 50, 1_000)
    worker = faust.Worker(service.app, loglevel="WARN", redirect_stdouts=False, quiet=True)
    worker.spinner = None
    worker.execute_from_commandline()
