"""Fetched records → chunks → the agent, one at a time, each settled before the next.

While a chunk is in hand nothing is polled, so no partition can be taken away under it; a chunk that
is old asks the broker itself before it writes anything.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

from confluent_kafka import Message

from streams.crash_points import CrashAt
from streams.engine.assigned import Assigned
from streams.engine.chunk import Chunk, Guards, Headers
from streams.engine.continuity import Continuity
from streams.engine.cut import cut
from streams.engine.errors import ConsumerFatal, LogGap
from streams.engine.fence import Fence
from streams.engine.group import Group
from streams.engine.kafka_faults import is_final, text_of
from streams.engine.log import LogId, Record
from streams.engine.log_guard import Seconds, TopicInquiry, TopicLife
from streams.engine.outcome import Before, Outcomes
from streams.engine.poison import Alone, Held, Whole
from streams.engine.settings import EngineSettings
from streams.engine.table import PartitionTable

Put = Callable[[Chunk], Awaitable[None]]
"""Hands a chunk to the agent, such as a Faust channel's `put`."""
GivenUp = Callable[[LogId, Record, str], None]
"""Takes a record that killed workers however it was handed over: its log, itself, the reason."""


def nobody_asks(log: LogId, record: Record, reason: str) -> None:
    """For tests without anybody to tell."""
    del log, record, reason


@dataclass(slots=True)
class HandOver:
    """Feeds the agent; the feeder's thread only."""

    settings: EngineSettings
    group: Group
    inquiry: TopicInquiry
    continuity: Continuity
    outcomes: Outcomes
    clock: Seconds
    crash_at: CrashAt
    given_up: GivenUp
    stopping: Callable[[], bool]
    loop: asyncio.AbstractEventLoop
    put: Put
    broker_errors: int = field(default=0)
    """Errors librdkafka reported among the records; it goes on by itself after them."""

    def batch(self, messages: list[Message]) -> None:
        """Hand over what one fetch brought, partition by partition.

        Raises:
            ConsumerFatal: the consumer will never deliver again.
        """
        fetched = _Fetched(self.clock())
        by_partition: dict[int, list[Message]] = {}
        for message in messages:
            partition = message.partition()
            if message.error() is not None:
                self._judge(message)
            elif partition is not None:
                by_partition.setdefault(partition, []).append(message)
        for partition, own in by_partition.items():
            assigned = self.group.assigned.get(partition)
            if assigned is not None:
                self._partition(assigned, own, fetched)

    def _judge(self, message: Message) -> None:
        error = message.error()
        if error is not None and is_final(error):
            raise ConsumerFatal(
                f"{message.topic()}[{message.partition()}]: {text_of(error)}: the consumer is dead "
                "for good; after a restart the partition is either read on or held with the reason"
            )
        self.broker_errors += 1

    def _partition(self, assigned: Assigned, messages: list[Message], fetched: "_Fetched") -> None:
        while messages:
            table = assigned.table
            if table is None or not assigned.is_fed or self.stopping():
                break
            records, used = self._cut(messages, table, assigned.records_max)
            if records:
                plan = self._plan(assigned, table, records)
                if plan is None:
                    break
                if isinstance(plan, Alone):
                    records, used = self._cut(messages, table, 1)
                if not self._hand(assigned, plan, records, _Source(table, messages, fetched)):
                    break
            messages = messages[used:]
        if messages:
            # Dropped: nothing was moved, and the position is set again before the next fetch.
            self.group.stop_feeding(assigned)

    def _plan(
        self, assigned: Assigned, table: PartitionTable, records: list[Record]
    ) -> Whole | Alone | None:
        """How to hand the records over; None for not now."""
        offset = records[0].offset
        if offset != table.applied + 1:
            try:
                if not self.continuity.is_hole(table.log, table.applied + 1, offset):
                    return None
            except LogGap as gap:
                self.group.hold(assigned, f"LogGap: {gap}")
                return None
        plan = assigned.isolation.plan(table.applied, offset, records[-1].offset)
        if isinstance(plan, Held):
            if not plan.decided:
                self.given_up(table.log, records[0], plan.reason)
            self.group.hold(assigned, plan.reason)
            return None
        return plan

    def _hand(
        self, assigned: Assigned, plan: Whole | Alone, records: list[Record], source: "_Source"
    ) -> bool:
        """Hand one chunk over and wait for it; whether the partition may be fed on."""
        before = Before(plan.mark is not None, assigned.isolation.mark)
        if plan.mark is not None:
            if not self.group.offsets.mark(assigned, plan.mark):
                return False
            assigned.isolation.marked(plan.mark)
        chunk = self._chunk(assigned, plan, records, source)
        source.table.enter(chunk.timestamp_ms_max)
        chunk.step("fetched")
        self._put(chunk)
        deadline_s = self.settings.settle_deadline_s
        if not chunk.done.wait(deadline_s):
            self.outcomes.missed(assigned, chunk, before, deadline_s)
            return False
        return self.outcomes.judge(assigned, chunk, before)

    def _chunk(
        self, assigned: Assigned, plan: Whole | Alone, records: list[Record], source: "_Source"
    ) -> Chunk:
        table = source.table
        log = table.log
        life = TopicLife(table.layout.life_id, table.layout.partitions)
        question = source.fetched.question(self.inquiry, log.topic)
        fence = Fence(
            self.clock,
            source.fetched.at_s,
            session_s=self.settings.session_timeout_ms / 1_000,
            commit=lambda: self.group.offsets.ask(assigned),
            what=f"{log} from offset {records[0].offset}",
        )
        return Chunk(
            log=log,
            first=table.applied + 1,
            last=records[-1].offset,
            records=records,
            table=table,
            single=isinstance(plan, Alone),
            suspect=records[0].offset if isinstance(plan, Alone) and plan.suspect else None,
            guards=Guards(
                verify_log=lambda: self.inquiry.verify(log, life, question),
                fence=fence.ask,
                headers=lambda index: source.headers(records[index].offset),
                crash_at=self.crash_at,
            ),
        )

    def _put(self, chunk: Chunk) -> None:
        def handed(future: "Future[None]") -> None:
            error = future.exception() if not future.cancelled() else asyncio.CancelledError()
            if error is not None:
                chunk.failed(error)

        async def put() -> None:
            await self.put(chunk)

        asyncio.run_coroutine_threadsafe(put(), self.loop).add_done_callback(handed)

    def _cut(
        self, messages: list[Message], table: PartitionTable, records_max: int
    ) -> tuple[list[Record], int]:
        return cut(
            messages, table, records_max=records_max, bytes_max=self.settings.chunk_bytes_max
        )


@dataclass(slots=True)
class _Fetched:
    """One fetch, and the one question whose log it came from."""

    at_s: float
    asked: "Future[Any] | None" = None

    def question(self, inquiry: TopicInquiry, topic: str) -> "Future[Any]":
        """The question, asked after the fetch and once for all its chunks."""
        if self.asked is None:
            self.asked = inquiry.ask(topic)
        return self.asked


@dataclass(slots=True)
class _Source:
    """Where the records of a chunk come from."""

    table: PartitionTable
    messages: list[Message]
    fetched: _Fetched
    by_offset: dict[int, Message] = field(default_factory=dict)

    def headers(self, offset: int) -> Headers:
        """Headers of the record at an offset."""
        if not self.by_offset:
            self.by_offset = {m.offset() or 0: m for m in self.messages}
        # The stub allows more than a consumed record ever has: bytes or nothing, in a list.
        return cast("Headers", list(self.by_offset[offset].headers() or []))
