"""A run of records of one partition → the agent, which settles all of it or none."""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from streams.crash_points import CrashAt, never
from streams.engine.errors import SettlementRefused
from streams.engine.log import LogId, Record, anchor_of
from streams.engine.table import PartitionTable

__all__ = ["Chunk", "Guards", "LogId", "Record"]

Headers = list[tuple[str, bytes | None]]


async def _unguarded() -> None:
    """No broker to ask: for tests and replays from a file."""


def _no_headers(index: int) -> Headers:
    del index
    return []


@dataclass(frozen=True, slots=True)
class Guards:
    """The questions a chunk can ask its feeder."""

    verify_log: Callable[[], Awaitable[None]] = _unguarded
    """Await the answer to whose log this is."""
    fence: Callable[[], Awaitable[None]] = _unguarded
    """Ask the broker whether the partition is still ours, when the chunk is old."""
    headers: Callable[[int], Headers] = _no_headers
    """Headers of the record at an index of `records`."""
    crash_at: CrashAt = never
    """Hook of the drills."""


@dataclass(slots=True, eq=False)
class Chunk:
    """One stream event for the agent: records, the table they are judged with, and guards.

    The agent decides, awaits `verify_log` and `fence`, produces outputs, then calls
    `streams.engine.settle.settle`. Whatever is raised on the way goes into `failed`: the table is
    then closed and read again, so nothing half done survives in memory.
    """

    log: LogId
    """The log the records come from."""
    first: int
    """First source offset covered: the table's applied offset + 1."""
    last: int
    """Last source offset covered."""
    records: list[Record]
    """The records, in order, all above the applied offset."""
    table: PartitionTable
    """State of the partition, already entered for the time of this chunk."""
    single: bool = False
    """A record here has killed workers before: one record per chunk."""
    suspect: int | None = None
    """Offset of a record that killed a worker twice alone: park it by offset, do not decode it."""
    guards: Guards = Guards()
    """The questions it can ask."""
    reached: str = ""
    """Last step of the protocol that was reached."""
    error: BaseException | None = None
    """Why it was not settled, once it failed."""
    done: threading.Event = field(default_factory=threading.Event)
    """Set when it was settled or failed."""

    @property
    def anchor(self) -> bytes:
        """Fingerprint of the last record, for the settlement."""
        record = self.records[-1]
        return anchor_of(record.offset, record.key, record.value)

    @property
    def timestamp_ms_max(self) -> int:
        """Greatest log append time in the chunk, for the settlement."""
        return max(record.timestamp_ms for record in self.records)

    def headers(self, index: int) -> Headers:
        """Headers of `records[index]`; read only on request."""
        return self.guards.headers(index)

    def step(self, name: str) -> None:
        """Note that a step of the protocol was reached; drills may end the process here."""
        self.reached = name
        self.guards.crash_at(name)

    async def verify_log(self) -> None:
        """Await the answer to whose log the records came from. Before any output.

        Raises:
            LogChanged: the topic was recreated; the process ends.
            LogUnverified: the broker did not answer in time.
        """
        await self.guards.verify_log()

    async def fence(self) -> None:
        """Ask the broker whether the partition is still ours; free for a young chunk.

        Raises:
            Fenced: another worker has it by now.
        """
        await self.guards.fence()

    def settled(self) -> None:
        """The chunk is in the table; the feeder goes on with the next one."""
        if self.done.is_set():
            return
        if self.table.applied != self.last:
            self.failed(
                SettlementRefused(
                    f"chunk {self.first}..{self.last} of {self.log} was called settled, but its "
                    f"table stands at {self.table.applied}: settle the table first"
                )
            )
            return
        self.step("settled")
        self.done.set()

    def failed(self, error: BaseException) -> None:
        """The chunk was not settled; its table is discarded. The first outcome counts."""
        if not self.done.is_set():
            self.error = error
            self.done.set()
