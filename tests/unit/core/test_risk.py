"""Whether money is at risk, and what is typed about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from streams.core.remark import Remark
from streams.core.risk import Verdict, halt_text, is_down, remarks, verdict
from streams.core.standing import Halt, Standing, read

HOUR_S = 3_600.0


def standing(**parts: Any) -> Standing:
    """As a document gives it, with nothing but what is named."""
    return msgspec.convert(parts, Standing)


def found(**parts: Any) -> list[tuple[str, str, str]]:
    return [(r.severity, r.name, r.command) for r in remarks(standing(**parts))]


DOWN = {"failures": 4, "failing_s": 60.0, "cause": "HTTP 503"}
AUDIT = {"source": "shop", "age_s": 60.0, "lost": 0, "double": 0}
PAUSE = {
    "scope": "meter", "subject": "exports", "by": "jo", "reason": "prices", "units_waiting": "7",
}  # fmt: skip
DEAD = {"kind": "dead", "reason": "refused", "count": 1, "cause": "no_meter", "by_code": True}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, []),
        (
            {"halts": [{"kind": "ledger_went_back", "detail": "{}"}]},
            [("critical", "halted", "tailrace ledger adopt")],
        ),
        (
            {"halts": [{"kind": "other", "detail": "{}"}]},
            [("critical", "halted", "tailrace audit")],
        ),
        ({"sink": DOWN}, [("warning", "sink_down", "tailrace deadlines")]),
        ({"sink": {**DOWN, "failures": 2}}, []),
        (
            {"sink": {"failures": 1, "refused": True}},
            [("warning", "sink_down", "tailrace doctor")],
        ),
        (
            {"sink": DOWN, "waiting": {"oldest_doubt_age_s": 20 * HOUR_S}},
            [("critical", "sink_down", "tailrace deadlines")],
        ),
        (
            {"sink": DOWN, "waiting": {"oldest_doubt_age_s": 20 * HOUR_S - 1}},
            [("warning", "sink_down", "tailrace deadlines")],
        ),
        (
            {"sink": DOWN, "waiting": {"deadline_in_s": HOUR_S - 1}},
            [("critical", "sink_down", "tailrace deadlines")],
        ),
        (
            {"sink": DOWN, "waiting": {"deadline_in_s": HOUR_S}},
            [("warning", "sink_down", "tailrace deadlines")],
        ),
        (
            {"waiting": {"oldest_doubt_age_s": 20 * HOUR_S}},
            [("critical", "fence_near", "tailrace reconcile")],
        ),
        ({"waiting": {"oldest_doubt_age_s": 19 * HOUR_S}}, []),
        ({"waiting": {"idle_s": 301.0}}, [("warning", "idle", "tailrace worker")]),
        ({"waiting": {"idle_s": 300.0}}, []),
        (
            {"waiting": {"idle_s": 301.0, "deadline_in_s": 60.0}},
            [("critical", "idle", "tailrace worker")],
        ),
        # Why nobody takes them is said already.
        (
            {"waiting": {"idle_s": 301.0}, "pauses": [PAUSE]},
            [("warning", "paused", "tailrace pause list")],
        ),
        (
            {"waiting": {"idle_s": 301.0, "cells_to_compare": 1}},
            [("warning", "to_compare", "tailrace reconcile")],
        ),
        (
            {"waiting": {"idle_s": 301.0}, "sink": DOWN},
            [("warning", "sink_down", "tailrace deadlines")],
        ),
        ({"pauses": [PAUSE]}, [("warning", "paused", "tailrace pause list")]),
        (
            {"pauses": [PAUSE], "waiting": {"deadline_in_s": 1.0}},
            [("critical", "paused", "tailrace pause list")],
        ),
        ({"audits": [AUDIT]}, []),
        (
            {"audits": [{**AUDIT, "lost": 1}]},
            [("critical", "audit_unequal", "tailrace audit")],
        ),
        (
            {"audits": [{**AUDIT, "double": 1}]},
            [("critical", "audit_unequal", "tailrace audit")],
        ),
        (
            {"audits": [{**AUDIT, "age_s": 24 * HOUR_S + 1}]},
            [("warning", "audit_old", "tailrace audit")],
        ),
        ({"positions": [{"partition": 0}]}, [("info", "audit_never", "tailrace audit")]),
        ({"positions": [{"partition": 0}], "audits": [AUDIT]}, []),
        (
            {"findings": [{"kind": "superseded_recorded", "count": 1}]},
            [("critical", "twice", "tailrace reconcile")],
        ),
        (
            {"findings": [{"kind": "error_report_unreadable", "count": 1}]},
            [("warning", "contradicted", "tailrace findings list")],
        ),
        (
            {"meters": [{"event_name": "jobs", "kind": "formula", "rule": "formula is last"}]},
            [("critical", "meter_wrong", "tailrace doctor meter-formula")],
        ),
        (
            {"meters": [{"event_name": "jobs", "kind": "archived", "rule": "is archived"}]},
            [("warning", "meter_wrong", "tailrace doctor meter-active")],
        ),
        (
            {"meters": [{"event_name": "jobs", "kind": "of_a_newer_release", "rule": "?"}]},
            [("critical", "meter_wrong", "tailrace doctor")],
        ),
        (
            {"held": [{"partition": 3, "why": "unknown catalogue"}]},
            [("warning", "held", "tailrace held list")],
        ),
        (
            {"canary_under_way_s": 121.0},
            [("warning", "not_flowing", "tailrace source guard")],
        ),
        ({"canary_under_way_s": 120.0}, []),
        (
            {"capture": {"untold": 9, "untold_age_s": 120.1}},
            [("warning", "untold", "tailrace doctor")],
        ),
        ({"capture": {"untold": 9, "untold_age_s": 120.0, "slot": "read"}}, []),
        (
            {"capture": {"slot": "missing"}},
            [("warning", "slot_missing", "tailrace source guard")],
        ),
        ({"capture": {"slot": "lost"}}, [("warning", "slot_lost", "tailrace source guard")]),
        ({"capture": {"slot": "idle"}}, [("warning", "slot_idle", "tailrace source guard")]),
        # One cause, one remark; a slot that is gone is a cause of its own.
        (
            {"capture": {"slot": "idle", "running": False}},
            [("warning", "capture_down", "tailrace connector status")],
        ),
        (
            {"capture": {"slot": "missing", "running": False}},
            [
                ("warning", "capture_down", "tailrace connector status"),
                ("warning", "slot_missing", "tailrace source guard"),
            ],
        ),
        (
            {"capture": {"unread": [{"what": "the connector", "why": "it is away"}]}},
            [("warning", "capture_unread", "tailrace doctor")],
        ),
        (
            {"capture": {"unset": ["TAILRACE_SOURCE_DSN"]}},
            [("info", "capture_unset", "tailrace config show")],
        ),
        (
            {"parked": [{"kind": "review", "reason": "late", "count": 2}]},
            [("warning", "review", "tailrace review list")],
        ),
        (
            {"parked": [DEAD]},
            [("warning", "dead", 'tailrace dead redrive --cause no_meter --reason "…"')],
        ),
        (
            {"parked": [{**DEAD, "cause": "a; b"}]},
            [("warning", "dead", """tailrace dead redrive --cause 'a; b' --reason "…\"""")],
        ),
        (
            {"parked": [{**DEAD, "outcome": "too_old"}]},
            [("warning", "dead", "tailrace dead list")],
        ),
        ({"parked": [{**DEAD, "by_code": False}]}, [("warning", "dead", "tailrace dead list")]),
        (
            {"parked": [{**DEAD, "reason": "ambiguous"}]},
            [("warning", "dead", "tailrace dead list")],
        ),
        (
            {"waiting": {"entries_overdue": 1}},
            [("critical", "overdue", "tailrace carry list")],
        ),
        (
            {"waiting": {"entries_unmapped": 1}},
            [("warning", "unmapped", "tailrace customers list")],
        ),
        (
            {"waiting": {"lanes_paused": 1}},
            [("warning", "lanes_stopped", "tailrace pause list")],
        ),
        ({"waiting": {"levels_held": 1}}, [("warning", "levels_held", "tailrace findings list")]),
        (
            {"waiting": {"cells_to_compare": 1}},
            [("warning", "to_compare", "tailrace reconcile")],
        ),
        (
            {"waiting": {"proposals_open": 1}},
            [("warning", "proposals", "tailrace correct list")],
        ),
    ],
)
def test_each_state_is_named_with_what_to_type(
    parts: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    assert found(**parts) == expected


def test_a_dead_letter_names_meter_cause_and_what_ends_it() -> None:
    (refused,) = remarks(standing(parked=[{**DEAD, "metric": "exports"}]))
    assert refused.text == (
        "1 dead of exports, refused (no_meter): create the meter in Stripe, then redrive"
    )
    malformed = {
        "kind": "dead", "reason": "malformed", "count": 1, "cause": "$.quantity",
        "rule": "not a decimal string",
    }  # fmt: skip
    (record,) = remarks(standing(parked=[malformed]))
    assert record.text.startswith("1 dead, malformed (not a decimal string): mend its producer")
    for rules, said in ((2, "and 1 other rule"), (4, "and 3 other rules")):
        (record,) = remarks(standing(parked=[{**malformed, "count": 9, "rules": rules}]))
        assert record.text.startswith(f"9 dead, malformed (not a decimal string, {said}): mend")
    (bare,) = remarks(standing(parked=[{"kind": "dead", "reason": "ambiguous", "count": 2}]))
    assert bare.text.startswith("2 dead, ambiguous: Stripe may hold it")


def test_a_pause_says_what_its_end_alone_would_not_send() -> None:
    texts = [
        remarks(standing(pauses=[{**PAUSE, "units_unmapped": unmapped}]))[0].text
        for unmapped in ("0", "7", "4")
    ]
    assert [text.partition("prices; ")[2] for text in texts] == [
        "7 units wait",
        "7 units (all also unmapped) wait",
        "7 units (4 also unmapped) wait",
    ]


def test_unmapped_tenants_are_named_with_their_units_and_the_command_that_ends_it() -> None:
    held = [{"tenant_id": name, "units": "7"} for name in ("a b", "b", "c", "d")]
    many = {"entries_unmapped": 9, "tenants_unmapped": 6}
    (few,) = remarks(standing(waiting={**many, "tenants_unmapped": 1}, unmapped=held[:1]))
    assert few.text == "usage is held for unmapped tenants: a b (7 units)"
    assert few.command == "tailrace customers map 'a b' cus_…"
    (more,) = remarks(standing(waiting=many, unmapped=held))
    assert more.text == (
        "usage is held for unmapped tenants: a b (7 units), b (7 units), c (7 units) and 3 more, "
        "all named by `tailrace customers list`"
    )


def test_a_review_counts_its_items() -> None:
    late = {"kind": "review", "reason": "late", "metric": "exports"}
    texts = [r.text for r in remarks(standing(parked=[{**late, "count": 1}, {**late, "count": 2}]))]
    assert texts == [
        "1 late of exports waits for a decision",
        "2 late of exports wait for a decision",
    ]


def test_an_outage_says_how_long_why_and_how_far_the_oldest_doubt_is_from_its_fence() -> None:
    (doubtful,) = remarks(standing(sink=DOWN, waiting={"oldest_doubt_age_s": 2 * HOUR_S}))
    assert doubtful.text == (
        "Stripe is down for 60 s (HTTP 503); the oldest doubt is 2.0 h old; at 23 h only Stripe's "
        "sums can end it"
    )
    (safe,) = remarks(standing(sink={"failures": 9, "refused": True}))
    assert safe.text == ("Stripe refuses the key (no answer); nothing is in doubt, amounts wait")


def test_the_worst_comes_first() -> None:
    listed = found(
        positions=[{"partition": 0}], waiting={"entries_unmapped": 1, "entries_overdue": 1}
    )
    assert [severity for severity, *_ in listed] == ["critical", "warning", "info"]


def test_the_sink_is_down_by_failures_in_a_row_or_by_a_refused_key() -> None:
    assert not is_down(standing())
    assert is_down(standing(sink={"failures": 3}))
    assert is_down(standing(sink={"refused": True}))


def remark(severity: Any) -> Remark:
    return Remark(severity, "name", severity, "tailrace status")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), Verdict("no", "no: nothing waits for anybody")),
        (("info",), Verdict("no", "no: nothing waits for anybody")),
        (("warning",), Verdict("not yet", "not yet: 1 thing waits for somebody")),
        (("warning", "warning"), Verdict("not yet", "not yet: 2 things wait for somebody")),
        (("critical",), Verdict("yes", "YES: critical")),
        (
            ("critical", "warning", "info"),
            Verdict("yes", "YES: critical; besides, 1 thing waits for somebody"),
        ),
        (
            ("critical", "critical", "critical", "warning", "warning"),
            Verdict(
                "yes", "YES: critical; and 2 more like it; besides, 2 things wait for somebody"
            ),
        ),
        (("critical", "critical"), Verdict("yes", "YES: critical; and 1 more like it")),
    ],
)
def test_the_verdict_is_the_worst_of_all(given: tuple[str, ...], expected: Verdict) -> None:
    assert verdict(tuple(remark(severity) for severity in given)) == expected


def test_a_remark_ends_with_its_command() -> None:
    assert str(remark("info")) == "info: `tailrace status`"


def test_a_document_may_say_more_than_remarks_need() -> None:
    assert read({"at": "now", "waiting": {"levels_not_cut": 7}}) == Standing()


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        (
            '{"topic": "t", "log_id": "l", "partition": 3, "stored": 5, "acknowledged": 9}',
            "the ledger went back: of t partition 3 it holds records up to 5, and a worker was "
            "told 9",
        ),
        (
            '{"attempt_id": 7, "started_at": "2026-11-30T10:00:00+00:00"}',
            "the ledger went back: it has not attempt 7 of 2026-11-30T10:00:00+00:00, which a "
            "worker made",
        ),
        ("{}", "ledger_went_back, {}"),
        ("torn", "ledger_went_back, torn"),
    ],
)
def test_a_ledger_that_went_back_is_told_in_words(detail: str, expected: str) -> None:
    assert halt_text(Halt("ledger_went_back", detail)) == expected
    assert halt_text(Halt("another", detail)) == f"another, {detail}"
