"""Trace, reading: a key's registry row → everything the ledger knows of it and of its window."""

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Any, Self
from uuid import UUID

from streams.cli.database import Connection, ledger_rows, rows
from streams.cli.trace_holds import Hold, HoldFacts, holds
from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.event import UsageEvent
from streams.core.fact import Series
from streams.core.observation import KeptBack
from streams.core.standing import Sink
from streams.core.verdict import Accepted, AwaitCatalogue, Dead, Review, judge, judge_correction

Rows = list[dict[str, Any]]

_PAST_ALL_READINGS_US = 1 << 62


@dataclass(frozen=True, slots=True)
class Recorded:
    """The registry row; only the identity where the registry was not read."""

    tenant_id: str
    event_key: str
    event_id: str
    kind: str
    read: bool = False
    metric: str = ""
    quantity: str = ""
    kafka_key: str = ""
    shard: int = 0
    content: bytes = b""
    occurred_at_us: int = 0
    received_at_us: int = 0
    conflicts: int = 0

    @classmethod
    def of(cls, tenant_id: str, event_key: str, found: dict[str, Any]) -> Self:
        """From a row of the registry."""
        return cls(
            tenant_id,
            event_key,
            found["event_id"],
            found["kind"],
            read=True,
            metric=found["metric"],
            quantity=found["quantity"],
            kafka_key=found["kafka_key"],
            shard=found["shard"],
            content=bytes(found["content"]),
            occurred_at_us=found["occurred_us"],
            received_at_us=found["received_us"],
            conflicts=found["conflicts"],
        )

    @classmethod
    def unread(cls, tenant_id: str, event_key: str, identity: bytes) -> Self:
        """By identity alone."""
        return cls(tenant_id, event_key, str(UUID(bytes=identity)), "identity")


@dataclass
class Journey:
    """All rows of one identity; lists are empty where a step was not reached."""

    recorded: Recorded
    verdict: str = "unknown"
    """accepted, review, dead, skipped, or unknown."""
    basis: str = ""
    """What says so: a parked item, an entry, or the rules applied to the row again."""
    rule: str = ""
    series: Series | None = None
    meter: MeterVersion | None = None
    parked: Rows = field(default_factory=list)
    named: Rows = field(default_factory=list)
    """The skipped record that somebody said it was."""
    sent_again: bool = False
    """Whether it came once more and was read: that is its verdict then."""
    copies: Rows = field(default_factory=list)
    """Those of the parked items that are skipped copies: no verdict on the identity."""
    levels: Rows = field(default_factory=list)
    entries: Rows = field(default_factory=list)
    meter_events: Rows = field(default_factory=list)
    attempts: Rows = field(default_factory=list)
    waiting: Rows = field(default_factory=list)
    erasures: Rows = field(default_factory=list)
    """Those of its tenant, since it was recorded."""
    sealed_us: int | None = None
    holds: tuple[Hold, ...] = ()
    """Every cause that keeps it from being settled now."""

    @property
    def known(self) -> bool:
        """Whether anybody has seen this identity."""
        return self.recorded.read or bool(self.parked or self.entries)


def read_journey(
    ledger: Connection, source: str, recorded: Recorded, copied: Container[str] = ()
) -> Journey:
    """Follows one identity through the ledger.

    Args:
        ledger: its connection.
        source: the outbox's name.
        recorded: the registry row.
        copied: ids of identities of which only copies were skipped.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    journey = Journey(recorded)
    if recorded.read:
        _apply_rules(ledger, source, journey)
        sealed = rows(
            ledger, "trace_seal", {"source": source, "received_us": recorded.received_at_us}
        )
        journey.sealed_us = sealed[0]["sealed_us"] if sealed else None
    which = _which(journey)
    journey.parked = rows(ledger, "trace_parked", which)
    journey.named = rows(ledger, "trace_named", {**which, "kind": recorded.kind})
    journey.sent_again = recorded.event_id in copied
    if journey.sent_again:
        journey.copies = [item for item in journey.parked if item["skip_receipt"] is not None]
    journey.entries = rows(ledger, "trace_entries", which)
    if journey.series is not None:
        journey.levels = rows(ledger, "trace_level", which)
    _correct_by_facts(journey)
    if journey.verdict in ("review", "dead", "skipped") and not _own_entries(journey):
        # Its window goes on without it: what the window became is another event's journey.
        journey.entries, journey.levels = [], []
    entries = {"entries": [entry["entry_id"] for entry in journey.entries]}
    journey.meter_events = rows(ledger, "trace_meter_events", entries)
    journey.waiting = rows(ledger, "trace_waiting", entries)
    journey.erasures = [
        erasure
        for erasure in rows(ledger, "erasures", {"tenant": recorded.tenant_id})
        if recorded.received_at_us <= erasure["erased_us"]
    ]
    events = {"events": [event["meter_event_id"] for event in journey.meter_events]}
    journey.attempts = rows(ledger, "trace_attempts", events)
    journey.holds = _holds(ledger, journey, {**which, **entries, **events})
    return journey


def _holds(ledger: Connection, journey: Journey, which: dict[str, Any]) -> tuple[Hold, ...]:
    now = rows(ledger, "trace_now", {})
    facts = HoldFacts(
        journey.recorded.tenant_id,
        now[0]["now_us"] if now else 0,
        levels=journey.levels,
        waiting=journey.waiting,
        requests=journey.meter_events,
        dead=rows(ledger, "trace_dead", which),
        meters=rows(ledger, "trace_meters", which) if journey.verdict == "accepted" else (),
    )
    if facts.unsettled:
        lanes = rows(ledger, "trace_lanes", which)
        sink = rows(ledger, "status_sink", {"unsent": [cause.value for cause in KeptBack]})
        facts = replace(
            facts,
            lanes=lanes,
            pauses=rows(
                ledger, "trace_pauses", {**which, "lanes": [lane["lane_id"] for lane in lanes]}
            ),
            halts=rows(ledger, "active_halts"),
            sink=Sink(sink[0]["failures"], None, sink[0]["refused"], sink[0]["cause"]),
        )
    return holds(facts)


def _which(journey: Journey) -> dict[str, Any]:
    series, recorded = journey.series, journey.recorded
    by_level = (
        series is not None and journey.meter is not None and journey.meter.publish == "window"
    )
    return {
        "event_id": recorded.event_id,
        "tenant_id": recorded.tenant_id,
        "metric": recorded.metric,
        "window_start_us": series.window_start_us if series is not None and by_level else None,
        "version": series.catalogue_version if series is not None else None,
    }


def _apply_rules(ledger: Connection, source: str, journey: Journey) -> None:
    """The verdict that the rules give on the row; facts of the ledger overrule it afterwards."""
    recorded = journey.recorded
    versions = [MeterVersion(*line) for line in ledger_rows(ledger, "meters")]
    catalogue = Catalogue(tuple(versions), _PAST_ALL_READINGS_US)
    event = UsageEvent(
        source=source,
        event_id=UUID(recorded.event_id).bytes,
        content=recorded.content,
        tenant_id=recorded.tenant_id,
        metric=recorded.metric,
        shard=recorded.shard,
        quantity=recorded.quantity,
        occurred_at_us=recorded.occurred_at_us,
        received_at_us=recorded.received_at_us,
    )
    if recorded.kind == "correction":
        verdict = judge_correction(event, catalogue, above_limit=False, fresh=True)
    else:
        verdict = judge(event, catalogue, -1, logged_at_us=event.received_at_us, fresh=True)
    journey.basis = "the rules, applied to the row"
    match verdict:
        case Accepted():
            journey.verdict, journey.series, journey.meter = (
                "accepted",
                verdict.series,
                verdict.meter,
            )
        case Review():
            journey.verdict, journey.rule, journey.series = "review", verdict.rule, verdict.series
        case Dead():
            journey.verdict, journey.rule = "dead", verdict.reason
        case AwaitCatalogue():
            journey.verdict = "unknown"


def _correct_by_facts(journey: Journey) -> None:
    copies = {item["parked_id"] for item in journey.copies}
    own = [
        item
        for item in journey.parked
        if item["reason"] != "conflict" and item["parked_id"] not in copies
    ]
    if _own_entries(journey):
        journey.verdict, journey.basis = "accepted", "an entry of its own"
    if own:
        journey.verdict = own[0]["kind"]
        journey.basis = f"parked item {own[0]['parked_id']}"
    elif journey.named and not journey.sent_again:
        named = journey.named[0]
        journey.verdict, journey.rule = "skipped", named["reason"]
        journey.basis = f"{named['actor']} (receipt {named['receipt']})"


def _own_entries(journey: Journey) -> bool:
    return any(entry["event_id"] == journey.recorded.event_id for entry in journey.entries)
