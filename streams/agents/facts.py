"""Hop 6: what a partition's state holds for the ledger → one transaction → acknowledged.

Facts wait in the state until the ledger has confirmed them, however long it is away; admission goes
on meanwhile. A ledger that knows less than it once confirmed went back in time: the worker then
stops telling and publishing, and says so, until a person has looked.
"""

from collections.abc import Iterable
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
    Series,
    WentBack,
)
from streams.core.identity import log_uuid
from streams.core.level import CellKey, Key, cell_fact, level_fact
from streams.engine.errors import TableClosed
from streams.engine.settlement import unsent_offset
from streams.ports import FactsLedger, LedgerUnavailableError

UNSENT_LIMIT: Final = 5_000
"""Stored facts in one batch, at most; readings come on top."""
log = structlog.get_logger("facts")


@dataclass(slots=True)
class FactFigures:
    """Counts since the start, for metrics and the status line."""

    batches: int = 0
    facts: int = 0
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

    def __init__(self, ledger: FactsLedger) -> None:
        self._ledger = ledger
        self.figures = FactFigures()

    async def send(self, memories: Iterable[PartitionMemory]) -> None:
        """One round over all partitions that this worker owns now."""
        for memory in memories:
            if self.figures.went_back is not None:
                return
            try:
                while await self._send_one(memory):
                    pass
            except TableClosed:
                continue  # the partition was handed over; its next owner tells
            except LedgerUnavailableError as error:
                self.figures.ledger_failures += 1
                log.warning("ledger_unavailable", doing="facts", error=str(error))
                return

    async def _send_one(self, memory: PartitionMemory) -> bool:
        """One batch; whether there is more to tell right away."""
        collected, more = collect(memory)
        if collected is None:
            return False
        answer = await self._ledger.apply_facts(collected.batch)
        match answer:
            case Applied():
                self.figures.batches += 1
                self.figures.refused_readings += answer.findings
                memory.acknowledge(collected.batch.position, collected.told, collected.keys)
            case WentBack():
                self.figures.went_back = (
                    f"the ledger knows {memory.table.log} up to offset {answer.stored}, but had "
                    f"confirmed {answer.acknowledged}: it was restored from a backup or failed "
                    "over. Nothing is published until `tailrace ledger adopt` has settled it."
                )
                log.critical("ledger_went_back", message=self.figures.went_back)
                return False
            case _ as unreachable:
                assert_never(unreachable)
        return more


def collect(memory: PartitionMemory) -> tuple[Collected | None, bool]:
    """Everything unsent of one partition up to a position, and whether more is left.

    The position never passes a fact that is not in the batch: with too many stored facts for one
    batch it stops before the first that was left out.
    """
    table = memory.table
    applied = table.applied
    stored = table.unsent(UNSENT_LIMIT + 1, applied)
    more = len(stored) > UNSENT_LIMIT
    position = applied
    if more:
        position = unsent_offset(stored[-1][0]) - 1
        stored = [pair for pair in stored if unsent_offset(pair[0]) <= position]
    dirty, readings = tuple(memory.dirty), memory.readings
    if position <= table.acknowledged and not dirty and not stored:
        return None, False
    facts = [fact_codec.decode(value) for _, value in stored]
    batch = FactBatch(
        log_topic=table.log.topic,
        log_id=log_uuid(table.log.topic_id),
        partition=table.log.partition,
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
