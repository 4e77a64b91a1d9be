"""Workers that die: one partition on real RocksDB, no broker.

The outside survives everything; the disk may be lost. `Life` is one worker from recovery to death:
the engine's own recovery and cut, the agents as they are.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import Cache

from streams import topics
from streams.agents.admit import Admitter
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.facts import FactSender
from streams.agents.memory import memory_of
from streams.core.fact import FactBatch
from streams.core.identity import log_uuid
from streams.core.level import newer
from streams.core.mark import earlier, from_version_1
from streams.core.orders import HeldRecord
from streams.crash_points import CrashAt, never
from streams.engine.absorb import MergeRules
from streams.engine.before import Told
from streams.engine.chunk import Chunk, Guards
from streams.engine.cut import cut
from streams.engine.data_dir import DataDirectory
from streams.engine.errors import ChunkRefused, PartitionHeld
from streams.engine.layout import LayoutOf, ungrown
from streams.engine.log_guard import TopicInquiry
from streams.engine.packed_log import PackedLog
from streams.engine.recovery import recover
from streams.engine.recovery_needs import Recovery
from streams.engine.table import PartitionTable
from tests.support.consumed import Message
from tests.support.events import Partition, Record
from tests.unit.agents.outside import (
    Admin,
    Broker,
    Clock,
    Consumer,
    Ledger,
    Outputs,
    PackedProducer,
)

YEAR_MS: Final = 366 * 24 * 3_600_000


class DeathError(BaseException):
    """The process is gone: nothing of it may run on, so nothing may catch this."""


@dataclass
class Death:
    """Dies at the nth passing of a step; the disk is kept or lost with the machine.

    Besides the steps of a chunk: `ledger_told`, when the ledger has a batch but nobody here knows.
    """

    step: str
    nth: int = 1
    disk_lost: bool = False

    def hook(self) -> CrashAt:
        remaining = self.nth

        def reached(step: str) -> None:
            nonlocal remaining
            if step == self.step:
                remaining -= 1
                if remaining == 0:
                    raise DeathError(step)

        return reached


class World:
    """One partition's surroundings."""

    def __init__(self, root: Path, source: Iterable[Record]) -> None:
        self.root = root
        self.broker = Broker(list(source))
        self.ledger = Ledger()
        self.clock = Clock()
        self.effects: list[str] = []
        self.width_ms = YEAR_MS
        self.reach_back_ms = 9 * YEAR_MS
        self.before: Callable[[], Told | None] = dict
        """What the ledger says of earlier logs."""
        self.layout: LayoutOf = ungrown
        """What it says of growths."""
        self._cache = Cache(8 << 20)
        self._lives = 0

    def recovered(self) -> PartitionTable:
        """The partition's table by the engine's own recovery."""
        broker, positions = self.broker, self.ledger.positions
        return recover(
            Recovery(
                topic=topics.EVENTS,
                packed_topic=topics.ADMIT_LOG,
                partitions=broker.partitions,
                directory=DataDirectory(self.root),
                width_ms=self.width_ms,
                reach_back_ms=self.reach_back_ms,
                rules=MergeRules(
                    pick_seen=earlier, merge_level=newer, from_version_1=from_version_1
                ),
                consumer=lambda: Consumer(broker),  # type: ignore[arg-type,return-value]  # its reading half
                inquiry=TopicInquiry(Admin(broker), self.clock.elapsed_s, patience_s=1),
                cache=self._cache,
                acknowledged=lambda log: positions.get((log_uuid(log.topic_id), log.partition), -1),
                layout=self.layout,
                before=lambda _log: self.before(),
            ),
            broker.partition,
            lambda: False,
        )

    def lose_disk(self) -> None:
        shutil.rmtree(self.root / "tables", ignore_errors=True)

    def expected(self, up_to: int | None = None) -> Partition:
        """The fold of the source by arithmetic of its own, up to an offset, inclusive."""
        records = [r for r in self.broker.source if up_to is None or r.offset <= up_to]
        oracle = Partition()
        return oracle.run(records) if records else oracle


class Life:
    """One worker, from its recovery to its end."""

    def __init__(self, world: World, crash_at: CrashAt = never) -> None:
        self.world = world
        self.crash_at = crash_at
        self.held: str | None = None
        self.refused: list[ChunkRefused] = []
        self.noted: list[HeldRecord] = []
        self.told: list[int | None] = []
        """What each round of facts came to."""
        self.outputs = Outputs(world.broker, world.effects)
        self.producer = PackedProducer(world.broker, world.effects)
        self.book = CatalogueBook(world.ledger, world.clock)
        self.admitter = Admitter(
            self.book,
            self.outputs,
            PackedLog(self.producer, topics.ADMIT_LOG, record_bytes_max=1 << 20),
            world.clock,
            lambda _key: world.broker.partition,
            self.noted.append,
        )
        self.sender = FactSender(world.ledger, self._rebuild)
        world.ledger.witness = self._only_what_is_written
        world.ledger.committed = lambda: self.crash_at("ledger_told")
        self.table = world.recovered()
        self._telling = self._feeding = False

    async def __aenter__(self) -> "Life":
        await self.book.refresh()
        self._reading = asyncio.get_running_loop().create_task(self.book.keep_fresh(0.01))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self.table.close()

    def chunk(self, records_max: int = 1_000) -> Chunk | None:
        """The next chunk, cut and entered as the feeder does it; None at the end."""
        applied = self.table.applied
        waiting = [r for r in self.world.broker.source if r.offset > applied]
        partition = self.world.broker.partition
        messages = [Message(topics.EVENTS, partition, r) for r in waiting]
        records, _ = cut(
            messages,  # type: ignore[arg-type]  # as far as cutting looks at them
            self.table,
            records_max=records_max,
            bytes_max=1 << 20,
        )
        if not records:
            return None
        chunk = Chunk(
            self.table.log,
            applied + 1,
            records[-1].offset,
            records,
            self.table,
            guards=Guards(crash_at=self.crash_at),
        )
        self.table.enter(chunk.timestamp_ms_max)
        chunk.step("fetched")
        return chunk

    async def feed(self, records_max: int = 1_000) -> bool:
        """Settles one chunk, and does with a refused one what the engine does; whether to go on."""
        chunk = self.chunk(records_max)
        if chunk is None or self.held is not None:
            return False
        self._feeding = True
        try:
            await self.admitter.admit(chunk)
        except PartitionHeld as held:
            self.held = str(held)
            self.discard()
        except ChunkRefused as refused:
            self.refused.append(refused)
            self.discard()
        finally:
            self._feeding = False
        return self.held is None

    def _rebuild(self, _partition: int) -> None:
        """What the feeder's thread does with the order."""
        self.table.give_up()
        self.discard()

    def discard(self) -> None:
        """Closes the table and reads it again, as after a chunk that was not settled."""
        self.table.close()
        self.table = self.world.recovered()

    async def tell(self) -> None:
        """One round of facts; never two at once, as in the worker's loop."""
        if not self._telling:
            self._telling = True
            self.told.append(await self.sender.send([memory_of(self.table)]))
            self._telling = False

    async def work(self, sizes: Sequence[int]) -> None:
        """Everything there is, with facts told after each chunk, beside it and between."""
        self.outputs.meanwhile = self.tell
        for turn in range(10_000):
            size = sizes[turn % len(sizes)]
            if turn % 2:
                self.world.ledger.meanwhile = self._feed_beside(size)
            if not await self.feed(size):
                break
            await self.tell()
        self.outputs.meanwhile = self.world.ledger.meanwhile = None
        await self.tell()

    def _feed_beside(self, size: int) -> Callable[[], Awaitable[None]]:
        async def feed() -> None:
            if not self._feeding:
                await self.feed(size)

        return feed

    def _only_what_is_written(self, batch: FactBatch) -> None:
        """The ledger must never be told what a crash right now would take back."""
        assert batch.position <= self.table.applied
        written = self.world.expected(self.table.applied).readings
        for level in batch.levels:
            assert level.series in written, "told of a level that is not written"
            assert level.count <= written[level.series].records, "told more than is written"
