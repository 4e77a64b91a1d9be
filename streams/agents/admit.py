"""Hops 3 to 5: a chunk of the events topic → verdicts, outputs, packed record, state.

The order of effects is the guarantee, and each step is awaited: decide (pure), ask whose log it is,
produce the outputs, produce one packed record, write the state in one batch. A worker that dies
between any two of them repeats outputs at most; it never forgets an event nor counts one twice.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from streams import topics
from streams.adapters.clock import Clock
from streams.agents.bell import Bell
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.holds import record_held
from streams.agents.memory import PartitionMemory, memory_of
from streams.core import fact_codec
from streams.core.admission import decide
from streams.core.catalogue import Catalogue
from streams.core.decided import AwaitFresh, Decided, Hold, Place
from streams.core.fact import EventFact
from streams.core.identity import log_uuid
from streams.core.level import encode_key, encode_reading
from streams.core.orders import HeldRecord
from streams.engine.chunk import Chunk
from streams.engine.errors import DeliveryFailed, PartitionHeld
from streams.engine.log import anchor_of
from streams.engine.packed_log import PackedLog
from streams.engine.settle import write
from streams.engine.settlement import Settlement, unsent_key
from streams.ports import Outputs, UndeliveredError

CATALOGUE_DEADLINE_S: Final = 20.0
log = structlog.get_logger("admit")


@dataclass(slots=True)
class AdmitFigures:
    """Counts since the start, by verdict; for metrics and the status line."""

    chunks: int = 0
    records: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)


def _nobody_asks(_held: HeldRecord) -> None:
    """For tests and replays without a ledger to tell."""


class Admitter:
    """The agent's body: one chunk at a time."""

    def __init__(
        self,
        book: CatalogueBook,
        outputs: Outputs,
        packed_log: PackedLog,
        clock: Clock,
        home: Callable[[bytes], int],
        note_held: Callable[[HeldRecord], None] = _nobody_asks,
    ) -> None:
        self._book = book
        self._outputs = outputs
        self._packed_log = packed_log
        self._clock = clock
        self._home = home
        self._note_held = note_held
        self.figures = AdmitFigures()
        self.entries = Bell(clock.elapsed_s)
        """Rung when state holds an event that is an entry of its own: somebody waits for it."""

    async def admit(self, chunk: Chunk) -> None:
        """Settles the chunk, or as much of it as may be decided now.

        Raises:
            PartitionHeld: what is left waits for a person, newer code or the ledger; everything
                before it is settled.
            EngineError: the chunk was not settled and its table must be read again.
        """
        fetched_at_s = self._clock.elapsed_s()
        memory = memory_of(chunk.table)
        decided, catalogue = await self._decide(chunk, memory, fetched_at_s)
        chunk.step("decided")
        # Offsets before the first record may hold none (a transaction's marker): with nothing
        # decided there is nothing to settle, though `last` lies behind them.
        if decided.last >= chunk.records[0].offset:
            await self._settle(chunk, memory, decided, catalogue)
        if isinstance(decided.stop, Hold):
            if decided.stop.by_record:
                self._note_held(held_record(chunk, decided.stop))
            raise PartitionHeld(decided.stop.reason)
        chunk.settled()

    async def _decide(
        self, chunk: Chunk, memory: PartitionMemory, fetched_at_s: float
    ) -> tuple[Decided, Catalogue]:
        so_far: tuple[Decided, Catalogue] | None = None
        catalogue = self._book.catalogue
        if catalogue is not None:
            fresh = self._book.is_younger_than(fetched_at_s)
            decided = decide(chunk.records, self._place(chunk, memory), catalogue, fresh=fresh)
            if not isinstance(decided.stop, AwaitFresh):
                return decided, catalogue
            so_far = decided, catalogue
        catalogue = await self._book.younger_than(fetched_at_s, CATALOGUE_DEADLINE_S)
        if catalogue is None:
            return _without_ledger(so_far)
        decided = decide(chunk.records, self._place(chunk, memory), catalogue, fresh=True)
        if isinstance(decided.stop, AwaitFresh):
            reason = (
                f"the record at offset {decided.stop.offset} lies beyond what the catalogue can "
                "answer for: compare the clocks of the ledger and of the service's database"
            )
            decided.stop = Hold(decided.stop.offset, reason)
        return decided, catalogue

    def _place(self, chunk: Chunk, memory: PartitionMemory) -> Place:
        partition, layout = chunk.log.partition, chunk.table.layout
        return Place(
            topic=chunk.log.topic,
            partition=partition,
            lookup=chunk.table.seen,
            home=self._home,
            readings=memory.readings,
            floor_us=chunk.table.floor_us,
            suspect=chunk.suspect,
            skips=self._book.orders.of(log_uuid(chunk.log.topic_id), partition),
            settled_at=layout.settled_at,
            home_before=layout.home_before,
            origins=layout.origins,
        )

    async def _settle(
        self, chunk: Chunk, memory: PartitionMemory, decided: Decided, catalogue: Catalogue
    ) -> None:
        await chunk.verify_log()
        await chunk.fence()
        await self._produce(decided)
        chunk.step("outputs_produced")
        settlement = settlement_of(chunk, decided, catalogue)
        await write(chunk, settlement, self._packed_log)
        memory.settled(decided.readings, catalogue.hash)
        self.figures.chunks += 1
        self.figures.records += decided.last - chunk.first + 1
        self.figures.verdicts.update(decided.counts)
        if any(isinstance(fact, EventFact) for _, fact in decided.facts):
            self.entries.ring()

    async def _produce(self, decided: Decided) -> None:
        try:
            for topic, records in (
                (topics.ACCEPTED, decided.accepted),
                (topics.REVIEW, decided.review),
                (topics.DEAD_LETTER, decided.dead_letter),
            ):
                for key, value in records:
                    self._outputs.produce(topic, key, value)
            await self._outputs.flush()
        except UndeliveredError as error:
            # Without this name the records would be blamed for it, and in the end parked unread.
            raise DeliveryFailed(str(error)) from error


WAITS_FOR_LEDGER: Final = "waits for the ledger: the meter catalogue could not be read"


def _without_ledger(so_far: tuple[Decided, Catalogue] | None) -> tuple[Decided, Catalogue]:
    """What the last reading could decide is settled; only the rest waits for the ledger.

    Raises:
        PartitionHeld: there was no reading at all yet.
    """
    if so_far is None:
        raise PartitionHeld(WAITS_FOR_LEDGER)
    decided, catalogue = so_far
    decided.stop = Hold(decided.last + 1, WAITS_FOR_LEDGER)
    return decided, catalogue


def held_record(chunk: Chunk, stop: Hold) -> HeldRecord:
    """The record that a chunk stopped before."""
    record = next(record for record in chunk.records if record.offset == stop.offset)
    return record_held(chunk.log, record, stop.reason)


def settlement_of(chunk: Chunk, decided: Decided, catalogue: Catalogue) -> Settlement:
    """What the decided part of a chunk leaves behind."""
    whole = decided.last == chunk.last
    records = chunk.records
    if not whole:
        records = [record for record in records if record.offset <= decided.last]
    last = records[-1]
    return Settlement(
        first=chunk.first,
        last=decided.last,
        anchor=anchor_of(last.offset, last.key, last.value),
        catalogue_hash=catalogue.hash,
        timestamp_ms_max=max(record.timestamp_ms for record in records),
        received_max_us=decided.received_max_us if decided.seen else -1,
        seen=decided.seen,
        pinned=decided.pinned,
        levels=[(encode_key(k), encode_reading(r)) for k, r in decided.readings.items()],
        unsent=[
            (unsent_key(offset, sequence), fact_codec.encode(fact))
            for sequence, (offset, fact) in enumerate(decided.facts)
        ],
    )
