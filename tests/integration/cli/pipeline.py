"""Everything between the outbox and Stripe, small: the real rules and the real ledger, no Kafka.

It reads outbox rows as the connector would, decides them with the core, tells the ledger facts, and
sends due requests to the Stripe stand-in. Faults are ordered by event key.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import UUID, uuid4

import msgspec
import psycopg

from sandbox.stripe_sandbox.service import Service, ServiceSettings
from streams.adapters.clock import SystemClock
from streams.adapters.ledger import Ledger, open_ledger
from streams.adapters.stripe import StripeSettings, StripeSink
from streams.core.admission import decide
from streams.core.catalogue import Catalogue
from streams.core.decided import Decided, Place
from streams.core.fact import (
    CanaryFact,
    CorrectionFact,
    EventFact,
    FactBatch,
    ParkedFact,
    Remembered,
    Series,
    WentBack,
)
from streams.core.identity import content_digest, event_id
from streams.core.lane import Claim, Evidence, Settlement
from streams.core.level import CellKey, Key, Reading, cell_fact, level_fact
from streams.core.meter_event import MeterEvent
from streams.core.observation import Answer, Observation
from streams.core.orders import HeldRecord, Skip, fingerprint
from streams.core.settlement import PublishPolicy, settle
from streams.engine.partitioner import home_partition
from streams.ports import AuditNote
from tests.support.waiting import until

LOG = "11111111-2222-3333-4444-555555555555"
PARTITIONS = 12
PAUSE_S = 0.02
T = TypeVar("T")
Doubt = Literal["there", "absent"]


@dataclass(frozen=True)
class Record:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass
class Partition:
    number: int
    next_offset: int = 0
    log: list[Record] = field(default_factory=list)
    told: list[FactBatch] = field(default_factory=list)
    """Everything there ever was to tell; kept, as the packed log keeps it."""
    next_told: int = 0
    acknowledged: int = -1
    seen: dict[bytes, bytes] = field(default_factory=dict)
    readings: dict[Key, Reading] = field(default_factory=dict)
    skips: dict[int, Skip] = field(default_factory=dict)


class Pipeline:
    """Runs on a thread of its own until it is stopped."""

    service: Service | None = None
    _life: Future[None] | None = None
    _ledger: Ledger | None = None

    def __init__(self, outbox_dsn: str, ledger_dsn: str, directory: Path) -> None:
        self.lose: set[str] = set()
        """Event keys whose rows never arrive."""
        self.invent: set[str] = set()
        """Event keys whose rows arrive with an identity nobody recorded, too."""
        self.rescale: set[str] = set()
        """Event keys whose rows arrive with a thousand times their quantity."""
        self.rename: set[str] = set()
        """Event keys whose rows arrive a second time, under an identity that is not theirs."""
        self.newer: set[str] = set()
        """Event keys whose rows arrive in a version of the contract that nobody here can read, and
        are skipped."""
        self.unreadable: set[str] = set()
        """Event keys whose rows arrive as bytes that say nothing, and are skipped."""
        self.late: set[str] = set()
        """Of those that never arrive, event keys whose rows come after all."""
        self.astray: set[str] = set()
        """Event keys of whose rows a copy arrives on another partition than their own, where it is
        skipped."""
        self.floor_us = -1
        """Identities received up to then are forgotten."""
        self.held: set[int] = set()
        """Partitions that admit nothing."""
        self.publishing = True
        self.capturing = True
        """Whether the connector runs."""
        self.holding = False
        """Whether it leaves the ledger alone for a while."""
        self.idle = threading.Event()
        self.doubt: Doubt | None = None
        """What really became of requests whose answers are lost; None: nothing is lost."""
        self.refuse: str | None = None
        """Stripe's code under which requests die instead of being sent."""
        self.outage: Observation | None = None
        """What every request meets instead of Stripe."""
        self.stripe_url = ""
        self._outbox_dsn, self._ledger_dsn, self._directory = outbox_dsn, ledger_dsn, directory
        self._partitions = {n: Partition(n) for n in range(PARTITIONS)}
        self._taken: set[tuple[str, str, str]] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = ThreadPoolExecutor(1, "pipeline")

    def start(self) -> None:
        self._life = self._thread.submit(self._main)
        until("the pipeline started", lambda: self._ready.is_set() or self._ended())
        self.check()

    def stop(self) -> None:
        if not self._ended():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.shutdown(wait=True)
        self.check()

    def _ended(self) -> bool:
        return self._life is not None and self._life.done()

    def replay(self) -> None:
        """Everything from offset 0 with empty state, as after the loss of every disk."""
        self.ask(self._replay())

    async def _replay(self) -> None:
        assert self._ledger is not None
        versions, now_us = await self._ledger.load_catalogue()
        for number, known in self._partitions.items():
            fresh = Partition(number, known.next_offset, known.log, skips=known.skips)
            self._partitions[number] = fresh
            if fresh.log:
                catalogue = Catalogue(tuple(versions), now_us)
                await self._tell(self._ledger, fresh, fresh.log, catalogue)

    def check(self) -> None:
        """Raises what ended the pipeline, if anything did."""
        if self._life is not None and self._life.done():
            self._life.result()

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs something on the pipeline's loop and waits for it."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(20)

    def forget(self) -> None:
        """The workers' disks and the packed log are gone: nothing is left to compare or to tell."""
        for partition in self._partitions.values():
            partition.told, partition.next_told, partition.acknowledged = [], 0, -1

    async def last_audits(self) -> list[AuditNote]:
        """What a worker's metrics would say of the last audits."""
        async with open_ledger(self._ledger_dsn) as ledger:
            return await ledger.audit.last_audits()

    async def send(self, event: MeterEvent) -> Observation:
        """One request past the ledger, as anybody with a key could make it."""
        async with StripeSink(StripeSettings("sk_test_sandbox", self.stripe_url)) as sink:
            return await sink.send(event, event.idempotency_key(1))

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        clock = SystemClock()
        self.service = Service(ServiceSettings(self._directory), clock.now_us)
        self.service.create_meters(["api_calls", "exports"])
        await self.service.start()
        self.stripe_url = self.service.url
        reach = StripeSettings("sk_test_sandbox", self.service.url)
        outbox = await psycopg.AsyncConnection.connect(self._outbox_dsn, autocommit=True)
        async with open_ledger(self._ledger_dsn) as ledger, StripeSink(reach) as sink, outbox:
            self._ledger = ledger
            self._ready.set()
            while not self._stop.is_set():
                if not self.holding:
                    self.idle.clear()
                    if self.capturing:
                        await self._admit(outbox, ledger)
                    if await self._holds_all(ledger) and self.publishing:
                        await self._publish(ledger, sink)
                else:
                    self.idle.set()
                await asyncio.sleep(PAUSE_S)
        await self.service.stop()

    async def _admit(self, outbox: psycopg.AsyncConnection, ledger: Ledger) -> None:
        rows = await (
            await outbox.execute(
                "SELECT event_id::text, event_type, emitted_at::text, kafka_key, payload::text,"
                " payload->>'event_key', (extract(epoch FROM emitted_at) * 1000)::bigint"
                " FROM metering.usage_outbox ORDER BY emitted_at"
            )
        ).fetchall()
        fresh: dict[int, list[Record]] = {}
        for identity, kind, emitted, key, value, event_key, timestamp_ms in rows:
            number = home_partition(key.encode(), PARTITIONS)
            if (identity, kind, emitted) in self._taken or number in self.held:
                continue
            if event_key in self.lose and event_key not in self.late:
                continue
            self._taken.add((identity, kind, emitted))
            partition = self._partitions[number]
            values = [value, invented(value)] if event_key in self.invent else [value]
            values = [rescaled(value)] if event_key in self.rescale else values
            values = [*values, renamed(value)] if event_key in self.rename else values
            if event_key in self.newer | self.unreadable:
                newer = value.replace('"v": 1', '"v": 9')
                values = [newer if event_key in self.newer else "\u2026"]
                await self._skip(ledger, partition, key.encode(), values[0].encode())
            if event_key in self.astray:
                other = self._partitions[(number + 1) % PARTITIONS]
                await self._skip(ledger, other, key.encode(), value.encode())
                copy = Record(other.next_offset, timestamp_ms, key.encode(), value.encode())
                other.next_offset += 1
                fresh.setdefault(other.number, []).append(copy)
                other.log.append(copy)
            for each in values:
                record = Record(partition.next_offset, timestamp_ms, key.encode(), each.encode())
                partition.next_offset += 1
                fresh.setdefault(partition.number, []).append(record)
                partition.log.append(record)
        for home, records in fresh.items():
            versions, now_us = await ledger.load_catalogue()
            catalogue = Catalogue(tuple(versions), now_us)
            await self._tell(ledger, self._partitions[home], records, catalogue)

    async def _skip(self, ledger: Ledger, partition: Partition, key: bytes, value: bytes) -> None:
        """The next record holds its partition, and a person decides to go on without it."""
        offset, said = partition.next_offset, fingerprint(key, value)
        held = HeldRecord(LOG, partition.number, offset, said, "newer", len(value))
        await ledger.report_held(held, "pipeline")
        async with await psycopg.AsyncConnection.connect(self._ledger_dsn) as conn:
            answer = await conn.execute(
                "SELECT receipt FROM ledger.skip_record_v1(%s, %s, 'not waited for', 'ann')",
                (partition.number, offset),
            )
            ((receipt,),) = await answer.fetchall()
        partition.skips[offset] = Skip(offset, said, "not waited for", "ann", receipt)

    async def _tell(
        self,
        ledger: Ledger,
        partition: Partition,
        records: list[Record],
        catalogue: Catalogue,
    ) -> None:
        place = Place(
            "usage.events",
            partition.number,
            lambda ids: [partition.seen.get(i) for i in ids],
            lambda key: home_partition(key, PARTITIONS),
            partition.readings,
            self.floor_us,
            skips=partition.skips,
        )
        decided = decide(records, place, catalogue, fresh=True)
        assert decided.stop is None, decided.stop
        partition.seen.update([*decided.seen, *decided.pinned])
        partition.readings.update(decided.readings)
        partition.told.append(batch_of(partition.number, decided, catalogue.hash.hex()))
        await self._send(ledger, partition)

    async def _send(self, ledger: Ledger, partition: Partition) -> None:
        """Tells what was not told yet; a ledger that went back is told nothing."""
        while partition.next_told < len(partition.told):
            batch = replace(
                partition.told[partition.next_told], acknowledged=partition.acknowledged
            )
            answer = await ledger.apply_facts(batch)
            if isinstance(answer, WentBack):
                return
            partition.next_told += 1
            partition.acknowledged = answer.position

    async def _holds_all(self, ledger: Ledger) -> bool:
        """What every worker asks before it publishes, and how it makes good what was adopted."""
        known = [
            Remembered("usage.events", LOG, p.number, p.acknowledged)
            for p in self._partitions.values()
        ]
        behind = await ledger.behind(known)
        for remembered, answer in behind:
            if answer.adopted:
                partition = self._partitions[remembered.partition]
                positions = [batch.position for batch in partition.told]
                partition.next_told = sum(position <= answer.stored for position in positions)
                partition.acknowledged = answer.stored
                await self._send(ledger, partition)
        return not behind

    async def _publish(self, ledger: Ledger, sink: StripeSink) -> None:
        await ledger.cut_entries(1000)
        for claim in await ledger.claim("pipeline", 16, 60):
            if self.doubt is not None:
                if self.doubt == "there":
                    await sink.send(claim, claim.idempotency_key)
                await ledger.settle(in_doubt(claim))
                continue
            if self.refuse is not None:
                await ledger.settle(refused(claim, self.refuse))
                continue
            if self.outage is not None:
                policy = PublishPolicy()
                await ledger.settle(settle(claim, self.outage, policy, 0.0, sink_up=False))
                continue
            seen = await sink.send(claim, claim.idempotency_key)
            assert isinstance(seen, Answer), seen
            assert seen.status == 200, seen
            evidence = Evidence("recorded", seen.status, request_id="req_pipeline")
            await ledger.settle(
                Settlement(
                    claim, "recorded", None, claim.key_generation, True, True, None, evidence
                )
            )


def in_doubt(claim: Claim) -> Settlement:
    """What publishing writes when the time in which it may ask again is over."""
    evidence = Evidence("fenced", cause="in doubt for more than 23 hours")
    return Settlement(claim, "dead", "ambiguous", claim.key_generation, True, True, None, evidence)


def refused(claim: Claim, code: str) -> Settlement:
    """What publishing writes when Stripe will never take a request."""
    evidence = Evidence("refused", 400, code, request_id="req_refused")
    return Settlement(claim, "dead", "refused", claim.key_generation, False, True, None, evidence)


def invented(value: str) -> str:
    """A record that is true in itself and that no registry holds: another key's."""
    wire = msgspec.json.decode(value)
    wire["event_key"] += "-invented"
    identity = event_id(wire["source"], wire["tenant_id"], wire["event_key"])
    content = content_digest(identity, wire["metric"], wire["quantity"], wire["occurred_at"])
    wire |= {"event_id": str(UUID(bytes=identity)), "content": content.hex()}
    return msgspec.json.encode(wire).decode()


def rescaled(value: str) -> str:
    """The record after a step that multiplied its quantity."""
    wire = msgspec.json.decode(value)
    return msgspec.json.encode(wire | {"quantity": wire["quantity"] + "000"}).decode()


def renamed(value: str) -> str:
    """A copy of the record under an identity that somebody made up."""
    return msgspec.json.encode(msgspec.json.decode(value) | {"event_id": str(uuid4())}).decode()


def batch_of(partition: int, decided: Decided, catalogue_hash: str) -> FactBatch:
    facts = [fact for _, fact in decided.facts]

    def only(kind: type[T]) -> tuple[T, ...]:
        return tuple(fact for fact in facts if isinstance(fact, kind))

    readings: Iterable[tuple[Key, Reading]] = decided.readings.items()
    batch = FactBatch(
        "usage.events", LOG, partition, PARTITIONS, -1, decided.last, catalogue_hash,
        events=only(EventFact), corrections=only(CorrectionFact), parked=only(ParkedFact),
        canaries=only(CanaryFact),
    )  # fmt: skip
    levels = tuple(level_fact(k, r) for k, r in readings if isinstance(k, Series))
    cells = tuple(cell_fact(k, r) for k, r in readings if isinstance(k, CellKey))
    return replace(batch, levels=levels, cells=cells)
