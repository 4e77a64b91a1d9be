"""Rules and a log → what they come to, in figures that can be held beside those of other rules.

In: decided chunks, or the history of a rule book. Out: events and units by meter and verdict, and
the rule book as it stood when a hash named it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from streams.core.catalogue import MeterVersion, history_hash
from streams.core.decided import Decided
from streams.core.fact import CanaryFact, CorrectionFact, EventFact, ParkedFact, Series
from streams.core.fact_codec import StoredFact
from streams.core.level import Key, Reading

Name = tuple[str, str]
"""Meter and verdict, such as `api_calls` and `review late`."""


class Figure(NamedTuple):
    """Events and their units."""

    events: int
    units: int

    def plus(self, other: "Figure") -> "Figure":
        """Both together."""
        return Figure(self.events + other.events, self.units + other.units)


NO_FIGURE: Final = Figure(0, 0)


def figures_of(decided: Decided, before: Mapping[Key, Reading]) -> dict[Name, Figure]:
    """What a chunk came to.

    Args:
        decided: of the chunk.
        before: the readings that it was decided with.
    """
    parts: list[Mapping[Name, Figure]] = []
    for key, reading in decided.readings.items():
        if isinstance(key, Series):
            base = before.get(key)
            taken = NO_FIGURE if base is None else Figure(-base.records, -base.total)
            grown = Figure(reading.records, reading.total).plus(taken)
            parts.append({(key.metric, "accepted"): grown})
    parts.extend(_of_fact(fact) for _, fact in decided.facts)
    return summed(parts)


def _of_fact(fact: StoredFact) -> Mapping[Name, Figure]:
    match fact:
        case EventFact():
            return {(fact.series.metric, "accepted"): Figure(1, fact.units)}
        case CorrectionFact():
            return {(fact.series.metric, "correction"): Figure(1, fact.delta_units)}
        case ParkedFact():
            name = (fact.metric or "", f"{fact.kind} {fact.reason}")
            return {name: Figure(1, fact.units or 0)}
        case CanaryFact():
            return {}
        case _ as unreachable:
            assert_never(unreachable)


def summed(parts: Iterable[Mapping[Name, Figure]]) -> dict[Name, Figure]:
    """All of them together, by name."""
    total: dict[Name, Figure] = {}
    for part in parts:
        for name, figure in part.items():
            total[name] = total.get(name, NO_FIGURE).plus(figure)
    return dict(sorted(total.items()))


class Written(NamedTuple):
    """A line of the rule book, and when it was written."""

    at_us: int
    version: MeterVersion


def original(history: Sequence[Written], wanted: bytes) -> tuple[MeterVersion, ...] | None:
    """The rule book that a hash names: the history as it stood then; None where it never did."""
    for at_us in sorted({line.at_us for line in history}, reverse=True):
        versions = tuple(line.version for line in history if line.at_us <= at_us)
        if history_hash(versions) == wanted:
            return versions
    return () if history_hash(()) == wanted else None
