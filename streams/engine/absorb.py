"""Packed records → a table: union of ids, greater levels, unacknowledged facts, in one write.

A table that is still being rebuilt is loaded in bulk instead: it is thrown away when this is not
finished, so its ids need not come in one step with the rest.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from streams.engine import generations as gen
from streams.engine.generations import Generation
from streams.engine.packed import PackedRecord
from streams.engine.settlement import Pair, unsent_offset
from streams.engine.store import LEVELS, PINNED, UNSENT, Batch, seen_family
from streams.engine.table import PartitionTable

Choose = Callable[[bytes, bytes], bytes]
"""(value held, value read) → the one to keep; must not depend on the order of its arguments,
except that it returns the first of two equals."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How two values of one key become one; the values mean nothing to the engine."""

    pick_seen: Choose
    """For ids: the one with the earlier source offset."""
    merge_level: Choose
    """For levels: the one with the greater count."""
    from_version_1: Callable[[bytes], bytes]
    """For ids: the value as packed records of version 1 have it → as it is now."""


@dataclass(slots=True)
class _Merge:
    """What a group of packed records comes to, before the table is asked."""

    ids: dict[int, dict[bytes, bytes]]
    pinned: dict[bytes, bytes]
    levels: dict[bytes, bytes]
    unsent: dict[bytes, bytes]
    generations: tuple[Generation, ...]


def absorb(
    table: PartitionTable, records: Sequence[PackedRecord], rules: MergeRules, packed_next: int
) -> None:
    """Merge packed records into a table, in one atomic write.

    Args:
        table: where to; its applied offset moves to the greatest `last` met.
        records: of the table's log, in any order, any of them already known or overlapping.
        rules: how values of one key become one.
        packed_next: offset of the packed log to read next.
    """
    if not records:
        return
    meta = table.meta
    newest = max(records, key=lambda record: record.last)
    log_time_ms = max(meta.log_time_ms, *(record.timestamp_ms_max for record in records))
    current = table.generation_at(log_time_ms)
    merge = _fold(table, records, rules, current)
    table.forget(current)
    # Whoever settled what lies behind the table's end had looked for each id in all before it: so
    # none of these can be in the table, and looking for a million of them takes its time.
    is_behind = min(record.first for record in records) > meta.applied >= 0
    fresh_ids, conflicts = _against_table(table, merge, rules, look=not is_behind)
    in_bulk = not (meta.complete or conflicts)
    held_pinned = table.held(PINNED, merge.pinned)
    pinned = _chosen(held_pinned, merge.pinned, rules.pick_seen)
    held_levels = table.held(LEVELS, merge.levels)
    levels = _chosen(held_levels, merge.levels, rules.merge_level)
    unsent = merge.unsent.keys() - table.held(UNSENT, merge.unsent).keys()
    moved = newest.last > meta.applied
    after = msgspec.structs.replace(
        meta,
        applied=newest.last if moved else meta.applied,
        anchor=newest.anchor if moved else meta.anchor,
        catalogue_hash=newest.catalogue_hash if moved else meta.catalogue_hash,
        log_time_ms=log_time_ms,
        levels=meta.levels + len(merge.levels.keys() - held_levels.keys()),
        unsent=meta.unsent + len(unsent),
        pinned=meta.pinned + len(merge.pinned.keys() - held_pinned.keys()),
        floor_us=_floor(table, records, merge, current),
        generations=_counted(merge, fresh_ids, current),
        packed_next=packed_next,
        confirmed=max(meta.confirmed, *(record.confirmed for record in records)),
    )

    def fill(write: Batch) -> None:
        for key in conflicts:
            for slot in range(gen.KEPT):
                write.delete(seen_family(slot), [key])
        for number, ids in ({} if in_bulk else fresh_ids).items():
            write.put(seen_family(gen.slot_of(number)), list(ids.items()))
        write.put(PINNED, list(pinned.items()))
        write.put(LEVELS, list(levels.items()))
        write.put(UNSENT, [(key, merge.unsent[key]) for key in unsent])

    if in_bulk:
        _load(table, fresh_ids)
    # An incomplete table is thrown away at the next start, so its writes need no log.
    table.replace(fill, after, durable=meta.complete)
    table.absorbed(levels)


def _fold(
    table: PartitionTable, records: Iterable[PackedRecord], rules: MergeRules, current: int
) -> _Merge:
    merge = _Merge({}, {}, {}, {}, table.meta.generations)
    for record in records:
        number = table.generation_at(record.timestamp_ms_max)
        merge.generations = _noted(merge.generations, number, record.received_max_us)
        if not gen.is_forgotten(number, current):
            _put_all(merge.ids.setdefault(number, {}), record.seen(), rules.pick_seen)
        _put_all(merge.pinned, record.pinned(), rules.pick_seen)
        _put_all(merge.levels, record.levels, rules.merge_level)
        merge.unsent.update(
            pair for pair in record.unsent if unsent_offset(pair[0]) > table.meta.acknowledged
        )
    return merge


def _put_all(into: dict[bytes, bytes], pairs: Iterable[Pair], choose: Choose) -> None:
    for key, value in pairs:
        held = into.get(key)
        into[key] = value if held is None else choose(held, value)


def _noted(
    generations: tuple[Generation, ...], number: int, received_max_us: int
) -> tuple[Generation, ...]:
    """Generations with a greatest `received_at` noted, none of them forgotten yet."""
    held = {g.number: g for g in generations}
    old = held.get(number, Generation(number, -1, 0))
    held[number] = Generation(number, max(old.received_max_us, received_max_us), old.ids)
    return tuple(held[n] for n in sorted(held))


def _against_table(
    table: PartitionTable, merge: _Merge, rules: MergeRules, *, look: bool
) -> tuple[dict[int, dict[bytes, bytes]], list[bytes]]:
    """Ids to write by generation, and those of them to remove from wherever they lie now.

    Args:
        table: where they may lie.
        merge: what was read.
        rules: how values of one key become one.
        look: False where none of them can be in the table.
    """
    if not look and len(merge.ids) == 1:
        return merge.ids, []
    conflicts: list[bytes] = []
    fresh: dict[int, dict[bytes, bytes]] = {}
    taken: dict[bytes, int] = {}
    for number in sorted(merge.ids):
        ids = merge.ids[number]
        keys = list(ids)
        fresh[number] = {}
        known = table.seen(keys) if look else [None] * len(keys)
        for key, held in zip(keys, known, strict=True):
            value = ids[key]
            if key in taken:
                value = rules.pick_seen(fresh[taken[key]].pop(key), value)
            if held is not None:
                value = rules.pick_seen(held, value)
                if value == held:
                    continue
                conflicts.append(key)
            fresh[number][key] = value
            taken[key] = number
    return fresh, conflicts


def _load(table: PartitionTable, fresh: dict[int, dict[bytes, bytes]]) -> None:
    for number, ids in fresh.items():
        table.load(seen_family(gen.slot_of(number)), ids.items())


def _chosen(
    held: dict[bytes, bytes], read: dict[bytes, bytes], choose: Choose
) -> dict[bytes, bytes]:
    return {key: choose(held[key], value) if key in held else value for key, value in read.items()}


def _floor(
    table: PartitionTable, records: Iterable[PackedRecord], merge: _Merge, current: int
) -> int:
    carried = max(table.meta.floor_us, *(record.floor_us for record in records))
    return gen.floor_at(carried, merge.generations, current)


def _counted(
    merge: _Merge, fresh: dict[int, dict[bytes, bytes]], current: int
) -> tuple[Generation, ...]:
    return tuple(
        Generation(g.number, g.received_max_us, g.ids + len(fresh.get(g.number, ())))
        for g in merge.generations
        if not gen.is_forgotten(g.number, current)
    )
