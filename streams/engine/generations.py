"""Log time → which ids are still remembered: four generations, a pure function of the log.

A generation is a third of the horizon wide. When the log enters generation n, generation n - 4 is
forgotten, so an id lives for at least the horizon. `floor_us` is the greatest `received_at` among
all forgotten ids: a record at or below it cannot be judged by look-up any more, a record above it
cannot be among the forgotten. No worker's clock enters.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

KEPT: Final = 4
"""Generations remembered at a time; also the number of slots."""


class Generation(msgspec.Struct, frozen=True, array_like=True):
    """What one generation holds."""

    number: int
    """Log time divided by the width."""
    received_max_us: int
    """Greatest `received_at` among its ids; -1 when it has none."""
    ids: int
    """How many ids it holds."""


def width_ms(horizon_ms: int) -> int:
    """Width of a generation for a horizon."""
    return max(1, horizon_ms // 3)


def slot_of(number: int) -> int:
    """Slot in which a generation lies; never shared by two remembered ones."""
    return number % KEPT


def is_forgotten(number: int, current: int) -> bool:
    """Whether a generation is no longer remembered once the log is in `current`."""
    return number <= current - KEPT


def floor_at(floor_us: int, generations: Iterable[Generation], current: int) -> int:
    """Floor once the log is in generation `current`."""
    return max(
        [floor_us] + [g.received_max_us for g in generations if is_forgotten(g.number, current)]
    )


def remembered(generations: Iterable[Generation], current: int) -> list[Generation]:
    """Generations still remembered in `current`, newest first."""
    kept = [g for g in generations if not is_forgotten(g.number, current)]
    return sorted(kept, key=lambda g: -g.number)


def with_ids(
    generations: Iterable[Generation], number: int, *, received_max_us: int, ids: int
) -> tuple[Generation, ...]:
    """Generations remembered in `number` after adding ids to it, oldest first.

    Args:
        generations: what was held before.
        number: generation the ids belong to; older ones may be forgotten by it.
        received_max_us: greatest `received_at` among the new ids; -1 for none.
        ids: how many there are.
    """
    held = {g.number: g for g in generations}
    old = held.get(number, Generation(number, -1, 0))
    held[number] = Generation(number, max(old.received_max_us, received_max_us), old.ids + ids)
    newest = max(held)
    return tuple(held[n] for n in sorted(held) if not is_forgotten(n, newest))
