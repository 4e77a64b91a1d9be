"""A log's records, decided again → what the ledger says otherwise.

In: what the same rules make of the records that are read, and what the ledger was told of them.
Out: differences, of which there are none where nothing was lost, changed or made up.

A part of a log can be compared as far as it goes: what began before it is left out, and what may
still come behind it is no difference where the ledger has more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, assert_never
from uuid import UUID

from streams.core.fact import CanaryFact, CorrectionFact, EventFact, ParkedFact, Series
from streams.core.fact_codec import StoredFact
from streams.core.instant import HOUR_US, wire_text
from streams.core.level import CellKey, Key, Reading

EARLIER_US: Final = 2 * HOUR_US
"""A record stands in the log no longer than this before its own instants, whatever the clocks."""


class Reach(NamedTuple):
    """How much of a partition is read.

    `from_us` is the log's time at its first record, None at the beginning of the log. `whole`: up
    to the last record whose facts the ledger has.
    """

    from_us: int | None
    whole: bool

    def begins_before(self, instant_us: int) -> bool:
        """Whether every record of an instant, or a later one, comes after the first one read."""
        return self.from_us is None or self.from_us + EARLIER_US <= instant_us


class Difference(NamedTuple):
    """Something that replay and ledger do not agree on, in words."""

    kind: str
    subject: str
    replayed: str
    ledger: str


class Sum(NamedTuple):
    """A reading as the ledger holds it."""

    records: int
    total: int
    digest: int
    birth_offset: int


NONE: Final = Sum(0, 0, 0, -1)


@dataclass(slots=True)
class Compared:
    """How many readings agree, were read in part only, or differ."""

    equal: int = 0
    partly: int = 0
    differences: list[Difference] = field(default_factory=list)


def compare_readings(
    replayed: Mapping[Key, Reading], told: Mapping[Key, Sum], reach: Reach, *, cells: bool = True
) -> Compared:
    """Levels with levels, cells with cells; both maps are of one partition.

    Without `cells` levels alone: a cell counts all tenants of its minute, so what some tenants'
    records come to is none.
    """
    compared = Compared()
    for key in sorted({*replayed, *told}, key=_order):
        if not cells and isinstance(key, CellKey):
            continue
        reading = replayed.get(key)
        mine = NONE if reading is None else Sum(
            reading.records, reading.total, reading.digest, reading.birth_offset
        )  # fmt: skip
        theirs = told.get(key, NONE)
        if not reach.begins_before(_begins_us(key)):
            compared.partly += 1
        elif mine == theirs:
            compared.equal += 1
        elif not reach.whole and mine.records < theirs.records:
            compared.partly += 1
        else:
            kind = "level" if isinstance(key, Series) else "cell"
            compared.differences.append(
                Difference(kind, _subject(key), _sum_text(mine), _sum_text(theirs))
            )
    return compared


class Entered(NamedTuple):
    """An entry of the ledger, as a fact would have it."""

    units: int
    window_start_us: int
    catalogue_version: int


class Parked(NamedTuple):
    """What tells one parked item from another."""

    kind: str
    reason: str
    event_id: str | None
    content: int | None
    offset: int | None
    """Of a record without an identity."""


class ToldFacts(NamedTuple):
    """What the ledger has of the facts that are asked for."""

    entries: Mapping[tuple[str, str], Entered]
    """By kind and event id."""
    parked: frozenset[Parked]


class Asked(NamedTuple):
    """What to look for in the ledger."""

    event_ids: list[str]
    offsets: list[int]


def asked_of(facts: Iterable[tuple[int, StoredFact]]) -> Asked:
    """Ids and offsets behind these facts."""
    asked = Asked([], [])
    for offset, fact in facts:
        if isinstance(fact, CanaryFact):
            continue
        if fact.event_id is None:
            asked.offsets.append(offset)
        else:
            asked.event_ids.append(str(UUID(bytes=fact.event_id)))
    return asked


def compare_facts(
    facts: Iterable[tuple[int, StoredFact]], told: ToldFacts, reach: Reach
) -> Compared:
    """Events and corrections with their entries, what was set aside with the parked items."""
    compared = Compared()
    for offset, fact in facts:
        match fact:
            case EventFact():
                mine = Entered(
                    fact.units, fact.series.window_start_us, fact.series.catalogue_version
                )
                _enter(compared, "event", fact.event_id, offset, mine, told, reach)
            case CorrectionFact():
                mine = Entered(
                    fact.delta_units, fact.series.window_start_us, fact.series.catalogue_version
                )
                _enter(compared, "correction", fact.event_id, offset, mine, told, reach)
            case ParkedFact():
                _park(compared, fact, offset, told, reach)
            case CanaryFact():
                pass  # its cell tells of it
            case _ as unreachable:
                assert_never(unreachable)
    return compared


def _enter(  # noqa: PLR0913, PLR0917 - one comparison, each a part of it
    compared: Compared, kind: str, event_id: bytes, offset: int, mine: Entered, told: ToldFacts,
    reach: Reach,
) -> None:  # fmt: skip
    name = str(UUID(bytes=event_id))
    theirs = told.entries.get((kind, name))
    if mine == theirs:
        compared.equal += 1
    elif not reach.begins_before(mine.window_start_us):
        compared.partly += 1
    else:
        there = "none" if theirs is None else _entry_text(theirs)
        compared.differences.append(
            Difference("entry", f"{kind} {name} at offset {offset}", _entry_text(mine), there)
        )


def _park(compared: Compared, fact: ParkedFact, offset: int, told: ToldFacts, reach: Reach) -> None:
    if fact.event_id is None:
        mine = Parked(fact.kind, fact.reason, None, None, offset)
    else:
        name = str(UUID(bytes=fact.event_id))
        mine = Parked(fact.kind, fact.reason, name, fact.content, None)
    if mine in told.parked:
        compared.equal += 1
    elif fact.occurred_at_us is not None and not reach.begins_before(fact.occurred_at_us):
        compared.partly += 1
    else:
        subject = f"{mine.event_id or 'a record'} at offset {offset}"
        compared.differences.append(
            Difference("verdict", subject, f"{fact.kind} {fact.reason}", "no such item")
        )


def _begins_us(key: Key) -> int:
    return key.window_start_us if isinstance(key, Series) else key.minute_us


def _order(key: Key) -> tuple[int, str]:
    return _begins_us(key), _subject(key)


def _subject(key: Key) -> str:
    if isinstance(key, CellKey):
        return f"{key.source} {wire_text(key.minute_us)} {key.verdict_class}"
    shard = f" shard {key.shard}" if key.shard else ""
    window = wire_text(key.window_start_us)
    return f"{key.tenant_id} {key.metric} v{key.catalogue_version} {window}{shard}"


def _sum_text(held: Sum) -> str:
    if not held.records:
        return "nothing"
    return (
        f"{held.records} events, {held.total} units, digest {held.digest:032x}, first at offset "
        f"{held.birth_offset}"
    )


def _entry_text(entry: Entered) -> str:
    return f"{entry.units} units, v{entry.catalogue_version} {wire_text(entry.window_start_us)}"
