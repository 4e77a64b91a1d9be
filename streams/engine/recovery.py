"""A partition that was just assigned → its table, equal to what every worker so far has settled.

A table that was kept here reads on in the packed log from where it stopped (warm). Without one, or
when the packed log does not continue it, everything is read (cold). When the packed log does not
reach back far enough, the source log itself is judged again from its start. When that does not
either, the partition is held for a person.
"""

import shutil
import threading
from contextlib import closing
from typing import Final

import msgspec
import structlog
from confluent_kafka import KafkaException

from streams.engine.absorb import absorb
from streams.engine.before import CONTINUE, Before, LedgerSilent
from streams.engine.data_dir import quarantine
from streams.engine.errors import (
    LogRecreated,
    RecoveryCancelled,
    RecoveryGap,
    StateDamaged,
    StateLocked,
)
from streams.engine.kafka_faults import error_of, is_passing, text_of
from streams.engine.log import LogId
from streams.engine.log_reader import Cancelled, LogReader
from streams.engine.packed import PackedRecord
from streams.engine.packed_reader import PackedReader, continuing
from streams.engine.ranges import Coverage
from streams.engine.recovery_needs import Recovery
from streams.engine.source_check import check_position, source_marks
from streams.engine.table import PartitionTable, open_table
from streams.engine.topic_check import follow_count, layout_of, life_of

RETRY_PAUSE_S: Final = 0.5
log_ = structlog.get_logger("engine")


def recover(recovery: Recovery, partition: int, cancelled: Cancelled) -> PartitionTable:
    """Recover one partition; tries again while the broker is away. Blocks.

    Raises:
        EarlierBehind: the partition waits for another, which may be this worker's next.
        LogRefused: the partition must be held; the text says what to do.
        RecoveryCancelled: the partition moved away meanwhile; nothing is left open.
        StateUnavailable: the disk is full or not accessible.
        KafkaException: the broker refuses in a way that does not pass.
    """
    pause = threading.Event()
    while (table := attempt(recovery, partition, cancelled)) is None:
        if cancelled():
            raise RecoveryCancelled(f"{recovery.topic}[{partition}]: moved away")
        pause.wait(RETRY_PAUSE_S)
    return table


def attempt(recovery: Recovery, partition: int, cancelled: Cancelled) -> PartitionTable | None:
    """One try of `recover`; None where it has to be tried again."""
    try:
        with closing(LogReader(recovery.consumer())) as reader:
            return _Attempt(recovery, partition, reader, cancelled).run()
    except KafkaException as exception:
        error = error_of(exception)
        if not is_passing(error):
            raise
        log_.warning("recovery_waits", partition=partition, error=text_of(error))
    except (StateLocked, LedgerSilent) as obstacle:
        # A recovery that was cancelled has not let go of it yet, or only the ledger knows.
        log_.warning("recovery_waits", partition=partition, error=str(obstacle))
    except StateDamaged as damage:
        quarantine(recovery.directory.table(recovery.topic, partition), str(damage))
    return None


class _PackedGap(Exception):  # noqa: N818  # never leaves this module
    """The packed log does not continue the table kept here."""


class _Attempt:
    """One attempt at one partition."""

    def __init__(
        self, recovery: Recovery, partition: int, reader: LogReader, cancelled: Cancelled
    ) -> None:
        self._recovery = recovery
        self._partition = partition
        self._reader = reader
        self._cancelled = cancelled
        self._path = recovery.directory.table(recovery.topic, partition)
        self._layout = layout_of(recovery, partition)
        self._log = LogId(recovery.topic, self._layout.topic_id, partition)
        self._packed_id = life_of(recovery, recovery.packed_topic).topic_id
        self._acknowledged = recovery.acknowledged(self._log)
        self._before = Before(recovery.before(self._log))
        self._packed = PackedReader(reader, recovery, self._log, cancelled, self._before)

    def run(self) -> PartitionTable:
        table = self._opened()
        try:
            if table.meta.complete and (lacks := self._before.forgotten(table.meta.continued)):
                table = self._aside(table, f"made before its log was to continue others: {lacks}")
            if table.meta.complete:
                try:
                    self._warm(table)
                except _PackedGap as gap:
                    log_.warning("recovery_cold", log=str(self._log), reason=str(gap))
                    table = self._emptied(table)
            if not table.meta.complete:
                table = self._cold(table)
            # Asked last: other workers may have settled more while the packed log was read.
            marks = source_marks(self._reader, self._log, self._cancelled)
            check_position(self._reader, table, marks, self._acknowledged, self._cancelled)
            self._finish(table)
            table.layout = self._layout
        except BaseException:
            table.close()
            raise
        return table

    def _opened(self) -> PartitionTable:
        table = open_table(
            self._path,
            self._log,
            partitions=self._recovery.partitions,
            width_ms=self._recovery.width_ms,
            cache=self._recovery.cache,
        )
        try:
            table = self._identified(table)  # first: what is another's is given back as it was
        except BaseException:  # also when the ledger is silent and it is tried again
            table.close()
            raise
        acknowledged = max(table.meta.acknowledged, self._acknowledged)
        if table.meta.complete:
            acknowledged = min(acknowledged, table.applied)
        meta = msgspec.structs.replace(table.meta, acknowledged=acknowledged)
        table.replace(lambda _: None, meta)
        return table

    def _emptied(self, table: PartitionTable) -> PartitionTable:
        table.close()
        shutil.rmtree(self._path)
        self._before.begin_anew()
        return self._opened()

    def _aside(self, table: PartitionTable, reason: str) -> PartitionTable:
        table.close()
        quarantine(self._path, reason)
        return self._opened()

    def _identified(self, table: PartitionTable) -> PartitionTable:
        meta = table.meta
        if meta.topic_id != self._log.topic_id:
            if self._before.continues(meta.topic_id):
                # Kept: where the packed log is lost too, nothing else remembers the log before.
                return self._aside(table, f"of the log before, topic id {meta.topic_id}")
            raise LogRecreated(
                f"{self._log}: the state here is of another topic of that name, id "
                f"{meta.topic_id}; nothing is read. Either this data directory belongs to another "
                "installation: give this worker its own (TAILRACE_DATA_DIR). Or the topic was "
                f"deleted and created again. {CONTINUE}"
            )
        return follow_count(table, self._layout)

    # -- warm --------------------------------------------------------------------------------------

    def _warm(self, table: PartitionTable) -> None:
        """Read on in the packed log, keeping to what continues the table."""
        low, high = self._packed.marks()
        meta = table.meta
        start = max(meta.packed_next, low)
        if meta.packed_topic_id != self._packed_id or meta.packed_next > high:
            log_.warning("packed_log_replaced", log=str(self._log), packed_id=self._packed_id)
            start = low
        waiting: list[PackedRecord] = []
        for group, after in self._packed.groups(start, high):
            ready, waiting = continuing(table.applied, waiting + group)
            # What waits would be skipped by the next start if the position moved past it.
            absorb(
                table,
                ready,
                self._recovery.rules,
                table.meta.packed_next if waiting else after,
            )
        if waiting:
            raise _PackedGap(
                f"the packed log goes on at source offset {min(r.first for r in waiting)}, the "
                f"table here ends at {table.applied}"
            )
        self._settle_position(table, high)

    def _settle_position(self, table: PartitionTable, packed_next: int) -> None:
        meta = msgspec.structs.replace(
            table.meta, packed_next=packed_next, packed_topic_id=self._packed_id
        )
        if meta != table.meta:
            table.replace(lambda _: None, meta)

    # -- cold --------------------------------------------------------------------------------------

    def _cold(self, table: PartitionTable) -> PartitionTable:
        """Rebuild from the packed log, or else from the source."""
        low, high = self._packed.marks()
        coverage = Coverage()
        times: dict[int, int] = {}
        for group, after in self._packed.groups(low, high):
            for record in group:
                if record.last >= 0 and coverage.add(record.first, record.last):
                    times[record.first] = record.timestamp_ms_max
            absorb(table, group, self._recovery.rules, after)
        newest = coverage.newest()
        reaches_alone = newest is not None and self._reaches_back(table, times[newest[0]])
        if not reaches_alone:
            self._inherit(table)
            # Not before: a log without a record of its own has the time of what it remembers.
            if missing := self._before.missing(table.log_time_ms - self._recovery.reach_back_ms):
                raise RecoveryGap(
                    f"{self._log}: the state cannot be rebuilt. The packed log "
                    f"{self._recovery.packed_topic} lacks {missing}: copies of what was counted "
                    "there would count again. Restore the packed log"
                )
        if newest is None or not (
            (newest[0] == 0 or reaches_alone) and self._reaches_facts(newest[0])
        ):
            table = self._emptied(table)
            self._remember(table, low, high)
            self._from_source(table, newest)
        self._settle_position(table, high)
        return table

    def _reaches_back(self, table: PartitionTable, first_ms: int) -> bool:
        return first_ms <= table.log_time_ms - self._recovery.reach_back_ms

    def _remember(self, table: PartitionTable, low: int, high: int) -> None:
        """Read again what earlier logs left, and nothing else."""
        for group, after in self._packed.groups(low, high):
            absorb(table, [r for r in group if r.last < 0], self._recovery.rules, after)
        self._inherit(table)

    def _inherit(self, table: PartitionTable) -> None:
        """Read what other partitions of the packed log hold of the keys that came from there."""
        for group in self._packed.elsewhere():
            absorb(table, group, self._recovery.rules, table.meta.packed_next)

    def _reaches_facts(self, first: int) -> bool:
        """Whether every fact that the ledger lacks is there.

        A ledger that does not know the log, or cannot be asked, is told what there is.
        """
        return self._acknowledged < 0 or first <= self._acknowledged + 1

    def _from_source(self, table: PartitionTable, packed: tuple[int, int] | None) -> None:
        """Start at the source log's first record: state is a pure fold of it."""
        marks = source_marks(self._reader, self._log, self._cancelled)
        reaches = marks.low == 0 or (
            marks.first_ms is not None
            and marks.last_ms is not None
            and marks.first_ms <= marks.last_ms - self._recovery.reach_back_ms
        )
        if not reaches:
            raise RecoveryGap(
                f"{self._log}: the state cannot be rebuilt. The packed log "
                f"{self._recovery.packed_topic} covers "
                + (f"offsets {packed[0]} to {packed[1]}" if packed else "nothing")
                + f", the source begins at {marks.low}; neither reaches back "
                f"{self._recovery.reach_back_ms} ms. Restore the data directory or the packed log"
            )
        if 0 <= self._acknowledged < marks.low - 1:
            # Nothing here can bring them back: the audit lists what they were.
            log_.error(
                "facts_out_of_reach",
                log=str(self._log),
                first=self._acknowledged + 1,
                last=marks.low - 1,
                remedy="the ledger was restored from before both logs begin: `tailrace audit`",
            )
        if packed is not None:
            log_.warning("recovery_from_source", log=str(self._log), packed=packed)
        # Ids of records that retention removed are unknown: copies of them carry a received_at
        # from before the log's first record, so those are for a person.
        floor_us = -1 if marks.low == 0 else (marks.first_ms or 0) * 1_000
        floor_us = max(table.meta.floor_us, floor_us)
        meta = msgspec.structs.replace(table.meta, applied=marks.low - 1, floor_us=floor_us)
        table.replace(lambda _: None, meta)

    def _finish(self, table: PartitionTable) -> None:
        if table.meta.complete:
            return
        table.flush()
        meta = msgspec.structs.replace(
            table.meta,
            complete=True,
            acknowledged=min(table.meta.acknowledged, table.applied),
            continued=self._before.continued,
        )
        table.replace(lambda _: None, meta)
