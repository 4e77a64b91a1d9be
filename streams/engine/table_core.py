"""The inside of a partition table: opening, what it says of itself, one atomic replacement."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streams.engine import generations as gen
from streams.engine import table_meta
from streams.engine.errors import StateDamaged, TableClosed
from streams.engine.layout import NO_LAYOUT
from streams.engine.log import LogId
from streams.engine.settlement import Pair, Settlement
from streams.engine.store import LEVELS, PINNED, UNSENT, Batch, Store, seen_family
from streams.engine.table_meta import Meta

META_KEY: Final = b"meta"
"""Key of the one meta value."""
FAMILIES: Final = {
    LEVELS: False,
    UNSENT: False,
    PINNED: True,
    **{seen_family(slot): True for slot in range(gen.KEPT)},
}
"""Families of a table: name → whether its keys are only looked up, never walked."""


class TableCore:
    """What every use of a table rests on. Every method may be called from any thread."""

    def __init__(self, store: Store, meta: Meta) -> None:
        self._store = store
        self._meta = meta
        self._entered = self.generation_at(meta.log_time_ms)
        self._lock = threading.RLock()
        self._closed = False
        self._unsent_start = b""
        self._level_keys = {key for key, _ in store.walk(LEVELS)}
        self.layout = NO_LAYOUT
        """How its topic came to the partitions it has; set by the recovery."""
        self.memory: object | None = None
        """Free for the agent: what it keeps of this table, gone when the table is discarded."""
        self._check_counts()

    # -- what it says of itself ------------------------------------------------------------------

    @property
    def log(self) -> LogId:
        """The source log this is the state of."""
        return self._meta.log

    @property
    def path(self) -> Path:
        """Its directory."""
        return self._store.path

    @property
    def meta(self) -> Meta:
        """Everything it knows about itself, as one frozen value."""
        return self._meta

    @property
    def applied(self) -> int:
        """Last source offset settled; -1 for none."""
        return self._meta.applied

    @property
    def acknowledged(self) -> int:
        """Last source offset whose facts the ledger has acknowledged; -1 for none."""
        return self._meta.acknowledged

    @property
    def confirmed(self) -> int:
        """Last source offset that the ledger confirmed to any worker, as far as is known here.

        A ledger that holds less went back in time, though nobody who spoke with it may be left.
        """
        return max(self._meta.confirmed, self._meta.acknowledged)

    @property
    def log_time_ms(self) -> int:
        """Greatest log append time settled."""
        return self._meta.log_time_ms

    @property
    def floor_us(self) -> int:
        """Greatest `received_at` (µs) among forgotten ids, as of the chunk entered; -1 for none.

        A record with `received_at` at or below it cannot be judged by look-up.
        """
        return gen.floor_at(self._meta.floor_us, self._meta.generations, self._entered)

    @property
    def closed(self) -> bool:
        """Whether it was closed; then another table has taken its place, or another worker."""
        return self._closed

    def enter(self, timestamp_ms_max: int) -> None:
        """Move to the time of the next chunk before it is judged.

        Forgetting happens here, before the verdicts, and not in the settlement after them: so the
        same record meets the same memory however the log was cut into chunks.
        """
        with self.open():
            self._entered = self.generation_at(max(self._meta.log_time_ms, timestamp_ms_max))

    def time_after(self, settlement: Settlement) -> int:
        """Greatest log append time (ms) once the settlement is in."""
        return max(self._meta.log_time_ms, settlement.timestamp_ms_max)

    # -- for recovery ----------------------------------------------------------------------------

    def held(self, family: str, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Those of the keys that a family holds, with their values."""
        with self.open():
            distinct = list(dict.fromkeys(keys))
            values = self._store.get(family, distinct)
            return {
                key: value for key, value in zip(distinct, values, strict=True) if value is not None
            }

    def replace(self, fill: Callable[[Batch], None], meta: Meta, *, durable: bool = True) -> None:
        """Write what `fill` puts together with the new meta value, or nothing."""

        def all_of_it(write: Batch) -> None:
            fill(write)
            write.put_meta(META_KEY, table_meta.encode(meta))

        with self.open():
            self._store.write(all_of_it, durable=durable)
            self._meta = meta

    def load(self, family: str, pairs: Iterable[Pair]) -> None:
        """Put pairs into a family of a table that is not complete yet; see `Store.load`."""
        with self.open():
            self._store.load(family, pairs)

    def forget(self, number: int) -> None:
        """Enter generation `number` and empty what it forgets, before anything is written.

        A crash in between loses nothing: the next thing this table meets is the same record, which
        enters the same generation and makes the same ids unreadable.
        """
        with self.open():
            self._entered = max(self._entered, number)
            for old in self._meta.generations:
                if gen.is_forgotten(old.number, self._entered):
                    self._store.recreate(seen_family(gen.slot_of(old.number)))

    def absorbed(self, levels: Iterable[bytes]) -> None:
        """Note the levels a recovery wrote; facts may lie before those read last."""
        with self.open():
            self._level_keys.update(levels)
            self._unsent_start = b""

    def flush(self) -> None:
        """Write memtables to files, so that the next opening has nothing to replay."""
        with self.open():
            self._store.flush()

    def close(self) -> None:
        """Close it; whoever still holds it gets `TableClosed`. May be called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self.memory = None
                self._level_keys = set()
                self._store.close()

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the table open for the length of a block.

        Raises:
            TableClosed: it was closed before.
        """
        with self._lock:
            if self._closed:
                raise TableClosed(f"table of {self.log} was closed: its partition moved")
            yield

    def generation_at(self, time_ms: int) -> int:
        """Generation of a log append time."""
        return time_ms // self._meta.width_ms

    def generation_ends_ms(self, timestamp_ms: int) -> int:
        """Log append time from which a record after one of `timestamp_ms` is in a later generation.

        Log time never steps back: a record older than what is settled counts as if it were not.
        """
        at_ms = max(self._meta.log_time_ms, timestamp_ms)
        return (self.generation_at(at_ms) + 1) * self._meta.width_ms

    def _seen_families(self) -> list[str]:
        families = [
            seen_family(gen.slot_of(generation.number))
            for generation in gen.remembered(self._meta.generations, self._entered)
            if generation.ids
        ]
        return [*families, PINNED] if self._meta.pinned else families

    def _check_counts(self) -> None:
        if len(self._level_keys) != self._meta.levels:
            raise self.miscounted("levels", self._meta.levels, len(self._level_keys))
        unsent = sum(1 for _ in self._store.walk(UNSENT))
        if unsent != self._meta.unsent:
            raise self.miscounted("unsent facts", self._meta.unsent, unsent)

    def miscounted(self, what: str, stored: int, found: int) -> StateDamaged:
        """The fault of a table that lost something without a read error."""
        return StateDamaged(
            f"{self._store.path}: {found} {what} found, {stored} were stored: it is set aside as "
            "*.corrupt-<n> and rebuilt from the packed log"
        )
