"""State of one partition on RocksDB: ids, levels, unsent facts and the applied offset, as one.

A settled chunk is one atomic write. What was read from a table that was closed meanwhile must be
thrown away; every method of a closed table raises `TableClosed`.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from rocksdict import Cache

from streams.engine import generations as gen
from streams.engine import table_meta
from streams.engine.errors import SettlementRefused
from streams.engine.log import LogId
from streams.engine.settlement import Pair, Settlement, unsent_offset
from streams.engine.store import LEVELS, PINNED, UNSENT, Batch, Store, seen_family
from streams.engine.table_core import FAMILIES, META_KEY, TableCore
from streams.engine.table_meta import Meta

__all__ = ["PartitionTable", "Settlement", "open_table"]


class PartitionTable(TableCore):
    """The table of one partition. Every method may be called from any thread."""

    def seen(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Values of the ids, newest generation first, None for an id never seen.

        Raises:
            StateDamaged: RocksDB cannot read its files; never answered as "not seen".
        """
        with self.open():
            found: dict[bytes, bytes] = {}
            missing = list(dict.fromkeys(ids))
            for family in self._seen_families():
                if not missing:
                    break
                values = self._store.get(family, missing)
                found.update(
                    (key, value)
                    for key, value in zip(missing, values, strict=True)
                    if value is not None
                )
                missing = [key for key, value in zip(missing, values, strict=True) if value is None]
            return [found.get(key) for key in ids]

    def levels(self) -> Iterator[Pair]:
        """Every level.

        Raises:
            StateDamaged: another number of levels than was stored.
        """
        with self.open():
            pairs = list(self._store.walk(LEVELS))
            if len(pairs) != self._meta.levels:
                raise self.miscounted("levels", self._meta.levels, len(pairs))
        return iter(pairs)

    def unsent(self, limit: int, up_to: int) -> list[Pair]:
        """Facts the ledger has not acknowledged, oldest first.

        Args:
            limit: at most so many.
            up_to: only from source offsets up to this one, inclusive.
        """
        with self.open():
            facts: list[Pair] = []
            for key, value in self._store.walk(UNSENT, self._unsent_start):
                if not facts:
                    # Nothing below can appear any more: offsets only grow. Remembered because
                    # deleted keys still cost time when walked over.
                    self._unsent_start = key
                if len(facts) >= limit or unsent_offset(key) > up_to:
                    break
                facts.append((key, value))
            return facts

    def settle(self, batch: Settlement) -> None:
        """Write everything a chunk changed, in one atomic write.

        Raises:
            SettlementRefused: it does not continue the table.
            StateUnavailable: the disk is full or not accessible; nothing was written.
        """
        batch.check()
        with self.open():
            meta = self._meta
            time_ms = self.time_after(batch)
            number = self.generation_at(time_ms)
            if batch.first != meta.applied + 1:
                raise SettlementRefused(
                    f"settlement of {batch.first}..{batch.last} does not continue {self.log}, "
                    f"which stands at {meta.applied}"
                )
            if number != self._entered:
                raise SettlementRefused(
                    f"settlement of {batch.first}..{batch.last}: log time {time_ms} ms is in "
                    f"generation {number}, the chunk was judged in {self._entered}"
                )
            self.forget(number)
            fresh = {key for key, _ in batch.levels} - self._level_keys
            after = msgspec.structs.replace(
                meta,
                applied=batch.last,
                anchor=batch.anchor,
                log_time_ms=time_ms,
                levels=meta.levels + len(fresh),
                unsent=meta.unsent + len(dict(batch.unsent)),
                pinned=meta.pinned + len(batch.pinned),
                catalogue_hash=batch.catalogue_hash,
                floor_us=self.floor_us,
                generations=gen.with_ids(
                    meta.generations,
                    number,
                    received_max_us=batch.received_max_us,
                    ids=len(batch.seen),
                ),
                packed_next=meta.packed_next + (batch.packed_offset == meta.packed_next),
            )

            def fill(write: Batch) -> None:
                write.put(seen_family(gen.slot_of(number)), batch.seen)
                write.put(PINNED, batch.pinned)
                write.put(LEVELS, batch.levels)
                write.put(UNSENT, batch.unsent)

            self.replace(fill, after)
            self._level_keys |= fresh

    def acknowledge(self, position: int, sent: Sequence[bytes]) -> None:
        """The ledger answered: note it, in one atomic write.

        Args:
            position: source offset up to which every fact is in the ledger.
            sent: keys of the facts that are in the ledger.
        """
        with self.open():
            gone = self.held(UNSENT, sent)
            after = msgspec.structs.replace(
                self._meta,
                acknowledged=max(self._meta.acknowledged, min(position, self._meta.applied)),
                unsent=self._meta.unsent - len(gone),
            )
            self.replace(lambda write: write.delete(UNSENT, list(gone)), after)

    def give_up(self) -> None:
        """Mark it as incomplete: whoever opens it next begins with an empty one."""
        with self.open():
            self.replace(lambda _: None, msgspec.structs.replace(self._meta, complete=False))

    def drop_levels(self, keys: Iterable[bytes]) -> None:
        """Remove levels that are closed for good."""
        with self.open():
            gone = self._level_keys.intersection(keys)
            after = msgspec.structs.replace(self._meta, levels=self._meta.levels - len(gone))
            self.replace(lambda write: write.delete(LEVELS, list(gone)), after)
            self._level_keys -= gone


def open_table(
    path: Path, log: LogId, *, partitions: int, width_ms: int, cache: Cache
) -> PartitionTable:
    """Open the table in a directory, or make an empty one.

    A table that is new, was never completed, or has generations of another width comes back
    with `meta.complete` False and nothing in it; recovery fills it. One of another log comes back
    as it is, for recovery to refuse.

    Raises:
        StateDamaged: unreadable or incomplete; set it aside and rebuild.
        StateLocked: still open in this process.
        StateUnavailable: the disk is full or not accessible.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    store = Store(path, FAMILIES, cache)
    try:
        data = store.meta(META_KEY)
        meta = table_meta.decode(data) if data is not None else None
        if meta is None or not meta.complete or _is_outgrown(meta, log, width_ms):
            if not is_new:
                # Faster than emptying its families, each of which waits for the disk.
                store.close()
                shutil.rmtree(path)
                store = Store(path, FAMILIES, cache)
            meta = Meta(
                format=table_meta.FORMAT,
                complete=False,
                topic=log.topic,
                topic_id=log.topic_id,
                partition=log.partition,
                partitions=partitions,
                width_ms=width_ms,
            )
        return PartitionTable(store, meta)
    except BaseException:
        store.close()
        raise


def _is_outgrown(meta: Meta, log: LogId, width_ms: int) -> bool:
    """Whether a table of this log was made with generations of another width."""
    return meta.topic_id == log.topic_id and meta.width_ms != width_ms
