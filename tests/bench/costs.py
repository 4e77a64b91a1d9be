"""What a record costs a table, by what is done for it: CPU of one thread, and of RocksDB's own.

Writing ids to files is put off: while they lie in memory nothing has been paid for them. So what
RocksDB's own threads do is taken from where everything was in files to where it is again.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_UP: Final = "look-up"
SETTLE: Final = "settling"
COPY: Final = "copy"
MICRO: Final = 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds."""

    look_up_us: float
    """To learn that an id is fresh."""
    settle_us: float
    """Of a fresh id, in its chunk's one write."""
    files_us: float
    """Of a fresh id, for RocksDB's threads: sorting, writing, merging files."""
    copy_us: float
    """To learn of a copy what it is a copy of: not part of what a fresh id costs."""

    @property
    def total_us(self) -> float:
        """Of a fresh id."""
        return self.look_up_us + self.settle_us + self.files_us

    def told(self) -> str:
        """Its parts, for a table."""
        return (
            f"look-up {self.look_up_us:.2f}, settling {self.settle_us:.2f}, RocksDB's files "
            f"{self.files_us:.2f}; a copy's look-up {self.copy_us:.1f}"
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """Everything up to a moment."""

    parts_s: dict[str, float]
    files_s: float
    fresh: int
    copies: int


class Meter:
    """CPU so far of a process with one thread of Python, whose others are RocksDB's."""

    def __init__(self) -> None:
        self._parts_s = dict.fromkeys((LOOK_UP, SETTLE, COPY), 0.0)
        self.fresh = 0
        self.copies = 0

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Takes the time of a block for a part."""
        began_s = time.thread_time()
        yield
        self._parts_s[part] += time.thread_time() - began_s

    def spent(self) -> Spent:
        """Until now."""
        files_s = time.process_time() - time.thread_time()
        return Spent(dict(self._parts_s), files_s, self.fresh, self.copies)


def cost(begin: Spent, end: Spent, filed: Spent) -> Cost:
    """Of one id between two moments; what its files cost since `filed`, when all lay in files."""
    fresh = end.fresh - begin.fresh

    def each_us(part: str, count: int) -> float:
        return (end.parts_s[part] - begin.parts_s[part]) / max(1, count) * MICRO

    return Cost(
        each_us(LOOK_UP, fresh),
        each_us(SETTLE, fresh),
        (end.files_s - filed.files_s) / (end.fresh - filed.fresh) * MICRO,
        each_us(COPY, end.copies - begin.copies),
    )
