"""What commands read of ledger, source, Connect and Kafka → samples; no backend is asked here."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from connectors.guard_findings import GuardFinding
from connectors.observation import Slot
from streams.adapters.group_lag import Lag
from streams.adapters.metrics import Sample
from streams.core.instant import SECOND_US
from streams.core.risk import remarks, verdict
from streams.core.settlement import PublishPolicy
from streams.core.standing import read

WAITING: Final = {
    "levels_not_cut": "usage_open_levels",
    "levels_held": "usage_held_levels",
    "entries_waiting": "usage_waiting_entries",
    "entries_unmapped": "usage_unmapped_entries",
    "entries_overdue": "usage_overdue_entries",
    "lanes_paused": "usage_stopped_lanes",
    "proposals_open": "usage_open_proposals",
    "cells_to_compare": "usage_doubtful_cells",
}
"""Figures of `status` under `waiting`, and their names as metrics."""
AGES: Final = {
    "oldest_request_age_s": "usage_oldest_request_age_seconds",
    "oldest_attempt_age_s": "usage_oldest_attempt_age_seconds",
    "oldest_doubt_age_s": "usage_oldest_doubt_age_seconds",
    "idle_s": "usage_idle_seconds",
}
"""Ages among them; 0 where nothing waits."""
RISK: Final = {"no": 0, "not yet": 1, "yes": 2}
STATES: Final = ("pending", "ambiguous", "recorded", "dead", "superseded", "nothing")
"""Of meter events: each is told, as 0 where there is none, so that a rule sees it come."""


def ledger_samples(figures: Mapping[str, Any]) -> Iterator[Sample]:
    """What `tailrace status` shows."""
    waiting = figures["waiting"]
    for state in {**dict.fromkeys(STATES), **figures["meter_events"]}:
        told = figures["meter_events"].get(state, {"count": 0, "units": 0})
        yield "usage_meter_events", state, told["count"]
        yield "usage_meter_event_units", state, float(told["units"])
    yield from _waiting(waiting)
    yield "usage_sink_failures", None, figures["sink"]["failures"]
    yield from _parked(figures["parked"])
    yield from _findings(figures)
    for partition in {held["partition"] for held in figures["held"]}:
        yield "usage_partition_waiting", str(partition), 1
    for halt in figures["halts"]:
        yield "usage_publishing_halts", halt["kind"], 1
    for canary in figures["canaries"]:
        yield "usage_canary_age_seconds", canary["source"], canary["oldest_age_s"]
    scopes = [pause["scope"] for pause in figures["pauses"]]
    for scope in ("all", "meter", "tenant"):
        yield "usage_publishing_paused", scope, scopes.count(scope)
    for position in figures["positions"]:
        partition = str(position["partition"])
        yield "usage_ledger_offset", partition, position["position"]
        yield "usage_ledger_offset_age_seconds", partition, position["age_s"]
    yield from _risk(figures)


def _waiting(waiting: Mapping[str, Any]) -> Iterator[Sample]:
    for figure, name in AGES.items():
        yield name, None, waiting[figure] or 0
    yield "usage_fence_seconds", None, PublishPolicy().ambiguous_us_max / SECOND_US
    if waiting["deadline_in_s"] is not None:
        yield "usage_next_deadline_seconds", None, waiting["deadline_in_s"]
    for figure, name in WAITING.items():
        yield name, None, waiting[figure]


def _findings(figures: Mapping[str, Any]) -> Iterator[Sample]:
    for finding in figures["findings"]:
        yield "usage_ledger_findings", finding["kind"], finding["count"]
    for meter in figures["meters"]:
        yield "usage_meter_findings", (meter["event_name"], meter["kind"]), 1


def _parked(items: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """By kind and reason alone: causes and meters are many, and `status` lists them."""
    counts: Counter[tuple[str, str]] = Counter()
    ages: dict[tuple[str, str], float] = {}
    for item in items:
        labels = item["kind"], item["reason"]
        counts[labels] += item["count"]
        ages[labels] = max(ages.get(labels, 0.0), item["oldest_age_s"])
    for labels, count in counts.items():
        yield "usage_parked_items", labels, count
        yield "usage_parked_age_seconds", labels, ages[labels]


def _risk(figures: Mapping[str, Any]) -> Iterator[Sample]:
    """The first line of `status`, as a number, and how many remarks it has of each name."""
    found = remarks(read(figures))
    yield "usage_money_at_risk", None, RISK[verdict(found).at_risk]
    for labels, count in Counter((r.severity, r.name) for r in found).items():
        yield "usage_remarks", labels, count


def audit_samples(audits: Iterable[tuple[Any, ...]]) -> Iterator[Sample]:
    """The last audit of each source, as the ledger's own statement gives it."""
    for source, age_us, lost, double, findings in audits:
        yield "usage_audit_age_seconds", source, age_us / SECOND_US
        yield "usage_audit_lost", source, lost
        yield "usage_audit_double", source, double
        yield "usage_audit_findings", source, findings


def window_samples(incomplete: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """Closed windows that are not all at Stripe, by metric."""
    for each in incomplete:
        yield "usage_incomplete_windows", each["metric"], each["windows"]
        yield "usage_incomplete_age_seconds", each["metric"], each["oldest_s"]


def slot_samples(source: str, slot: Slot | None, written: int | None) -> Iterator[Sample]:
    """How much WAL the slot holds back, and how much of it the server lets it hold."""
    yield "usage_slot_lost", source, int(slot is None or slot.wal_status in {None, "lost"})
    if slot is None or written is None:
        return
    if slot.confirmed_lsn is not None:
        yield "usage_slot_behind_bytes", source, max(0, written - slot.confirmed_lsn)
    told = {
        "usage_slot_retained_bytes": slot.retained_bytes(written),
        "usage_slot_limit_bytes": slot.limit_bytes(written),
    }
    for name, number in told.items():
        if number is not None:
            yield name, source, number


def guard_samples(findings: Iterable[GuardFinding]) -> Iterator[Sample]:
    """What is wrong with capture; nothing where rows are safe and flow."""
    for severity, rule in sorted({(f.severity.value, f.rule) for f in findings}):
        yield "usage_guard_findings", (severity, rule), 1


def lag_samples(partitions: Iterable[Lag]) -> Iterator[Sample]:
    """How far the group is from the end of each partition."""
    for lag in partitions:
        partition = str(lag.partition)
        yield "usage_partition_end_offset", partition, lag.end
        if lag.committed is not None:
            yield "usage_partition_committed_offset", partition, lag.committed
        yield "usage_partition_lag_records", partition, lag.records
