"""The engine's feeder without threads: membership, recovery, chunks, and what became of them.

Cutting, chunks, recovery, fence and the judgement of outcomes are the engine's own; what is ours
is the loop around them, which waits on virtual time where the engine's blocks a thread.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from streams import topics
from streams.agents.lineage import laid_out, told_of
from streams.core.growth import Inherited, Life, Log
from streams.core.identity import log_uuid
from streams.core.level import newer
from streams.core.mark import earlier, from_version_1
from streams.engine.absorb import MergeRules
from streams.engine.assigned import Assigned
from streams.engine.before import Told
from streams.engine.chunk import Chunk, Guards
from streams.engine.cut import cut
from streams.engine.data_dir import quarantine
from streams.engine.errors import EarlierBehind, LogRefused
from streams.engine.fail_stop import ExitCode, FailStop
from streams.engine.fence import Fence
from streams.engine.generations import width_ms
from streams.engine.group_offsets import Notes
from streams.engine.layout import Layout
from streams.engine.log import LogId, Record
from streams.engine.log_guard import TopicInquiry, TopicLife
from streams.engine.outcome import Before, Outcomes
from streams.engine.recovery import RETRY_PAUSE_S, attempt
from streams.engine.recovery_needs import Recovery
from streams.engine.table import PartitionTable
from tests.simulation.broker import SESSION_S, TOPIC_ID, Reader
from tests.simulation.ledger.rows import Tables
from tests.simulation.turns import Bell
from tests.support.consumed import Message

if TYPE_CHECKING:
    from tests.simulation.worker import Worker

HOUR_MS: Final = 3_600_000
CHUNK_BYTES_MAX: Final = 1 << 20
SETTLE_S: Final = 60.0
COMMIT_S: Final = 1.0
TRY_S: Final = 5.0
_UNMARKED: Final = Before(marked=False, mark=None)


class Feeder:
    """One worker's part of the log."""

    def __init__(self, worker: "Worker", fail_stop: FailStop) -> None:
        self._worker, self._fail_stop = worker, fail_stop
        self._broker, self._process = worker.outside.broker, worker.process
        self._outcomes = Outcomes(cast("Any", self), fail_stop)
        self._orders: list[int] = []
        self.assigned: dict[int, Assigned] = {}
        self.noted = Bell(worker.outside.timeline)
        """Rings when there is something else to commit, or under another partition."""
        worker.disk.written = self.noted.ring
        self.notes: Notes | None = None
        self._notes_due = True
        outside, clock = worker.outside, worker.clock
        self._inquiry = TopicInquiry(cast("Any", self._broker), clock.elapsed_s, patience_s=15.0)
        horizon_ms = outside.settings.horizon_h * HOUR_MS
        self._recovery = Recovery(
            topic=topics.EVENTS,
            packed_topic=topics.ADMIT_LOG,
            partitions=self._broker.partitions,
            directory=cast("Any", worker.disk),
            width_ms=width_ms(horizon_ms),
            reach_back_ms=horizon_ms + 24 * HOUR_MS,
            rules=MergeRules(pick_seen=earlier, merge_level=newer, from_version_1=from_version_1),
            consumer=cast("Any", lambda: Reader(self._broker)),
            inquiry=self._inquiry,
            cache=cast("Any", None),
            acknowledged=self._acknowledged,
            layout=self._layout,
            before=self._before,
        )
        self._lives: tuple[Life, ...] = ()

    # -- what the service asks ---------------------------------------------------------------------

    @property
    def tables(self) -> dict[int, PartitionTable]:
        return {p: a.table for p, a in self.assigned.items() if a.table is not None}

    @property
    def held(self) -> dict[int, str]:
        return {p: a.held for p, a in self.assigned.items() if a.held is not None}

    @property
    def serving(self) -> bool:
        member = self._process in self._broker.group.members and self.notes is not None
        return member and not any(a.recovering for a in self.assigned.values())

    def resume(self, partition: int) -> None:
        if partition in self.assigned:
            assigned = self.assigned[partition]
            assigned.held, assigned.recovering = None, assigned.table is None
            self._broker.wake()

    def renew_notes(self) -> None:
        self._notes_due = True
        self._broker.wake()

    def rebuild(self, partition: int) -> None:
        self._orders.append(partition)
        self._broker.wake()

    # -- what outcomes order -----------------------------------------------------------------------

    def hold(self, assigned: Assigned, reason: str) -> None:
        assigned.held = reason
        self._worker.outside.timeline.note("held", assigned.partition, reason)

    def discard(self, assigned: Assigned, *, damage: str | None = None) -> None:
        # Read again, be it held: what is remembered of the ledger is needed all the same.
        assigned.recovering = True
        if assigned.table is not None:
            path = assigned.table.path
            assigned.table.close()
            assigned.table = None
            if damage is not None:
                quarantine(path, damage)

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self) -> None:
        group = self._broker.group
        while True:
            seen = self._broker.version
            if self._process not in group.members:
                for assigned in self.assigned.values():
                    self.discard(assigned)
                self.assigned.clear()
                group.join(self._process)
            if self._notes_due:
                self._notes_due = False
                texts = frozenset(filter(None, group.notes.values()))
                self.notes = Notes(texts, self._worker.clock.elapsed_s())
            self._follow_orders()
            self._rebalance()
            fed = False
            for assigned in list(self.assigned.values()):
                if assigned.recovering or assigned.held is None:
                    fed = await self._feed(assigned) or fed
            if not fed:
                await self._broker.news(seen)
                await asyncio.sleep(self._worker.outside.delay_s())

    async def commit_notes(self) -> None:
        """As the engine commits: within a second, what its worker wants noted."""
        while True:
            await self.noted.rung()
            await asyncio.sleep(COMMIT_S)
            for partition, assigned in self.assigned.items():
                if assigned.table is not None:
                    note = self._worker.parts.attempts.note(assigned.found_note)
                    self._broker.group.notes[partition] = note

    def _follow_orders(self) -> None:
        while self._orders:
            assigned = self.assigned.get(self._orders.pop(0))
            if assigned is not None and assigned.table is not None:
                assigned.table.give_up()
                self.discard(assigned)

    def _rebalance(self) -> None:
        group = self._broker.group
        mine = group.share(self._process)
        for partition in [p for p in self.assigned if p not in mine]:
            self.discard(self.assigned.pop(partition))
            group.give(self._process, partition)
        for partition in mine:
            if partition not in self.assigned and group.take(self._process, partition):
                chunk_records = self._worker.outside.rng.choice((1, 3, 10))
                self.assigned[partition] = Assigned(partition, chunk_records, recovering=True)

    async def _feed(self, assigned: Assigned) -> bool:
        """One chunk of a partition to its end; whether to look again at once."""
        if assigned.table is None:
            await asyncio.sleep(self._worker.outside.delay_s())
            self._process.check()
            recovered = self._recover(assigned)
            if assigned.recovering:
                await asyncio.sleep(RETRY_PAUSE_S)
                return True
            return recovered and assigned.held is None
        records = self._cut(assigned.table, assigned.records_max)
        if not records:
            return False
        chunk = self._chunk(assigned.table, records)
        done = Done()
        chunk.done = cast("Any", done)
        chunk.table.enter(chunk.timestamp_ms_max)
        chunk.step("fetched")
        await self._worker.service._put_chunk(chunk)
        try:
            await asyncio.wait_for(done.reached, SETTLE_S)
        except TimeoutError:
            self._fail_stop(ExitCode.SETTLE_DEADLINE, f"reached {chunk.reached}")
            self._process.check()
        return self._outcomes.judge(assigned, chunk, _UNMARKED) or assigned.held is None

    def _recover(self, assigned: Assigned) -> bool:
        partition, assigned.recovering = assigned.partition, False
        try:
            assigned.table = attempt(self._recovery, partition, lambda: False)
        except LogRefused as refused:
            self.hold(assigned, f"{type(refused).__name__}: {refused}")
            if isinstance(refused, EarlierBehind):
                self._broker.timeline.outside(TRY_S, lambda: self.resume(partition))
            return False
        if assigned.table is None:
            assigned.recovering = True
            return False
        assigned.found_note = self._broker.group.notes.get(partition, "")
        self.noted.ring()
        self._worker.outside.timeline.note(
            "recovered", self._worker.name, partition, assigned.table.applied
        )
        return True

    def _cut(self, table: PartitionTable, records_max: int) -> list[Record]:
        log = self._broker.logs[topics.EVENTS][table.log.partition]
        begin = self._broker.begins.get((topics.EVENTS, table.log.partition), 0)
        assert table.applied + 1 >= begin, "what comes next is gone"
        waiting = log[table.applied + 1 :][: records_max + 1]
        messages = [Message(topics.EVENTS, table.log.partition, record) for record in waiting]
        records, _ = cut(
            cast("Any", messages), table, records_max=records_max, bytes_max=CHUNK_BYTES_MAX
        )
        return records

    def _chunk(self, table: PartitionTable, records: list[Record]) -> Chunk:
        clock, question = self._worker.clock, self._inquiry.ask(topics.EVENTS)
        life = TopicLife(table.layout.life_id, table.layout.partitions)
        fence = Fence(
            clock.elapsed_s, clock.elapsed_s(), session_s=SESSION_S,
            commit=lambda: self._broker.group.commit(self._process), what="a chunk",
        )  # fmt: skip
        return Chunk(
            table.log, table.applied + 1, records[-1].offset, records, table,
            guards=Guards(
                verify_log=lambda: self._inquiry.verify(table.log, life, question),
                fence=fence.ask,
                crash_at=self._process.step,
            ),
        )  # fmt: skip

    def _acknowledged(self, log: LogId) -> int:
        database = self._worker.outside.database
        if database.away:
            return -1
        return database.tables.positions.get((log_uuid(log.topic_id), log.partition), -1)

    def _layout(self, life_id: str, partitions: int, partition: int) -> Layout | None:
        """As `Lineage` has it, which asks on another thread."""
        if not (self._lives and self._lives[-1].partitions == partitions):
            database = self._worker.outside.database
            if database.away:
                return None
            self._lives = lives_of(database.tables)
        lives = self._lives if life_id == TOPIC_ID else ()
        return laid_out(lives, life_id, partitions, partition)

    def _before(self, log: LogId) -> Told | None:
        database = self._worker.outside.database
        tables = database.tables

        def position(one: Inherited) -> int | None:
            return None if database.away else tables.positions.get((one.log_id, one.partition), -1)

        return told_of(self._lives, log.partition, position)


def lives_of(tables: Tables) -> tuple[Life, ...]:
    """The topic's one life, as far as the ledger was told of it."""
    spans = sorted(tables.spans.items(), key=lambda item: item[1].first_partition)
    logs = [Log(log_id, s.first_partition, s.partitions, s.boundaries) for log_id, s in spans]
    return (Life(tuple(logs)),) if logs else ()


class Done:
    """A chunk's end, awaited on the loop instead of by a thread."""

    def __init__(self) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self) -> None:
        if not self.reached.done():
            self.reached.set_result(None)

    def is_set(self) -> bool:
        return self.reached.done()
