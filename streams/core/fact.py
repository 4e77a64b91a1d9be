"""Facts: what a partition tells the ledger, repeatable and acknowledged.

In: levels, event entries, parked items, cells, canaries of one partition, up to one source offset.
Out: one `FactBatch` a transaction; the ledger answers `Applied` or says that it went back in time.

Everything in a batch may be sent any number of times: levels and cells are cumulative readings of
which the ledger keeps the one with the greatest count, the rest carries an identity that the ledger
keeps unique.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec

ParkedKind = Literal["review", "dead"]
ReviewReason = Literal[
    "late", "early", "conflict", "beyond_horizon", "too_large", "correction_limit"
]


class Series(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One line of account: what is added up together, for one window.

    `catalogue_version` is the meter's own version (1, 2, ...), chosen by `occurred_at` alone, so a
    changed window length starts new series and never re-counts old usage.
    """

    tenant_id: str
    metric: str
    catalogue_version: int
    window_start_us: int
    window_end_us: int
    shard: int


class LevelFact(msgspec.Struct, frozen=True, gc=False):
    """The reading of a series: a pure fold of its accepted events in one log.

    `count` is its version; `total` in units of the meter's scale; `digest` the sum modulo 2^128 of
    the content digests; `birth_offset` the source offset of the first event folded in.
    """

    series: Series
    count: int
    total: int
    digest: int
    birth_offset: int


@dataclass(frozen=True, slots=True)
class EventFact:
    """An accepted event of a meter that publishes event by event: an entry of its own."""

    event_id: bytes
    content: int
    series: Series
    occurred_at_us: int
    units: int
    offset: int


@dataclass(frozen=True, slots=True)
class CorrectionFact:
    """A signed correction that a service recorded in its own transaction and within its limit."""

    event_id: bytes
    content: int
    series: Series
    occurred_at_us: int
    delta_units: int
    correction_key: str
    target_event_id: bytes | None
    reason: str
    authorized_by: str
    offset: int


@dataclass(frozen=True, slots=True)
class ParkedFact:
    """A record that a person decides on (`review`) or that cannot be used (`dead`).

    `event_id` and `content` are None where the record could not be read. `record` holds at most
    64 KiB of the original value; `detail` is a JSON object text with path, rule and both versions
    where there are two. `units` and `series` are there when the item could be judged that far, so
    that an approval knows its window and amount.
    """

    kind: ParkedKind
    reason: str
    offset: int
    event_id: bytes | None
    content: int | None
    source: str | None
    tenant_id: str | None
    metric: str | None
    units: int | None
    series: Series | None
    occurred_at_us: int | None
    received_at_us: int | None
    detail: str
    record: bytes


class CellFact(msgspec.Struct, frozen=True, gc=False):
    """Identities of one source and one minute of `received_at` by their first verdict's class.

    `verdict_class` is accepted, review, dead, canary, correction, or conflict (counted apart).
    """

    source: str
    minute_us: int
    verdict_class: str
    count: int
    digest: int
    birth_offset: int


@dataclass(frozen=True, slots=True)
class CanaryFact:
    """A canary row that arrived: the proof that this partition's whole path is alive."""

    source: str
    partition: int
    token: str
    received_at_us: int
    offset: int


@dataclass(frozen=True, slots=True)
class FactBatch:
    """Everything one partition has to say up to `position`.

    `log_id` is the topic's id (UUID text), `acknowledged` the position that this worker remembers
    the ledger to have confirmed (-1: none), `position` the source offset up to which all facts are
    contained in this batch or earlier ones. `begun_with` is the partition count that the topic
    began with, None for a partition that came when it grew.
    """

    log_topic: str
    log_id: str
    partition: int
    begun_with: int | None
    acknowledged: int
    position: int
    catalogue_hash: str
    levels: tuple[LevelFact, ...] = ()
    events: tuple[EventFact, ...] = ()
    corrections: tuple[CorrectionFact, ...] = ()
    parked: tuple[ParkedFact, ...] = ()
    cells: tuple[CellFact, ...] = ()
    canaries: tuple[CanaryFact, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """The ledger holds everything up to `position`; `findings` counts refused readings."""

    position: int
    findings: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a worker remembers the ledger to have confirmed of one partition."""

    log_topic: str
    log_id: str
    partition: int
    acknowledged: int


@dataclass(frozen=True, slots=True)
class WentBack:
    """The ledger knows less than it once acknowledged: it was restored or failed over.

    `adopted`: a person has taken this very difference on, and the worker may tell again what is
    missing.
    """

    stored: int
    acknowledged: int
    adopted: bool = False


LedgerAnswer = Applied | WentBack
