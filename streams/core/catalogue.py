"""The meter catalogue: an append-only, dated rule book, and the version that judges an event.

The version is chosen by the event's `occurred_at` alone, so the same record gets the same verdict
on every worker, today and in a replay next year. A catalogue read from the ledger at R is complete
for everything before R + notice: later changes must be announced that long ahead. An event beyond
that point waits for a fresh reading instead of being judged by a book that may be old.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, NamedTuple

import msgspec

from streams.core.instant import HOUR_US, MINUTE_US

Publish = Literal["window", "event"]
Carry = Literal["review", "next-period", "manual"]

RULES: Final = 1
"""Number of the verdict rules in this code; a catalogue with a greater one needs newer code."""
EARLY_MAX_US: Final = 5 * MINUTE_US
"""How far `occurred_at` may lie after `received_at`: Stripe's own bound for clocks ahead."""
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
"""What meters and accounts may be called: it stands in identifiers, commands and URLs."""
DEFAULT_SKEW_US: Final = 24 * HOUR_US
DEFAULT_NOTICE_US: Final = HOUR_US
BEGINNING_US: Final = 0


class MeterVersion(NamedTuple):
    """One line of the rule book; never changed once written.

    `version` counts from 1 per metric. `scale` is in decimal places. `effective_from_us` is
    inclusive. `close_delay_us` is waited after a window's end, spread by hash, before its first
    entry. `carry` says what happens to usage that comes too late for its invoice.
    """

    metric: str
    version: int
    event_name: str
    window_us: int
    publish: Publish
    scale: int
    skew_max_us: int
    close_delay_us: int
    carry: Carry
    aggregation: str
    rules: int
    effective_from_us: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """No version of this metric was in force at that instant."""


@dataclass(frozen=True, slots=True)
class TooFresh:
    """The instant lies beyond what this reading of the catalogue can answer for."""


@dataclass(frozen=True)
class Catalogue:
    """All versions known at `read_at_us` (the ledger's clock)."""

    versions: tuple[MeterVersion, ...]
    read_at_us: int
    notice_us: int = DEFAULT_NOTICE_US
    by_metric: dict[str, tuple[MeterVersion, ...]] = field(init=False, compare=False, repr=False)
    complete_until_us: int = field(init=False, compare=False)
    hash: bytes = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Index the versions, newest first, and name the history by its hash."""
        grouped: dict[str, list[MeterVersion]] = {}
        for version in sorted(self.versions, key=lambda v: (v.metric, -v.version)):
            grouped.setdefault(version.metric, []).append(version)
        object.__setattr__(self, "by_metric", {m: tuple(v) for m, v in grouped.items()})
        object.__setattr__(self, "complete_until_us", self.read_at_us + self.notice_us)
        object.__setattr__(self, "hash", history_hash(self.versions))

    def at(self, metric: str, occurred_at_us: int) -> MeterVersion | Unknown | TooFresh:
        """The version that judges an event, or why there is none."""
        if occurred_at_us >= self.complete_until_us:
            return TOO_FRESH
        for version in self.by_metric.get(metric, ()):
            if occurred_at_us >= version.effective_from_us:
                return version
        return UNKNOWN

    def from_now_on(self) -> tuple[MeterVersion, ...]:
        """The versions that judge usage of the reading's moment or later."""
        return tuple(
            version
            for versions in self.by_metric.values()
            for version, newer in zip(versions, (None, *versions), strict=False)
            if newer is None or newer.effective_from_us > self.read_at_us
        )

    def newest_rules(self) -> int:
        """The greatest rule number that any line asks for; 0 for an empty catalogue."""
        return max((version.rules for version in self.versions), default=0)


UNKNOWN: Final = Unknown()
TOO_FRESH: Final = TooFresh()


def history_hash(versions: Iterable[MeterVersion]) -> bytes:
    """16 bytes that name this very history: same lines in any order, same hash."""
    ordered = sorted(versions, key=lambda version: (version.metric, version.version))
    return sha256(msgspec.json.encode([list(version) for version in ordered])).digest()[:16]


def is_prefix(older: Iterable[MeterVersion], newer: Iterable[MeterVersion]) -> bool:
    """Whether `newer` only adds to `older`: every older line stands unchanged in it."""
    return set(older) <= set(newer)
