"""What is read → samples, each by its name, and nothing that could be taken for health."""

from connectors.guard_findings import alarm, refuse
from connectors.observation import Slot
from streams.adapters.group_lag import Lag
from streams.adapters.metrics import TOLD_BY
from streams.cli.exporter_figures import (
    audit_samples,
    guard_samples,
    lag_samples,
    ledger_samples,
    slot_samples,
    window_samples,
)

SLOT = Slot("logical", "pgoutput", "service", True, 7, "reserved", 700, 100, 250)
FIGURES = {
    "meter_events": {"pending": {"count": 2, "units": "30"}},
    "waiting": {
        "oldest_request_age_s": 12.5,
        "oldest_attempt_age_s": None,
        "oldest_doubt_age_s": 82_000.0,
        "idle_s": 7.5,
        "deadline_in_s": 900.0,
        "levels_not_cut": 1,
        "levels_held": 2,
        "entries_waiting": 3,
        "entries_unmapped": 4,
        "entries_overdue": 5,
        "lanes_paused": 6,
        "proposals_open": 7,
        "cells_to_compare": 8,
    },
    "sink": {"failures": 2, "failing_s": 5.0, "refused": False, "cause": "HTTP 500"},
    "parked": [
        {"kind": "dead", "reason": "refused", "cause": cause, "count": 3, "oldest_age_s": age_s}
        for cause, age_s in (("no_meter", 60.0), ("archived_meter", 90.0))
    ],
    "findings": [{"kind": "rejected_unknown", "count": 2}],
    "meters": [
        {"event_name": "exports", "kind": kind, "rule": "formula is count, not sum", "age_s": 9.0}
        for kind in ("formula", "archived")
    ],
    "held": [{"partition": 4, "why": "x"}, {"partition": 4, "why": "y"}],
    "halts": [{"kind": "ledger_went_back", "age_s": 1, "detail": "x"}],
    "canaries": [{"source": "sandbox", "partitions": 12, "oldest_age_s": 9, "worst_partition": 1}],
    "pauses": [
        {"scope": "meter", "subject": m, "by": "me", "reason": "x", "units_waiting": "3"}
        for m in ("api_calls", "exports")
    ],
    "positions": [{"partition": 3, "position": 41, "age_s": 2.0}],
}


def test_the_figures_of_status_are_told_by_their_names() -> None:
    samples = list(ledger_samples(FIGURES))
    assert {name for name, _, _ in samples} <= {m.name for m in TOLD_BY["exporter"]}
    for expected in (
        ("usage_meter_events", "pending", 2),
        ("usage_meter_event_units", "pending", 30),
        ("usage_meter_events", "dead", 0),
        ("usage_oldest_request_age_seconds", None, 12.5),
        ("usage_oldest_attempt_age_seconds", None, 0),
        ("usage_fence_seconds", None, 23 * 3600),
        ("usage_open_levels", None, 1),
        ("usage_held_levels", None, 2),
        ("usage_waiting_entries", None, 3),
        ("usage_unmapped_entries", None, 4),
        ("usage_overdue_entries", None, 5),
        ("usage_stopped_lanes", None, 6),
        ("usage_open_proposals", None, 7),
        ("usage_doubtful_cells", None, 8),
        ("usage_oldest_doubt_age_seconds", None, 82_000.0),
        ("usage_idle_seconds", None, 7.5),
        ("usage_next_deadline_seconds", None, 900.0),
        ("usage_sink_failures", None, 2),
        ("usage_parked_items", ("dead", "refused"), 6),
        ("usage_parked_age_seconds", ("dead", "refused"), 90.0),
        ("usage_ledger_findings", "rejected_unknown", 2),
        ("usage_meter_findings", ("exports", "formula"), 1),
        ("usage_remarks", ("critical", "meter_wrong"), 1),
        ("usage_remarks", ("warning", "meter_wrong"), 1),
        ("usage_partition_waiting", "4", 1),
        ("usage_remarks", ("critical", "halted"), 1),
        ("usage_remarks", ("critical", "paused"), 2),
        ("usage_money_at_risk", None, 2),
        ("usage_publishing_halts", "ledger_went_back", 1),
        ("usage_publishing_paused", "meter", 2),
        ("usage_publishing_paused", "all", 0),
        ("usage_canary_age_seconds", "sandbox", 9),
        ("usage_ledger_offset", "3", 41),
        ("usage_ledger_offset_age_seconds", "3", 2.0),
    ):
        assert expected in samples
    places = [(name, labels) for name, labels, _ in samples]
    assert len(set(places)) == len(places), "Prometheus refuses a page that tells one thing twice"


def test_a_slot_tells_what_it_holds_back_and_when_it_is_given_up() -> None:
    assert list(slot_samples("sandbox", SLOT, 1_100)) == [
        ("usage_slot_lost", "sandbox", 0),
        ("usage_slot_behind_bytes", "sandbox", 850),
        ("usage_slot_retained_bytes", "sandbox", 1_000),
        ("usage_slot_limit_bytes", "sandbox", 1_700),
    ]


def test_a_slot_without_limit_has_none_and_a_missing_one_is_lost() -> None:
    endless = Slot("logical", "pgoutput", "service", True, 7, "reserved", None, 100, 250)
    assert "usage_slot_limit_bytes" not in {s[0] for s in slot_samples("s", endless, 1_100)}
    assert list(slot_samples("s", None, 1_100)) == [("usage_slot_lost", "s", 1)]
    gone = Slot("logical", "pgoutput", "service", False, None, "lost", None, None, 250)
    assert ("usage_slot_lost", "s", 1) in list(slot_samples("s", gone, 1_100))


def test_lag_is_what_lies_between_commit_and_end() -> None:
    samples = list(lag_samples([Lag(0, 10, 4), Lag(1, 5, None), Lag(2, 3, 9)]))
    lags = [value for name, _, value in samples if name == "usage_partition_lag_records"]
    assert lags == [6, 5, 0]
    assert ("usage_partition_committed_offset", "1", 0) not in samples


def test_findings_of_the_guard_are_told_once_a_rule() -> None:
    found = [refuse("slot-ahead", "a"), refuse("slot-ahead", "b"), alarm("failed", "c", "d")]
    assert list(guard_samples(found)) == [
        ("usage_guard_findings", ("alarm", "failed"), 1),
        ("usage_guard_findings", ("refuse", "slot-ahead"), 1),
    ]
    assert list(guard_samples([])) == []


def test_audits_and_windows() -> None:
    assert list(audit_samples([("sandbox", 5_000_000, 1, 2, 3)])) == [
        ("usage_audit_age_seconds", "sandbox", 5.0),
        ("usage_audit_lost", "sandbox", 1),
        ("usage_audit_double", "sandbox", 2),
        ("usage_audit_findings", "sandbox", 3),
    ]
    assert list(window_samples([{"metric": "m", "windows": 4, "oldest_s": 90.0}])) == [
        ("usage_incomplete_windows", "m", 4),
        ("usage_incomplete_age_seconds", "m", 90.0),
    ]
