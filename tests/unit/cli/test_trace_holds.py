"""Why an amount is not settled: every cause that holds it, in the order in which they must go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams.cli.trace_holds import HoldFacts, holds
from streams.core.standing import Sink

NOW_US = 1_000_000_000
ENTRY: dict[str, Any] = {
    "entry_id": 1, "lane_id": 7, "due_us": 1, "deadline_us": None, "doubted": False,
}  # fmt: skip
LANE = {
    "lane_id": 7, "customer": "cus_a", "event_name": "jobs", "paused": False,
    "pause_reason": None, "doubts": 0,
}  # fmt: skip
PAUSE = {"scope": "meter", "subject": "a b", "reason": "prices", "by": "jo", "since_us": 1}
WAITING = HoldFacts("ac me", NOW_US, waiting=(ENTRY,), lanes=(LANE,))
DOWN = Sink(failures=3, cause="HTTP 503")
REQUEST = {"state": "pending"}
METER = {"event_name": "jobs", "kind": "formula", "rule": "formula is count, not sum"}


def found(facts: HoldFacts) -> list[tuple[str, str]]:
    return [(hold.cause, hold.command) for hold in holds(facts)]


def entry(**changes: Any) -> tuple[dict[str, Any], ...]:
    return ({**ENTRY, **changes},)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (HoldFacts("acme", NOW_US), []),
        (HoldFacts("acme", NOW_US, requests=({"state": "recorded"},), sink=DOWN), []),
        (WAITING, [("turn", "")]),
        (
            replace(WAITING, halts=({"kind": "ledger_went_back"}, {"kind": "other"})),
            [("halted", "tailrace ledger adopt"), ("halted", "tailrace audit")],
        ),
        (
            replace(WAITING, levels=({"due_us": 1, "held": True},)),
            [("level_held", "tailrace findings list")],
        ),
        (
            replace(WAITING, waiting=entry(lane_id=None), lanes=()),
            [("unmapped", "tailrace customers map 'ac me' cus_…")],
        ),
        (replace(WAITING, waiting=entry(deadline_us=NOW_US)), [("overdue", "tailrace carry list")]),
        (replace(WAITING, waiting=entry(deadline_us=NOW_US + 1)), [("turn", "")]),
        (replace(WAITING, waiting=entry(doubted=True)), [("to_compare", "tailrace reconcile")]),
        (
            replace(WAITING, pauses=(PAUSE, {**PAUSE, "scope": "all", "subject": ""})),
            [
                ("paused", """tailrace resume --meter 'a b' --reason "…\""""),
                ("paused", 'tailrace resume --all --reason "…"'),
            ],
        ),
        (
            replace(WAITING, lanes=({**LANE, "paused": True, "pause_reason": "no customer"},)),
            [("lane_stopped", 'tailrace resume --lane 7 --reason "…"')],
        ),
        (replace(WAITING, sink=DOWN), [("sink_down", "tailrace deadlines")]),
        (replace(WAITING, sink=Sink(failures=2)), [("turn", "")]),
        (
            replace(WAITING, sink=Sink(refused=True)),
            [("key_refused", "tailrace doctor stripe-key")],
        ),
        (
            replace(WAITING, lanes=({**LANE, "doubts": 2},)),
            [("in_doubt", "tailrace reconcile")],
        ),
        (replace(WAITING, waiting=entry(due_us=NOW_US + 1)), [("not_due", "")]),
        (
            HoldFacts("acme", NOW_US, levels=({"due_us": NOW_US + 1, "held": False},)),
            [("not_due", "")],
        ),
        (
            HoldFacts("acme", NOW_US, requests=(REQUEST,), sink=DOWN),
            [("sink_down", "tailrace deadlines")],
        ),
        # Of what is settled or dead these are worth knowing too.
        (
            HoldFacts(
                "acme", NOW_US, requests=({"state": "dead"},), sink=DOWN,
                dead=({"meter_event_id": 4, "parked_id": 9, "reason": "refused"},),
            ),
            [("dead", "tailrace dead show 9")],
        ),
        (
            HoldFacts("acme", NOW_US, requests=({"state": "recorded"},), meters=(METER,)),
            [("meter_wrong", "tailrace doctor meter-formula")],
        ),
    ],
)  # fmt: skip
def test_each_cause_is_named_with_what_ends_it(
    facts: HoldFacts, expected: list[tuple[str, str]]
) -> None:
    assert found(facts) == expected


def test_all_causes_are_named_at_once_and_in_the_order_in_which_they_must_go() -> None:
    facts = replace(
        WAITING,
        waiting=entry(lane_id=None, due_us=NOW_US + 1),
        lanes=(),
        pauses=(PAUSE,),
        sink=DOWN,
        meters=(METER,),
    )
    assert [cause for cause, _ in found(facts)] == [
        "unmapped", "paused", "sink_down", "not_due", "meter_wrong",
    ]  # fmt: skip
    texts = [str(hold) for hold in holds(facts)]
    assert texts[1].startswith("meter a b is paused by jo since 1970-01-01T00:00:00")
    assert texts[1].endswith("because: prices: `tailrace resume --meter 'a b' --reason \"…\"`")
    assert "Stripe is down (HTTP 503)" in texts[2]
    assert "`" not in texts[3], "time alone ends it"
