"""Hop 6: what a partition's state holds for the ledger → one transaction → acknowledged.

Facts wait in the state until the ledger has confirmed them, however long it is away; admission goes
on meanwhile. A ledger that knows less than it once confirmed went back in time: the worker then
stops telling and publishing, and says so, until a person has looked.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import structlog

from streams.agents.memory import PartitionMemory
from streams.core import fact_codec
from streams.core.fact import (
    Applied,
    CanaryFact,
    CorrectionFact,
    EventFact,
    FactBatch,
    ParkedFact,
    Remembered,
    Series,
    WentBack,
)
from streams.core.identity import log_uuid
from streams.core.level import CellKey, Key, cell_fact, level_fact
from streams.engine.errors import TableClosed
from streams.engine.table import PartitionTable
from streams.ports import FactsLedger, LedgerUnavailableError

UNSENT_LIMIT: Final = 5_000
"""Stored facts in one batch, at most; readings come on top."""
TOGETHER: Final = 4
"""Partitions told of at a time: the ledger's disk takes several commits in one go."""
log = structlog.get_logger("facts")


@dataclass(slots=True)
class FactFigures:
    """Counts since the start, for metrics and the status line."""

    batches: int = 0
    events: int = 0
    """Of them those that are entries of their own."""
    refused_readings: int = 0
    ledger_failures: int = 0
    went_back: str | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """A batch, and what to mark in the state once it is acknowledged."""

    batch: FactBatch
    told: tuple[Key, ...]
    keys: tuple[bytes, ...]


class FactSender:
    """Tells the ledger, partition by partition."""

    def __init__(self, ledger: FactsLedger, rebuild: Callable[[int], None]) -> None:
        """Args: the ledger, and how a partition's state is read again from the packed log."""
        self._ledger = ledger
        self.figures = FactFigures()
        self._rebuild = rebuild
        self._given_up: dict[int, PartitionTable] = {}
        self._compared: dict[int, PartitionTable] = {}
        """Tables whose memory was held against the ledger's, by partition."""

    async def check(self, memories: Sequence[PartitionMemory]) -> bool:
        """Whether the ledger holds all that it ever confirmed; False when it cannot say.

        Asked before anything is published. A difference that a person has adopted is made good: the
        partition's state is read again, and what the ledger lacks is told again.
        """
        known = {}
        for memory in memories:
            log_id = memory.table.log
            known[
                Remembered(
                    log_id.topic,
                    log_uuid(log_id.topic_id),
                    log_id.partition,
                    memory.table.confirmed,
                )
            ] = memory
        try:
            behind = await self._ledger.behind(tuple(known)) if known else ()
        except LedgerUnavailableError as error:
            self.figures.ledger_failures += 1
            log.warning("ledger_unavailable", doing="check", error=str(error))
            return False
        self.figures.went_back = None
        for remembered, answer in behind:
            self._went_back(known[remembered], answer)
        lacking = {id(known[remembered]) for remembered, answer in behind if not answer.adopted}
        for memory in memories:
            if id(memory) not in lacking:
                self._compared[memory.table.log.partition] = memory.table
        return not behind

    async def send(self, memories: Sequence[PartitionMemory]) -> int | None:
        """One round over all partitions that this worker owns now.

        Returns the number of events among what was told; None where the ledger did not take all.

        A table that was just read is compared first: telling would move a restored ledger past what
        it has forgotten, and nobody would notice.
        """
        if self.figures.went_back is not None or not all(map(self._is_compared, memories)):
            await self.check(memories)
        before = self.figures.events
        left = filter(self._is_compared, memories)
        told = await asyncio.gather(*(self._send_of(left) for _ in range(TOGETHER)))
        return self.figures.events - before if all(told) else None

    async def _send_of(self, left: Iterator[PartitionMemory]) -> bool:
        """Tells of one partition after the other; False once the ledger does not take it."""
        for memory in left:
            if self.figures.went_back is not None:
                return False
            try:
                while await self._send_one(memory):
                    pass
            except TableClosed:
                continue  # the partition was handed over; its next owner tells
            except LedgerUnavailableError as error:
                self.figures.ledger_failures += 1
                log.warning("ledger_unavailable", doing="facts", error=str(error))
                return False
        return True

    def _is_compared(self, memory: PartitionMemory) -> bool:
        return self._compared.get(memory.table.log.partition) is memory.table

    async def _send_one(self, memory: PartitionMemory) -> bool:
        """One batch; whether there is more to tell right away."""
        collected, more = collect(memory)
        if collected is None:
            return False
        answer = await self._ledger.apply_facts(collected.batch)
        match answer:
            case Applied():
                self.figures.batches += 1
                self.figures.events += len(collected.batch.events)
                self.figures.refused_readings += answer.findings
                memory.acknowledge(collected.batch.position, collected.told, collected.keys)
            case WentBack():
                self._went_back(memory, answer)
                return False
            case _ as unreachable:
                assert_never(unreachable)
        return more

    def _went_back(self, memory: PartitionMemory, answer: WentBack) -> None:
        table = memory.table
        if answer.adopted:
            # Read again already, or by a worker that never spoke with the lost one: all is unsent.
            if table.acknowledged <= answer.stored:
                return
            if self._given_up.get(table.log.partition) is not table:
                self._given_up[table.log.partition] = table
                log.warning(
                    "told_again",
                    log=str(table.log),
                    partition=table.log.partition,
                    offset=answer.stored + 1,
                )
                self._rebuild(table.log.partition)
            return
        self.figures.went_back = (
            f"the ledger knows {table.log} up to offset {answer.stored}, but had "
            f"confirmed {answer.acknowledged}: it was restored from a backup or failed "
            "over. Nothing is published until `tailrace ledger adopt` has settled it."
        )
        log.critical("ledger_went_back", message=self.figures.went_back)


def collect(memory: PartitionMemory) -> tuple[Collected | None, bool]:
    """What one partition has to tell in one batch, and whether more is left.

    Stored facts that are too many for one batch go first, without a position. Readings and the
    position come with the last of them: so the ledger's readings never run ahead of the position,
    and a position says exactly what the ledger holds.
    """
    table = memory.table
    applied = table.applied
    stored = table.unsent(UNSENT_LIMIT + 1, applied)
    more = len(stored) > UNSENT_LIMIT
    stored = stored[:UNSENT_LIMIT]
    position = table.acknowledged if more else applied
    dirty = () if more else tuple(memory.dirty)
    readings = memory.readings
    if position <= table.acknowledged and not dirty and not stored:
        return None, False
    facts = [fact_codec.decode(value) for _, value in stored]
    batch = FactBatch(
        log_topic=table.log.topic,
        log_id=log_uuid(table.log.topic_id),
        partition=table.log.partition,
        begun_with=table.layout.begun_with,
        acknowledged=table.acknowledged,
        position=position,
        catalogue_hash=memory.catalogue_hash.hex(),
        levels=tuple(level_fact(k, readings[k]) for k in dirty if isinstance(k, Series)),
        events=tuple(f for f in facts if isinstance(f, EventFact)),
        corrections=tuple(f for f in facts if isinstance(f, CorrectionFact)),
        parked=tuple(f for f in facts if isinstance(f, ParkedFact)),
        cells=tuple(cell_fact(k, readings[k]) for k in dirty if isinstance(k, CellKey)),
        canaries=tuple(f for f in facts if isinstance(f, CanaryFact)),
    )
    return Collected(batch, dirty, tuple(key for key, _ in stored)), more
