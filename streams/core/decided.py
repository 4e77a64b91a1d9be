"""What admission is given of a partition and what it gives back for one chunk: values only."""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streams.core.fact_codec import StoredFact
from streams.core.level import Key, Reading
from streams.core.orders import Skips

Lookup = Callable[[Sequence[bytes]], Sequence[bytes | None]]
Keyed = tuple[bytes | None, bytes]


class SourceRecord(Protocol):
    """One record of the events topic, as a chunk carries it."""

    @property
    def offset(self) -> int:
        """Offset in the source log."""

    @property
    def timestamp_ms(self) -> int:
        """When the log took the record, by the log's clock."""

    @property
    def key(self) -> bytes | None:
        """Kafka key."""

    @property
    def value(self) -> bytes | None:
        """Kafka value."""


def _never_elsewhere(key: bytes, offset: int) -> int:
    message = f"{key!r} at {offset}: the topic never had another partition count"
    raise LookupError(message)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chunk comes from and what its partition remembers.

    `lookup` answers for ids in order with their stored mark or None, `home` for a key with the
    partition it belongs on since the offset `settled_at`, before which `home_before` answers, and
    `origins` are the partitions where its keys were at home before that.
    `floor_us` is the greatest `received_at` that the state has dropped.
    `suspect` is the offset of a record that has killed workers: it is parked without being read.
    `skips` are records that a person decided to dead-letter, by offset.
    """

    topic: str
    partition: int
    lookup: Lookup
    home: Callable[[bytes], int]
    readings: Mapping[Key, Reading]
    floor_us: int
    suspect: int | None = None
    skips: Skips = field(default_factory=dict)
    settled_at: int = 0
    home_before: Callable[[bytes, int], int] = _never_elsewhere
    origins: Container[int] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """From `offset` on nothing may be decided until a person or newer code has come."""

    offset: int
    reason: str
    by_record: bool = False
    """It is this one record that cannot be decided, so a person may decide to skip it."""


@dataclass(frozen=True, slots=True)
class AwaitFresh:
    """From `offset` on a fresher reading of the catalogue is needed."""

    offset: int


@dataclass(slots=True)
class Decided:
    """What follows from the records up to `last` (`first - 1` when none could be decided).

    `seen` holds (id, mark) of the identities judged for the first time; `pinned` those of them
    whose `received_at` runs ahead of the log: no expiry may forget them, and they do not count for
    `received_max_us` (-1: none). `facts` are (source offset, fact). `counts` names each record
    decided exactly once.
    """

    last: int
    stop: Hold | AwaitFresh | None = None
    accepted: list[Keyed] = field(default_factory=list)
    review: list[Keyed] = field(default_factory=list)
    dead_letter: list[Keyed] = field(default_factory=list)
    seen: list[tuple[bytes, bytes]] = field(default_factory=list)
    pinned: list[tuple[bytes, bytes]] = field(default_factory=list)
    readings: dict[Key, Reading] = field(default_factory=dict)
    facts: list[tuple[int, StoredFact]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    received_max_us: int = -1
