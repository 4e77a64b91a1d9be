"""The partitions of this worker: assigned, recovered, handed back. The feeder's thread only.

Callbacks run inside `consume` and `close`, never while a chunk is in hand, so a partition that is
taken away has nothing half done.
"""

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from streams.engine.assigned import Assigned
from streams.engine.data_dir import quarantine
from streams.engine.errors import EarlierBehind, LogRefused, RecoveryCancelled, StateUnavailable
from streams.engine.fail_stop import ExitCode, FailStop
from streams.engine.group_offsets import GroupOffsets, Note, carried
from streams.engine.kafka_faults import error_of, text_of
from streams.engine.log_reader import Cancelled
from streams.engine.poison import Isolation
from streams.engine.table import PartitionTable

_COMMITTED_TIMEOUT_S: Final = 5.0
_RECOVERY_THREADS: Final = 2
log = structlog.get_logger("engine")

Recover = Callable[[int, Cancelled], PartitionTable]


@dataclass(slots=True)
class _Recovered:
    """What a recovery came to."""

    assigned: Assigned
    table: PartitionTable | None
    error: BaseException | None


class Group:
    """The member of the consumer group, and what it has been given."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        recover: Recover,
        fail_stop: FailStop,
        *,
        records_max: int,
        note: Note,
    ) -> None:
        self.consumer = consumer
        self.topic = topic
        self.offsets = GroupOffsets(consumer, topic, note)
        self.assigned: dict[int, Assigned] = {}
        self.tables: dict[int, PartitionTable] = {}
        """Tables by partition; replaced, never changed, so any thread may walk it."""
        self.held: dict[int, str] = {}
        """Why partitions are held; replaced, never changed."""
        self.recoveries = 0
        """Whether the group has answered: an assignment came, be it an empty one."""
        self._recover = recover
        self._fail_stop = fail_stop
        self._records_max = records_max
        self._has_joined = False
        self._recovered: queue.SimpleQueue[_Recovered] = queue.SimpleQueue()
        self._executor = ThreadPoolExecutor(_RECOVERY_THREADS, "recovery")

    @property
    def is_ready(self) -> bool:
        """Whether assignments arrived and every one of them is read or held."""
        return self._has_joined and not any(a.recovering for a in list(self.assigned.values()))

    # -- callbacks ---------------------------------------------------------------------------------

    def subscribe(self) -> None:
        """Join the group."""
        self.consumer.subscribe(
            [self.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # An explicit offset: with none the first assignment of a new group is an error.
        positions = [TopicPartition(self.topic, p.partition, OFFSET_BEGINNING) for p in partitions]
        consumer.incremental_assign(positions)
        if positions:
            consumer.pause(positions)
        for position in positions:
            assigned = Assigned(position.partition, self._records_max)
            self.assigned[position.partition] = assigned
            self._start_recovery(assigned)
        self._has_joined = True
        log.info("assigned", partitions=[p.partition for p in partitions])

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [p.partition for p in partitions]
        owned = [self.assigned[n] for n in numbers if n in self.assigned]
        self.offsets.commit(owned, wait=True)
        self._release(numbers)
        consumer.incremental_unassign(partitions)
        log.info("revoked", partitions=numbers)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # No commit: another worker may have them already.
        self._release([p.partition for p in partitions])
        consumer.incremental_unassign(partitions)
        log.warning("lost", partitions=[p.partition for p in partitions])

    def _release(self, partitions: list[int]) -> None:
        for partition in partitions:
            assigned = self.assigned.pop(partition, None)
            if assigned is not None:
                assigned.cancelled.set()
                if assigned.table is not None:
                    assigned.table.close()
        self._publish()

    # -- recovery ----------------------------------------------------------------------------------

    def _start_recovery(self, assigned: Assigned) -> None:
        self.recoveries += 1
        assigned.recovering = True
        cancelled = assigned.cancelled

        def run() -> None:
            table: PartitionTable | None = None
            error: BaseException | None = None
            try:
                table = self._recover(assigned.partition, cancelled.is_set)
            except BaseException as raised:  # noqa: BLE001  # judged by the feeder's thread
                error = raised
            self._recovered.put(_Recovered(assigned, table, error))

        self._executor.submit(run)

    def take_recovered(self) -> None:
        """Take over what recoveries came to since the last call."""
        again: list[_Recovered] = []
        while not self._recovered.empty():
            recovered = self._recovered.get_nowait()
            assigned = recovered.assigned
            if self.assigned.get(assigned.partition) is not assigned:
                # It moved away meanwhile; a late result must not touch its successor.
                if recovered.table is not None:
                    recovered.table.close()
            elif recovered.error is not None:
                assigned.recovering = False
                self._recovery_failed(assigned, recovered.error)
            elif recovered.table is not None and not self._take(assigned, recovered.table):
                again.append(recovered)
        for recovered in again:
            self._recovered.put(recovered)

    def _take(self, assigned: Assigned, table: PartitionTable) -> bool:
        try:
            found = self.consumer.committed(
                [TopicPartition(self.topic, assigned.partition)], timeout=_COMMITTED_TIMEOUT_S
            )
        except KafkaException as exception:
            log.warning("marks_unreadable", error=text_of(error_of(exception)))
            return False
        travelled = carried(found[0].metadata if found else None)
        assigned.isolation, assigned.found_note = Isolation(travelled.mark), travelled.note
        assigned.table = table
        assigned.recovering = False
        self._publish()
        log.info("recovered", partition=assigned.partition, applied=table.applied)
        return True

    def read_notes(self, partitions: int) -> frozenset[str] | None:
        """What was noted last with any partition, whoever owned it; None when it cannot be read."""
        asked = [TopicPartition(self.topic, number) for number in range(partitions)]
        try:
            found = self.consumer.committed(asked, timeout=_COMMITTED_TIMEOUT_S)
        except KafkaException as exception:
            log.warning("notes_unreadable", error=text_of(error_of(exception)))
            return None
        return frozenset(filter(None, (carried(each.metadata).note for each in found)))

    def _recovery_failed(self, assigned: Assigned, error: BaseException) -> None:
        match error:
            case RecoveryCancelled():
                pass
            case LogRefused():
                self.hold(assigned, f"{type(error).__name__}: {error}")
                assigned.waits = isinstance(error, EarlierBehind)
            case StateUnavailable():
                self._fail_stop(ExitCode.STATE_UNAVAILABLE, str(error))
            case _:
                log.error("recovery_failed", partition=assigned.partition, exc_info=error)
                self._fail_stop(ExitCode.RECOVERY_FAILED, f"{type(error).__name__}: {error}")

    def discard(self, assigned: Assigned, *, damage: str | None = None) -> None:
        """Close the table and read it again: memory may be ahead of it, or its files are damaged.

        Args:
            assigned: the partition.
            damage: what is wrong with its files; they are then set aside first.
        """
        self.stop_feeding(assigned)
        if assigned.table is not None:
            path = assigned.table.path
            assigned.table.close()
            assigned.table = None
            if damage is not None:
                quarantine(path, damage)
        self._publish()
        self._start_recovery(assigned)

    def rebuild(self, assigned: Assigned) -> None:
        """Give up the table, so that its recovery starts from nothing and keeps unsent facts."""
        if assigned.table is not None:
            assigned.table.give_up()
            self.discard(assigned)

    # -- feeding -----------------------------------------------------------------------------------

    def hold(self, assigned: Assigned, reason: str) -> None:
        """Keep a partition assigned, but do not read it, until someone resumes it."""
        self.stop_feeding(assigned)
        assigned.held, assigned.waits = reason, False
        self._publish()
        log.error("partition_held", partition=assigned.partition, reason=reason)

    def try_waiting(self) -> None:
        """Recover again what waits for another partition.

        In between no thread waits with it: the other one may need it.
        """
        for assigned in self.assigned.values():
            if assigned.waits and not assigned.paused:
                self.resume(assigned)

    def pause(self, assigned: Assigned) -> None:
        """Do not read a partition until it is resumed."""
        self.stop_feeding(assigned)
        assigned.paused = True

    def resume(self, assigned: Assigned) -> None:
        """Read a partition again; a held one is recovered once more first if it has no table."""
        was_held = assigned.held is not None
        assigned.paused = assigned.waits = False
        assigned.held = None
        if was_held:
            assigned.isolation = assigned.isolation.resumed()
            self.offsets.mark(assigned, assigned.isolation.mark)
            if assigned.table is None and not assigned.recovering:
                self._start_recovery(assigned)
        self._publish()

    def stop_feeding(self, assigned: Assigned) -> None:
        """Fetch no more of it; what was fetched is dropped and the position set again later."""
        assigned.must_seek = True
        self.consumer.pause([TopicPartition(self.topic, assigned.partition)])

    def seek_back(self) -> None:
        """Set the position of every partition that may be read and whose records were dropped."""
        for assigned in self.assigned.values():
            table = assigned.table
            if table is None or not assigned.must_seek or assigned.paused or assigned.held:
                continue
            position = TopicPartition(self.topic, assigned.partition, table.applied + 1)
            try:
                self.consumer.seek(position)
                self.consumer.resume([position])
            except KafkaException as exception:
                log.warning("seek_failed", position=str(position), error=str(exception))
                continue
            assigned.must_seek = False

    def note_marks(self) -> None:
        """Note where the logs end, for lag.

        Here and not where it is shown: asked from another thread while this one fetches, the client
        locks up for good.
        """
        for assigned in self.assigned.values():
            position = TopicPartition(self.topic, assigned.partition)
            marks = self.consumer.get_watermark_offsets(position, cached=True)
            assigned.high = marks[1] if marks is not None else -1

    # -- end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Hand everything back and leave the group."""
        self.consumer.close()
        self._executor.shutdown(wait=True)
        self.take_recovered()

    def _publish(self) -> None:
        self.tables = {p: a.table for p, a in self.assigned.items() if a.table is not None}
        self.held = {p: a.held for p, a in self.assigned.items() if a.held is not None}
