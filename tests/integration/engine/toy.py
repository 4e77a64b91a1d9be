"""A small agent and its arithmetic: enough of a job to see whether the engine loses or repeats.

An event is `id series quantity`. Its id is hashed to 16 bytes; a series is counted and summed. The
value kept for an id is the source offset it was first seen at; a level is count and total.
"""

import hashlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from streams.crash_points import CrashAt, never
from streams.engine import clients
from streams.engine.absorb import MergeRules
from streams.engine.before import Told, nothing_before
from streams.engine.chunk import Chunk
from streams.engine.fail_stop import FailStop
from streams.engine.feeder import Feeder, Hooks
from streams.engine.layout import LayoutOf, ungrown
from streams.engine.log import LogId
from streams.engine.packed_log import PackedLog
from streams.engine.settings import EngineSettings
from streams.engine.settle import settle
from streams.engine.settlement import Settlement, unsent_key
from streams.engine.table import PartitionTable

HOUR_MS = 3_600_000


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def unknown_to_the_ledger(log: LogId) -> int:
    return -1


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def earlier(held: bytes, read: bytes) -> bytes:
    return min(held, read)


def greater_count(held: bytes, read: bytes) -> bytes:
    return held if held[:8] >= read[:8] else read


RULES = MergeRules(earlier, greater_count, from_version_1=lambda value: value)


def event_id(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def settings(bootstrap: str, topic: str, data_dir: Path, **changes: object) -> EngineSettings:
    values: dict[str, object] = {
        "bootstrap": bootstrap,
        "group": f"{topic}.group",
        "client_id": data_dir.name,
        "topic": topic,
        "packed_topic": f"{topic}.packed",
        "partitions": 4,
        "data_dir": data_dir,
        "horizon_ms": 24 * HOUR_MS,
        "reach_back_ms": 48 * HOUR_MS,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 500,
        "max_poll_interval_ms": 60_000,
        "settle_deadline_s": 30.0,
        "delivery_timeout_ms": 20_000,
        "fetch_wait_s": 0.05,
    }
    return EngineSettings(**(values | changes))  # type: ignore[arg-type]  # a test's own names


class Readings:
    """Levels of one table, in memory."""

    def __init__(self, table: PartitionTable) -> None:
        self.levels = {
            key: (int.from_bytes(value[:8], "big"), int.from_bytes(value[8:], "big"))
            for key, value in table.levels()
        }


class ToyAgent:
    """Counts every id once."""

    def __init__(self, packed_log: PackedLog) -> None:
        self.packed_log = packed_log
        self.chunks: list[tuple[int, int, int, bool, int | None]] = []
        self.before: Callable[[Chunk], Awaitable[None]] | None = None

    async def put(self, chunk: Chunk) -> None:
        try:
            await self.take(chunk)
        except BaseException as error:
            chunk.failed(error)
            if not isinstance(error, Exception):
                raise

    async def take(self, chunk: Chunk) -> None:
        self.chunks.append(
            (chunk.log.partition, chunk.first, chunk.last, chunk.single, chunk.suspect)
        )
        if self.before is not None:
            await self.before(chunk)
        table = chunk.table
        if not isinstance(table.memory, Readings):
            table.memory = Readings(table)
        settlement, levels = decide(chunk, table.memory)
        chunk.step("decided")
        await chunk.verify_log()
        await chunk.fence()
        chunk.step("outputs_produced")
        await settle(chunk, settlement, self.packed_log)
        table.memory.levels.update(levels)


def parse(value: bytes) -> tuple[bytes, bytes, int]:
    name, series, quantity = value.decode().split(" ")
    if name == "KILL":
        os.kill(os.getpid(), signal.SIGKILL)
    return event_id(name), series.encode(), int(quantity)


def decide(chunk: Chunk, memory: Readings) -> tuple[Settlement, dict[bytes, tuple[int, int]]]:
    events = [
        (record.offset, *parse(record.value or b""))
        for record in chunk.records
        if record.offset != chunk.suspect
    ]
    ids = [id_ for _, id_, _, _ in events]
    known = dict(zip(ids, chunk.table.seen(ids), strict=True))
    fresh: dict[bytes, bytes] = {}
    levels: dict[bytes, tuple[int, int]] = {}
    unsent = []
    for offset, id_, key, quantity in events:
        if known[id_] is not None or id_ in fresh:
            continue
        fresh[id_] = number(offset)
        count, total = levels.get(key) or memory.levels.get(key, (0, 0))
        levels[key] = (count + 1, total + quantity)
        if quantity % 10 == 0:
            unsent.append((unsent_key(offset, 0), id_))
    settlement = Settlement(
        first=chunk.first,
        last=chunk.last,
        anchor=chunk.anchor,
        catalogue_hash=b"toy",
        timestamp_ms_max=chunk.timestamp_ms_max,
        received_max_us=chunk.timestamp_ms_max * 1_000,
        seen=list(fresh.items()),
        levels=[(key, number(count) + number(total)) for key, (count, total) in levels.items()],
        unsent=unsent,
    )
    return settlement, levels


class Worker:
    """A feeder with its toy agent."""

    def __init__(
        self,
        engine: EngineSettings,
        fail_stop: FailStop,
        *,
        crash_at: CrashAt = never,
        clock: Callable[[], float] = boottime,
        acknowledged: Callable[[LogId], int] = unknown_to_the_ledger,
        layout: LayoutOf = ungrown,
        before: Callable[[LogId], Told | None] = nothing_before,
    ) -> None:
        self.packed_log = clients.packed_log(engine)
        self.agent = ToyAgent(self.packed_log)
        self.fail_stop = fail_stop
        hooks = Hooks(
            RULES, acknowledged, clock, lambda: "now", fail_stop, lambda found: found, crash_at,
            layout, before,
        )  # fmt: skip
        self.feeder = Feeder(engine, hooks)
