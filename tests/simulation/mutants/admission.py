"""Bugs between the log and the state."""

from dataclasses import replace
from typing import Any, Final

from msgspec.structs import replace as changed

from streams.agents import admit
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.memory import PartitionMemory
from streams.core import admission, verdict
from streams.core.catalogue import Catalogue
from streams.core.instant import DAY_US, HOUR_US
from streams.core.verdict import Accepted
from streams.engine import recovery
from streams.engine.chunk import Chunk
from streams.engine.generations import with_ids
from streams.engine.log_guard import TopicInquiry
from streams.engine.packed_reader import PackedReader
from streams.engine.settle import write as write_in_order
from streams.engine.settlement import Settlement
from streams.engine.store import LEVELS, UNSENT, seen_family
from streams.engine.table import PartitionTable
from tests.simulation.feeder import Feeder
from tests.simulation.mutants import Mutant, Patch
from tests.simulation.mutants.layers import ignore_holes

_settlement_of = admit.settlement_of
_judge_by = verdict._judge_by
_refresh = CatalogueBook.refresh


def _forgets_ids(patch: Patch) -> None:
    def settlement_of(*given: Any) -> Any:
        settlement = _settlement_of(*given)
        settlement.seen = []
        return settlement

    patch.setattr(admit, "settlement_of", settlement_of)


def _marks_before_outputs(patch: Patch) -> None:
    async def settle(
        self: Any, chunk: Chunk, memory: PartitionMemory, decided: Any, catalogue: Catalogue
    ) -> None:
        await chunk.verify_log()
        await chunk.fence()
        await write_in_order(chunk, _settlement_of(chunk, decided, catalogue), self._packed_log)
        memory.settled(decided.readings, catalogue.hash)
        await self._produce(decided)

    patch.setattr(admit.Admitter, "_settle", settle)


def _bare(settlement: Settlement) -> Settlement:
    """The offset alone."""
    return replace(settlement, seen=[], pinned=[], levels=[], unsent=[], received_max_us=-1)


def _write_contents(table: PartitionTable, settlement: Settlement) -> None:
    """Everything but the offset."""
    number = table.generation_at(table.time_after(settlement))
    fresh = {key for key, _ in settlement.levels} - table._level_keys
    meta = table.meta
    after = changed(
        meta,
        levels=meta.levels + len(fresh),
        unsent=meta.unsent + len({key for key, _ in settlement.unsent} - _keys(table)),
        generations=with_ids(
            meta.generations, number,
            received_max_us=settlement.received_max_us, ids=len(settlement.seen),
        ),
    )  # fmt: skip

    def fill(batch: Any) -> None:
        batch.put(seen_family(number % 4), settlement.seen)
        batch.put(LEVELS, settlement.levels)
        batch.put(UNSENT, settlement.unsent)

    table.replace(fill, after)
    table._level_keys |= fresh


def _keys(table: PartitionTable) -> set[bytes]:
    return {key for key, _ in table._store.walk(UNSENT)}


def _commits_before_settling(patch: Patch) -> None:
    async def settle(
        self: Any, chunk: Chunk, memory: PartitionMemory, decided: Any, catalogue: Catalogue
    ) -> None:
        await chunk.verify_log()
        await chunk.fence()
        settlement = _settlement_of(chunk, decided, catalogue)
        chunk.table.settle(_bare(settlement))
        await self._produce(decided)
        chunk.step("outputs_produced")
        await self._packed_log.append(chunk.table, settlement)
        _write_contents(chunk.table, settlement)
        memory.settled(decided.readings, catalogue.hash)

    patch.setattr(admit.Admitter, "_settle", settle)


def _writes_state_before_the_packed_record(patch: Patch) -> None:
    async def write(chunk: Chunk, settlement: Settlement, packed_log: Any) -> None:
        chunk.table.settle(settlement)
        chunk.step("batch_written")
        await packed_log.append(chunk.table, settlement)
        chunk.step("packed_produced")

    patch.setattr(admit, "write", write)


def _writes_the_offset_apart(patch: Patch) -> None:
    async def write(chunk: Chunk, settlement: Settlement, packed_log: Any) -> None:
        _write_contents(chunk.table, settlement)
        chunk.step("batch_written")
        await packed_log.append(chunk.table, settlement)
        chunk.table.settle(_bare(settlement))

    patch.setattr(admit, "write", write)


def _forgets_by_the_clock(patch: Patch) -> None:
    def enter(self: Any, timestamp_ms_max: int) -> None:
        self.time_ms = max(self.meta.log_time_ms, timestamp_ms_max, self.clock_ms())
        self._entered = self.generation_at(self.time_ms)

    def time_after(self: Any, _settlement: Settlement) -> int:
        return int(self.time_ms)

    _put_chunk = Feeder._chunk

    def chunk(self: Any, table: Any, records: Any) -> Chunk:
        table.clock_ms = lambda: self._worker.clock.now_us() // 1_000
        return _put_chunk(self, table, records)

    patch.setattr(Feeder, "_chunk", chunk)
    patch.setattr(PartitionTable, "enter", enter)
    patch.setattr(PartitionTable, "time_after", time_after)


def _has_no_floor(patch: Patch) -> None:
    patch.setattr(PartitionTable, "floor_us", property(lambda _self: -1))


def _reads_a_book_of_its_own(patch: Patch) -> None:
    async def refresh(self: Any) -> bool:
        answered = await _refresh(self)
        book, name = self._catalogue, self._ledger._pool._process.name
        if book is not None and name.startswith("w0"):
            mine = [m._replace(skew_max_us=min(m.skew_max_us, HOUR_US)) for m in book.versions]
            self._catalogue = Catalogue(tuple(mine), book.read_at_us, book.notice_us)
        return answered

    patch.setattr(CatalogueBook, "refresh", refresh)


def _takes_any_book(patch: Patch) -> None:
    patch.setattr("streams.agents.catalogue_book.is_prefix", lambda *_: True)


def _counts_conflicts(patch: Patch) -> None:
    def conflict(self: Any, record: Any, event: Any, _first: str, *, signed: bool) -> None:
        del signed
        found = verdict.judge(
            event, self.catalogue, self.place.floor_us,
            logged_at_us=record.timestamp_ms * 1_000, fresh=True,
        )  # fmt: skip
        if isinstance(found, Accepted):
            self._accept(record, event, found)

    patch.setattr(admission._Admission, "_conflict", conflict)


def _drops_conflicts(patch: Patch) -> None:
    patch.setattr(admission._Admission, "_conflict", lambda *_given, **_named: None)


def _counts_late_usage(patch: Patch) -> None:
    def judge_by(event: Any, meter: Any, floor_us: int) -> Any:
        return _judge_by(event, meter._replace(skew_max_us=365 * DAY_US), floor_us)

    patch.setattr(verdict, "_judge_by", judge_by)


def _asks_for_no_log_id(patch: Patch) -> None:
    async def verify(*_: Any) -> None:
        """Any log of that name will do."""

    patch.setattr(TopicInquiry, "verify", verify)
    patch.setattr(recovery._Attempt, "_identified", lambda _, table: table)
    patch.setattr(PackedReader, "_kept", lambda _, record, _partition: record)


def _compares_no_position(patch: Patch) -> None:
    patch.setattr(recovery, "check_position", lambda *_: None)


MUTANTS: Final = (
    Mutant(
        "ids_not_written",
        "what was seen is in the same batch as the applied offset",
        _forgets_ids,
        ("identity_phantom", "double"),
        ("all_emitted_again",),
    ),
    Mutant(
        "marked_before_outputs",
        "outputs are on the broker before the state says that a chunk is settled",
        _marks_before_outputs,
        ("output_lost",),
        ("killed_after_batch",),
    ),
    Mutant(
        "offset_before_settling",
        "the source offset moves with what it stands for, not before",
        _commits_before_settling,
        ("lost", "identity_lost", "replay"),
        ("killed_after_outputs",),
    ),
    Mutant(
        "packed_record_after_the_batch",
        "a table that has applied a chunk is never the only one that knows it",
        _writes_state_before_the_packed_record,
        ("lost", "double", "identity_lost", "identity_phantom"),
        ("killed_after_batch", "machines_replaced", "all_emitted_again"),
        ("a hole in the packed log is filled from the source",),
        ignore_holes,
    ),
    Mutant(
        "offset_not_in_the_batch",
        "the applied offset is in the batch of what it stands for",
        _writes_the_offset_apart,
        ("double", "identity_phantom"),
        ("killed_after_batch",),
        ("ids tell copies",),
        _forgets_ids,
    ),
    Mutant(
        "expiry_by_the_clock",
        "what is forgotten follows the log's time, never a worker's clock",
        _forgets_by_the_clock,
        ("double", "identity_phantom"),
        ("clocks_far_ahead", "all_emitted_again"),
        ("copies of what was forgotten go to review",),
        _has_no_floor,
    ),
    Mutant(
        "offsets_of_any_log",
        "an applied offset means the log of its id, not every log of that name",
        _asks_for_no_log_id,
        ("lost", "identity_lost"),
        ("another_log",),
        ("a log continues where the state ends, by its last record",),
        _compares_no_position,
    ),
    Mutant(
        "rule_book_of_its_own",
        "every worker judges by the ledger's rule book",
        _reads_a_book_of_its_own,
        ("lost", "review_phantom"),
        (),
        ("a rule book never changes its lines",),
        _takes_any_book,
    ),
    Mutant(
        "conflict_counted",
        "other content under a known identity waits for a person",
        _counts_conflicts,
        ("double", "phantom", "silent"),
    ),
    Mutant(
        "conflict_dropped",
        "other content under a known identity is seen by somebody",
        _drops_conflicts,
        ("silent",),
    ),
    Mutant(
        "late_counted",
        "usage past the cutoff is billed only if a person says so",
        _counts_late_usage,
        ("double", "phantom", "silent"),
    ),
)
