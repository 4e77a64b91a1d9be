"""How a topic grew → which log a partition's records are, and what it remembers of others.

A topic may grow by a whole multiple. Its partitions go on as they are; each new one is a log of
its own, which takes over a share of the keys of exactly one partition before it, and with them the
memory of what was counted there. Kafka's clients choose by `murmur2(key) mod count`, so with a
whole multiple the partition that a key had before is the new one's number modulo the count of then.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID, uuid5

import msgspec


class Log(msgspec.Struct, frozen=True):
    """Partitions of one life of a topic that came together."""

    log_id: str
    """UUID text: the topic's own id, for partitions that a growth brought one derived from it."""
    first_partition: int
    """Number of its first partition."""
    partitions: int
    """How many the topic had since; its last partition is the one before."""
    boundaries: tuple[int, ...] = ()
    """By earlier partition: the offset from which on keys are at home by this log's count."""


class Life(msgspec.Struct, frozen=True):
    """One life of a topic: the log that it began with, and one for each growth, oldest first."""

    logs: tuple[Log, ...]

    @property
    def partitions(self) -> int:
        """How many it has, as far as the ledger was told."""
        return self.logs[-1].partitions

    def log_of(self, partition: int) -> Log:
        """The log of a partition. Raises `LookupError` where there is none of that number."""
        for log in self.logs:
            if log.first_partition <= partition < log.partitions:
                return log
        message = f"partition {partition} of {self.partitions}"
        raise LookupError(message)

    def counts(self, partition: int) -> tuple[tuple[int, int], ...]:
        """(offset, partition count by which keys are at home from there on), oldest first."""
        own = self.log_of(partition)
        later = [log for log in self.logs if log.first_partition > partition]
        return (0, own.partitions), *((g.boundaries[partition], g.partitions) for g in later)


LogRow = tuple[str, str, int, int | None, Sequence[int]]
"""root, log, first partition, partitions (None: nobody noted them), boundaries."""


def lives_of(rows: Iterable[LogRow], partitions: int) -> tuple[Life, ...]:
    """Lives of a topic, from the ledger's rows of its logs, in their order.

    Args:
        rows: oldest life first, and in it the oldest log.
        partitions: what the topic has now, for a life of which no count was noted.
    """
    logs: dict[str, list[Log]] = {}
    for root, log_id, first, noted, boundaries in rows:
        logs.setdefault(root, []).append(Log(log_id, first, noted or partitions, tuple(boundaries)))
    return tuple(Life(tuple(own)) for own in logs.values())


class Inherited(NamedTuple):
    """What a partition remembers of another log."""

    log_id: str
    partition: int
    last: int | None
    """Last offset there whose keys may be here now; None: all that the ledger holds."""
    lives: bool
    """The log is of the same life: whatever it has is counted, or will be."""


def inherited(lives: Sequence[Life], partition: int) -> list[Inherited]:
    """What a partition of the latest life has to remember, the latest log first.

    Args:
        lives: of one topic, oldest first, each opened by a person to go on with the one before.
        partition: of the last of them.
    """
    found = []
    for place in range(len(lives) - 1, -1, -1):
        life, lives_on = lives[place], place == len(lives) - 1
        for log in reversed(life.logs):
            there = partition % log.partitions
            is_itself = lives_on and there == partition
            if there < log.first_partition or is_itself:
                continue
            found.append(
                Inherited(log.log_id, there, _left_at(life, log, there, partition), lives_on)
            )
    return found


def _left_at(life: Life, log: Log, there: int, partition: int) -> int | None:
    """The last offset of a partition before keys of another one left it."""
    for growth in life.logs:
        if growth.first_partition > log.first_partition and partition % growth.partitions != there:
            return growth.boundaries[there] - 1
    return None


def grown_log_id(root: str, present: int, partitions: int) -> str:
    """The log of the partitions that a growth brings: the same whenever it is asked for."""
    return str(uuid5(UUID(root), f"{present}/{partitions}"))


def growth_problem(present: int, partitions: int) -> str | None:
    """Why a topic cannot grow from one count to another; None when it can."""
    if partitions < present:
        return f"must be more than the {present} there are: partitions cannot be taken away"
    if partitions % present:
        return (
            f"must be a whole multiple of the {present} there are, so that each new partition "
            f"takes over keys of one alone: {present * 2} or {present * 3}, for example"
        )
    return None
