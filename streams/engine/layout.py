"""How a topic came to the partitions it has, as far as one of them is concerned.

A topic may have been grown. The partitions that it had go on with their offsets and their state;
each new one is a log of its own, because its offsets count from 0 and its totals do too.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from streams.engine.partitioner import home_partition

Counts = tuple[tuple[int, int], ...]
"""(source offset, partition count by which keys are at home from there on), oldest first."""


class Layout(msgspec.Struct, frozen=True):
    """Of one partition."""

    life_id: str
    """Id the broker gave this life of the topic."""
    topic_id: str
    """Id of the partition's log: the same, unless a growth brought the partition."""
    partitions: int
    """How many partitions the topic is known to have."""
    counts: Counts
    """By which counts records of this partition are at home."""
    origins: frozenset[int] = frozenset()
    """Where its keys were at home before: numbers of partitions."""

    @property
    def begun_with(self) -> int | None:
        """Partition count that the topic began with; None for a partition that came later."""
        return self.counts[0][1] if self.topic_id == self.life_id else None

    @property
    def settled_at(self) -> int:
        """First source offset at home by the count of now."""
        return self.counts[-1][0]

    def home_before(self, key: bytes, offset: int) -> int:
        """Where a key was at home when this offset was written, by any of the counts."""
        count = max((since, count) for since, count in self.counts if since <= offset)[1]
        return home_partition(key, count)


LayoutOf = Callable[[str, int, int], Layout | None]
"""(id of the topic's life, partitions it has now, partition) → its layout; None: nobody can say."""


def ungrown(life_id: str, partitions: int, partition: int) -> Layout:
    """The layout of a topic that never had another count."""
    del partition
    return Layout(life_id, life_id, partitions, ((0, partitions),))


NO_LAYOUT: Final = Layout("", "", 0, ((0, 0),))
"""Of a table that nobody recovered."""
