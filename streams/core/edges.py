"""Edges of time: `time_edges.json` and a catalogue → what the rules say of each edge.

In: instants at every edge of the calendar and of the rules, with what is expected, and a meter
catalogue. Out: each edge's verdict, window or deadline by these very meters, and whether it is the
expected one. What is expected of a meter that began later, or has another cutoff, is derived here.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Literal, NamedTuple, assert_never

import msgspec

from streams.core.billing import BillingCycle, deadline_us, period_of
from streams.core.catalogue import DEFAULT_SKEW_US, Catalogue, MeterVersion
from streams.core.envelope import decode
from streams.core.event import UsageEvent, Wire
from streams.core.identity import content_digest, event_id
from streams.core.instant import LAST_US, SECOND_US, duration_us, from_us, to_us, wire_text
from streams.core.interval import BillingInterval
from streams.core.lane import Claim
from streams.core.settlement import Fenced, Permission, PublishPolicy, Send, TooOld, Wait, may_send
from streams.core.verdict import Accepted, AwaitCatalogue, Dead, Review, Verdict, judge
from streams.core.window import assign

NOBODY_FORGOT_US: Final = -1


class InstantEdge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One instant, its number, and the starts of its windows."""

    name: str
    wire: str
    us: int
    minute: str
    hour: str
    day: str


class VerdictEdge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One event, judged by a meter with the default cutoff; `logged_at`: by the log's clock."""

    name: str
    occurred_at: str
    received_at: str
    verdict: str
    logged_at: str | None = None


class CutoffEdge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One event that is received so long after a meter's own cutoff."""

    name: str
    occurred_at: str
    plus_us: int
    verdict: str


class PeriodEdge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One instant in a customer's billing period, and its deadline."""

    name: str
    anchor: str
    interval: BillingInterval
    grace: str
    at: str
    period_start: str
    period_end: str
    deadline: str


class DateEdge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request's date, and whether it may be sent at that moment of the ledger's clock."""

    name: str
    timestamp: str
    now: str
    may: Literal["send", "wait", "too old"]


class Edges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file; `margin` is the one that its deadlines were computed with."""

    margin: str
    instants: list[InstantEdge]
    verdicts: list[VerdictEdge]
    cutoffs: list[CutoffEdge]
    periods: list[PeriodEdge]
    dates: list[DateEdge]


class Tried(NamedTuple):
    """One edge under one meter, or under none where no meter matters.

    `expected` is None where the file says nothing about a meter like this one.
    """

    edge: str
    metric: str | None
    found: str
    expected: str | None
    start: str | None
    end: str | None
    deadline: str | None

    @property
    def right(self) -> bool:
        """Whether nothing else was expected."""
        return self.expected in {None, self.found}


def read_edges(raw: bytes) -> Edges:
    """The edges of a file.

    Raises:
        msgspec.DecodeError: it is none, by path and rule.
    """
    return msgspec.json.decode(raw, type=Edges)


def try_edges(edges: Edges, catalogue: Catalogue) -> Iterator[Tried]:
    """Every edge: those of the calendar first, then each meter's.

    Args:
        edges: the file.
        catalogue: the meters; its reading must be complete for all time.
    """
    margin_us = duration_us(edges.margin)
    yield from (_period(edge, margin_us) for edge in edges.periods)
    yield from map(_date, edges.dates)
    for versions in catalogue.by_metric.values():
        for edge in edges.instants:
            yield _instant(edge, catalogue, versions)
        for verdict in edges.verdicts:
            yield _verdict(verdict, catalogue, versions)
        for cutoff in edges.cutoffs:
            yield _cutoff(cutoff, catalogue, versions)


def _period(edge: PeriodEdge, margin_us: int) -> Tried:
    cycle = BillingCycle(_us(edge.anchor), edge.interval, duration_us(edge.grace))
    start_us, end_us = period_of(cycle.anchor_us, cycle.interval, _us(edge.at))
    found = wire_text(deadline_us(cycle, _us(edge.at), margin_us))
    same = (wire_text(start_us), wire_text(end_us)) == (edge.period_start, edge.period_end)
    said = "in its period" if same else "in another period"
    right = same and found == edge.deadline
    expected = said if right else f"in its period until {edge.period_end}, by {edge.deadline}"
    return Tried(edge.name, None, said, expected, wire_text(start_us), wire_text(end_us), found)


def _date(edge: DateEdge) -> Tried:
    now_us = _us(edge.now)
    claim = Claim(
        lane_id=0, meter_event_id=0, attempt_id=0, customer="", event_name="", value="1",
        timestamp_s=_us(edge.timestamp) // SECOND_US, identifier="", payload_hash="",
        key_generation=1, attempts_used=0, previous_attempts=0, first_attempt_at_us=now_us,
        possibly_executed=False, now_us=now_us, lease_until_us=now_us,
    )  # fmt: skip
    found = _said_of_date(may_send(claim, PublishPolicy(), now_us))
    return Tried(edge.name, None, found, edge.may, None, None, None)


def _said_of_date(permission: Permission) -> str:
    match permission:
        case Send():
            return "send"
        case Wait():
            return "wait"
        case TooOld() | Fenced():
            return "too old"
        case _ as unreachable:
            assert_never(unreachable)


def _instant(edge: InstantEdge, catalogue: Catalogue, versions: tuple[MeterVersion, ...]) -> Tried:
    """The window by length; an instant that no version judges has none."""
    meter = catalogue.at(versions[0].metric, edge.us)
    if not isinstance(meter, MeterVersion):
        return Tried(edge.name, versions[0].metric, "dead", _begun("dead", edge.us, versions),
                     None, None, None)  # fmt: skip
    start_us, end_us = assign(edge.us, meter.window_us)
    lengths = {60: edge.minute, 3600: edge.hour, 86_400: edge.day}
    right = wire_text(start_us) == lengths[meter.window_us // SECOND_US]
    return Tried(
        edge.name, meter.metric, "in its window" if right else "in another window",
        "in its window", wire_text(start_us), wire_text(end_us), None,
    )  # fmt: skip


def _verdict(edge: VerdictEdge, catalogue: Catalogue, versions: tuple[MeterVersion, ...]) -> Tried:
    occurred_us, received_us = _us(edge.occurred_at), _us(edge.received_at)
    logged_us = received_us if edge.logged_at is None else _us(edge.logged_at)
    known = all(version.skew_max_us == DEFAULT_SKEW_US for version in versions)
    expected = _begun(edge.verdict, occurred_us, versions) if known else None
    return _judged(edge.name, catalogue, versions, expected, (occurred_us, received_us, logged_us))


def _cutoff(edge: CutoffEdge, catalogue: Catalogue, versions: tuple[MeterVersion, ...]) -> Tried:
    occurred_us = _us(edge.occurred_at)
    meter = catalogue.at(versions[0].metric, occurred_us)
    skew_us = meter.skew_max_us if isinstance(meter, MeterVersion) else 0
    received_us = occurred_us + skew_us + edge.plus_us
    expected = _begun(edge.verdict, occurred_us, versions)
    return _judged(
        edge.name, catalogue, versions, expected, (occurred_us, received_us, received_us)
    )


def _begun(verdict: str, occurred_us: int, versions: tuple[MeterVersion, ...]) -> str:
    """What is expected of a meter that only begins somewhere: nothing before it is usage of it."""
    begins_us = min(version.effective_from_us for version in versions)
    judged = begins_us <= occurred_us < LAST_US or verdict in {"early", "dead"}
    return verdict if judged else "dead"


def _judged(
    name: str,
    catalogue: Catalogue,
    versions: tuple[MeterVersion, ...],
    expected: str | None,
    instants_us: tuple[int, int, int],
) -> Tried:
    occurred_us, received_us, logged_us = instants_us
    verdict = _read_and_judge(versions[0].metric, catalogue, occurred_us, received_us, logged_us)
    start = end = None
    if isinstance(verdict, Accepted):
        series = verdict.series
        start, end = wire_text(series.window_start_us), wire_text(series.window_end_us)
    return Tried(name, versions[0].metric, _said_of(verdict), expected, start, end, None)


def _said_of(verdict: Verdict) -> str:
    match verdict:
        case Accepted():
            return "accepted"
        case Review(reason=reason):
            return reason
        case Dead():
            return "dead"
        case AwaitCatalogue():
            return "waits"
        case _ as unreachable:
            assert_never(unreachable)


def _read_and_judge(
    metric: str, catalogue: Catalogue, occurred_us: int, received_us: int, logged_us: int
) -> Verdict:
    """As admission does: a record, read, then judged."""
    identity, occurred_at = event_id("edges", "edges", "edge"), wire_text(occurred_us)
    wire = Wire(
        v=1, type="usage", source="edges", event_id=identity.hex(), tenant_id="edges",
        kafka_key="edges", shard=0, metric=metric, occurred_at=occurred_at,
        received_at=from_us(received_us), event_key="edge", quantity="1",
        content=content_digest(identity, metric, "1", occurred_at).hex(),
    )  # fmt: skip
    event = decode(b"edges", msgspec.json.encode(wire))
    if not isinstance(event, UsageEvent):
        return Dead("is no usage event", "$")
    return judge(event, catalogue, NOBODY_FORGOT_US, logged_at_us=logged_us, fresh=True)


def _us(text: str) -> int:
    return to_us(datetime.fromisoformat(text))
