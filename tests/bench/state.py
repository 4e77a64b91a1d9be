"""`python -m tests.bench state`: what an id costs on disk, and a fresh one among many stored ids.

The engine's own tables, as many as a worker has partitions, are filled through settlements as a
worker writes them: random ids with the mark of a verdict, levels, facts acknowledged at once. Every
twentieth record is a copy. Before each settlement the table is asked for the chunk's ids: a fresh
one that it calls known would be lost usage, a copy that it calls fresh would be counted twice, and
either makes the run void. Exit code 1 if one was answered wrongly.

A fresh id is looked up, settled, and written to a file some day. The first two are taken in the
second million and in the last fifth, the third up to the second million and from there on.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rocksdict import Cache

from streams.core.fact import Series
from streams.core.instant import HOUR_US
from streams.core.level import Reading, encode_key, encode_reading
from streams.core.mark import encode_mark
from streams.engine.log import LogId
from streams.engine.settlement import ID_BYTES, Settlement
from streams.engine.store import Store
from streams.engine.table import PartitionTable, open_table
from streams.engine.table_core import FAMILIES
from tests.bench.costs import COPY, LOOK_UP, SETTLE, Cost, Meter, cost
from tests.bench.output import say
from tests.bench.summary import FOLDER, Goal, put_sizes, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

GOAL_BYTES: Final = 32.0
GOAL_RATIO: Final = 1.3
GOAL_IDS: Final = 20_000_000
PARTITIONS: Final = 12
CHUNK: Final = 2_000
COPIES: Final = CHUNK // 20
FRESH: Final = CHUNK - COPIES
NEAR: Final = (1_000_000, 2_000_000)
"""Stored ids between which the cost of one is taken first."""
LAST: Final = 5
"""Of all ids, the last part of so many is where it is taken again: more than the ids that lie in
memory at a time, so that a file more or less does not decide."""
TENANTS: Final = 5_000
METERS: Final = ("bench_requests", "bench_storage")
DAY_MS: Final = 86_400_000
CACHE_BYTES: Final = 64 << 20
LEVELS_A_CHUNK: Final = 600
"""Of a chunk of 2,000 records, as the race's workload has it."""


@dataclass(frozen=True, slots=True)
class Answers:
    """How often the tables answered wrongly."""

    false_duplicates: int = 0
    missed_duplicates: int = 0

    def __add__(self, other: Answers) -> Answers:
        return Answers(
            self.false_duplicates + other.false_duplicates,
            self.missed_duplicates + other.missed_duplicates,
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """What came of a fill."""

    ids: int
    levels: int
    bytes_on_disk: int
    """Of all tables after compaction, whatever their directories hold."""
    near: Cost
    """While one million lay there, and then two."""
    far: Cost
    """At the end."""
    answers: Answers

    @property
    def bytes_an_id(self) -> float:
        """Everything on disk, levels included, over the ids."""
        return self.bytes_on_disk / self.ids

    @property
    def ratio(self) -> float:
        """Of the cost at the end to that at the beginning."""
        return self.far.total_us / self.near.total_us


class Filling:
    """Twelve tables and what is put into them, from a seed."""

    def __init__(self, folder: Path, generations: int, ids: int) -> None:
        self.folder = folder
        self._cache = Cache(CACHE_BYTES)
        # The race's day lies in one generation; spread over more, each look-up asks more of them.
        self._step_ms = DAY_MS * (generations - 1) / ids if generations > 1 else 0.0
        self._tables = [self._open(number) for number in range(PARTITIONS)]
        self._rng = random.Random(1)
        self._weights = list(accumulate(1 / rank for rank in range(1, TENANTS + 1)))
        self._chunks = 0
        self.meter = Meter()

    def _open(self, number: int) -> PartitionTable:
        log = LogId("usage.events", "bench", number)
        path = self.folder / f"table-{number}"
        table = open_table(path, log, partitions=PARTITIONS, width_ms=DAY_MS, cache=self._cache)
        table.replace(lambda _: None, msgspec.structs.replace(table.meta, complete=True))
        return table

    def chunk(self) -> Answers:
        """One chunk of the next table, looked up, judged and settled."""
        number, meter = self._chunks, self.meter
        table = self._tables[number % PARTITIONS]
        first = number // PARTITIONS * CHUNK
        fresh = _marked(number, first)
        copies = self._copies_of_earlier(number)
        settlement = Settlement(
            first=first,
            last=first + CHUNK - 1,
            anchor=bytes(16),
            catalogue_hash=b"bench",
            timestamp_ms_max=int(self.meter.fresh * self._step_ms),
            received_max_us=0,
            seen=fresh,
            levels=self._levels(first),
        )
        new, known = [key for key, _ in fresh], [key for key, _ in copies]
        with meter.of(LOOK_UP):
            table.enter(settlement.timestamp_ms_max)
            found = table.seen(new)
        with meter.of(COPY):
            found += table.seen(known)
        with meter.of(SETTLE):
            table.settle(settlement)
            table.acknowledge(settlement.last, ())
        self._chunks += 1
        meter.fresh += FRESH
        meter.copies += len(copies)
        return Answers(
            sum(mark is not None for mark in found[:FRESH]),
            sum(mark != stored for mark, (_, stored) in zip(found[FRESH:], copies, strict=True)),
        )

    def flush(self) -> None:
        """Writes everything to files, as RocksDB does when its memory is full."""
        for table in self._tables:
            table.flush()

    def _copies_of_earlier(self, number: int) -> list[tuple[bytes, bytes]]:
        """Ids that this very table must know, and their marks."""
        earlier = self._rng.randrange(number // PARTITIONS + 1) * PARTITIONS + number % PARTITIONS
        if earlier >= number:
            return []
        return _marked(earlier, earlier // PARTITIONS * CHUNK, COPIES)

    def _levels(self, first: int) -> list[tuple[bytes, bytes]]:
        rng = self._rng
        start_us = self._chunks % 24 * HOUR_US
        tenants = rng.choices(range(TENANTS), cum_weights=self._weights, k=LEVELS_A_CHUNK)
        levels = {}
        for tenant in tenants:
            reading = Reading(first + 1, first * 50, rng.getrandbits(128), first, first)
            levels[_level_key(tenant, start_us)] = encode_reading(reading)
        return list(levels.items())

    def settle_down(self) -> tuple[int, int]:
        """Closes and compacts what is in files; levels, and bytes on disk."""
        levels = 0
        for table in self._tables:
            levels += table.meta.levels
            path = table.path
            table.close()
            _compact(path, self._cache)
        return levels, sum(f.stat().st_size for f in self.folder.rglob("*") if f.is_file())


@cache
def _level_key(tenant: int, start_us: int) -> bytes:
    metric = METERS[tenant % len(METERS)]
    return encode_key(Series(f"tenant-{tenant:05d}", metric, 1, start_us, start_us + HOUR_US, 0))


def _marked(number: int, first: int, count: int = FRESH) -> list[tuple[bytes, bytes]]:
    """The first fresh ids of a chunk with their marks; the same number gives the same."""
    ids = random.Random(2 * number).randbytes(count * ID_BYTES)
    contents = random.Random(2 * number + 1).randbytes(count * 8)
    return [
        (
            ids[n * ID_BYTES : (n + 1) * ID_BYTES],
            encode_mark(contents[n * 8 : n * 8 + 8], "accepted", first + n),
        )
        for n in range(count)
    ]


def _compact(path: Path, cache: Cache) -> None:
    """As RocksDB does by itself in the end, with the options that the engine opens it with."""
    store = Store(path, FAMILIES, cache)
    for family in store._families.values():
        family.compact_range(None, None)
    del family
    store.close()


def fill(folder: Path, ids: int, generations: int) -> Stored:
    """Fills, measures at both ends, compacts."""
    filling = Filling(folder, generations, ids)
    answers, meter = Answers(), filling.meter
    filed = meter.spent()
    costs: list[Cost] = []
    for begin, end in (NEAR, (ids - ids // LAST, ids)):
        answers += _until(filling, begin)
        began = meter.spent()
        answers += _until(filling, end)
        filling.flush()
        ended = meter.spent()
        costs.append(cost(began, ended, filed))
        filed = ended
        say(f"state  {meter.fresh:>11,} ids stored; CPU us of an id: {costs[-1].told()}")
    levels, bytes_on_disk = filling.settle_down()
    near, far = costs
    return Stored(meter.fresh, levels, bytes_on_disk, near, far, answers)


def _until(filling: Filling, ids: int) -> Answers:
    """Goes on until so many ids are stored."""
    answers = Answers()
    while filling.meter.fresh < ids:
        answers += filling.chunk()
    return answers


def goals(stored: Stored) -> dict[str, Goal]:
    """The goals, each void when a table answered wrongly."""
    wrong = stored.answers != Answers()
    size = f"{stored.ids / 1e6:.0f} M ids"
    short = stored.ids < GOAL_IDS * 0.99
    why = f"measured at {size}; `state --ids {GOAL_IDS}` is the goal's size" if short else ""
    near, far, cheap = stored.near, stored.far, stored.ratio <= GOAL_RATIO
    parts = f"CPU us of an id at 1 M: {near.told()}; at the end: {far.told()}"
    return {
        "P3": Goal(
            f"state <= {GOAL_BYTES:.0f} B on disk per id after compaction, levels included",
            f"{stored.bytes_an_id:.1f} B ({size}, {stored.levels:,} levels)",
            met=stored.bytes_an_id <= GOAL_BYTES and not wrong,
            why=why,
        ),
        "P3_cost": Goal(
            f"a fresh id at {GOAL_IDS / 1e6:.0f} M stored ids <= {GOAL_RATIO}x that at 1 M",
            f"{stored.ratio:.2f}x ({near.total_us:.2f} us at 1 M, {far.total_us:.2f} us at {size})",
            met=cheap and not wrong,
            why="; ".join(filter(None, (why, "" if cheap else parts))),
        ),
        "P3_exact": Goal(
            "0 false duplicates, 0 missed ones",
            f"{stored.answers.false_duplicates} false, {stored.answers.missed_duplicates} missed "
            f"in {stored.ids * CHUNK // FRESH:,} look-ups",
            met=not wrong,
        ),
    }


def main(arguments: Sequence[str]) -> int:
    """The whole measure."""
    asked = _arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="tailrace-state-", dir=asked.folder) as folder:
        began_s = time.monotonic()
        stored = fill(Path(folder), asked.ids, asked.generations)
    reached = goals(stored)
    put_sizes({"state_bytes_an_id": stored.bytes_an_id}, asked.out)
    say(f"state  took {time.monotonic() - began_s:.0f} s")
    tell(reached, asked.out)
    return int(stored.answers != Answers())


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench state", description=__doc__)
    add = parser.add_argument
    add("--ids", type=int, default=GOAL_IDS, help="ids to store, at least three million")
    add("--generations", type=int, default=1, help="generations that the ids lie in, 1 to 4")
    add("--folder", type=Path, default=None, help="where the tables lie for as long as it runs")
    add("--out", type=Path, default=FOLDER, help="where the summary goes")
    return parser.parse_args(arguments)
