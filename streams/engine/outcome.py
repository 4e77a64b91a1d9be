"""What became of a chunk → go on, read the partition again, hold it, or end the process."""

import threading
from dataclasses import dataclass, field
from typing import Final

import structlog

from streams.engine.assigned import Assigned
from streams.engine.chunk import Chunk
from streams.engine.errors import (
    ChunkRefused,
    ChunkTooLarge,
    Fenced,
    LogChanged,
    PartitionHeld,
    StateDamaged,
    StateUnavailable,
    TableClosed,
)
from streams.engine.fail_stop import ExitCode, FailStop
from streams.engine.group import Group
from streams.engine.poison import Mark

_UNDO_S: Final = 2.0
# Reaching one of these means that the records were decided: they do not kill.
_PAST_THE_RECORDS: Final = ("decided", "outputs_produced", "packed_produced", "batch_written")
log = structlog.get_logger("engine")


@dataclass(slots=True)
class Outcomes:
    """Judges chunks that are done; the feeder's thread only."""

    group: Group
    fail_stop: FailStop
    settled: int = field(default=0)
    """Chunks settled since the start."""
    discarded: int = field(default=0)
    """Chunks that were not settled, their tables read again."""

    def judge(self, assigned: Assigned, chunk: Chunk, before: "Before") -> bool:
        """Act on a chunk that is done; whether its partition may be fed on right away."""
        error = chunk.error
        if error is None:
            self.settled += 1
            return True
        self.discarded += 1
        if _is_blameless(error):
            self._undo(assigned, before)
        self._act(assigned, chunk, error)
        return False

    def missed(self, assigned: Assigned, chunk: Chunk, before: "Before", deadline_s: float) -> None:
        """The chunk was neither settled nor failed in time: the process ends."""
        if chunk.reached in _PAST_THE_RECORDS:
            # The broker may be away, and then this would wait for it too.
            undo = threading.Thread(target=self._undo, args=(assigned, before), daemon=True)
            undo.start()
            undo.join(_UNDO_S)
        self.fail_stop(
            ExitCode.SETTLE_DEADLINE,
            f"chunk {chunk.first}..{chunk.last} of {chunk.log} was not settled within "
            f"{deadline_s} s; it got as far as {chunk.reached!r}",
        )

    def _act(self, assigned: Assigned, chunk: Chunk, error: BaseException) -> None:
        log.warning(
            "chunk_not_settled",
            log=str(chunk.log),
            partition=chunk.log.partition,
            offset=chunk.first,
            last=chunk.last,
            reached=chunk.reached,
            error=f"{type(error).__name__}: {error}",
        )
        match error:
            case PartitionHeld():
                self.group.hold(assigned, str(error))
                self.group.discard(assigned)
            case LogChanged():
                self.fail_stop(ExitCode.LOG_CHANGED, str(error))
            case ChunkTooLarge() if len(chunk.records) == 1:
                self.group.hold(assigned, f"a single record is too large to settle: {error}")
                self.group.discard(assigned)
            case ChunkTooLarge():
                assigned.records_max = max(1, len(chunk.records) // 2)
                self.group.discard(assigned)
            case ChunkRefused() | TableClosed():
                self.group.discard(assigned)
            case StateDamaged():
                self.group.discard(assigned, damage=str(error))
            case StateUnavailable():
                self.fail_stop(ExitCode.STATE_UNAVAILABLE, str(error))
            case _:
                log.error("agent_failed", exc_info=error)
                self.fail_stop(
                    ExitCode.AGENT_FAILED,
                    f"chunk {chunk.first}..{chunk.last} of {chunk.log}: "
                    f"{type(error).__name__}: {error}",
                )

    def _undo(self, assigned: Assigned, before: "Before") -> None:
        """Take back the mark of a chunk whose records are not to blame."""
        if not before.marked:
            return
        assigned.isolation.undone(before.mark)
        self.group.offsets.mark(assigned, before.mark)


@dataclass(frozen=True, slots=True)
class Before:
    """The mark that stood before a chunk was handed over."""

    marked: bool
    """Whether the chunk wrote one of its own."""
    mark: Mark | None
    """The one it replaced."""


def _is_blameless(error: BaseException) -> bool:
    blameless = (ChunkRefused, PartitionHeld, TableClosed, StateDamaged, StateUnavailable)
    return isinstance(error, blameless) and not isinstance(error, Fenced)
