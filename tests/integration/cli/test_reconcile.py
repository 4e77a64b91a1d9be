"""`tailrace reconcile`: what Stripe's sums prove is settled once; what they do not is only told."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import requests

from streams.cli.reconcile_run import settle
from tests.integration.cli.conftest import World, new_key
from tests.integration.cli.pipeline import Doubt
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

ACT = ("--yes", "--reason", "the sums stood still for a day")


def admin(world: World, *statements: str) -> None:
    with world.ledger.connect() as conn:
        for statement in statements:
            conn.execute(statement.encode())


def a_day_passes(world: World) -> None:
    """What waiting for a day would do to what the ledger has noted."""
    admin(
        world,
        "ALTER TABLE ledger.attempt DISABLE TRIGGER once",
        "ALTER TABLE ledger.summary_reading DISABLE TRIGGER append_only",
        "UPDATE ledger.attempt SET lease_until = lease_until - interval '25 hours'",
        "UPDATE ledger.summary_reading SET read_at = read_at - interval '25 hours'",
        "ALTER TABLE ledger.attempt ENABLE TRIGGER once",
        "ALTER TABLE ledger.summary_reading ENABLE TRIGGER append_only",
    )


def record_in_doubt(world: World, number: int, truth: Doubt) -> None:
    """So many events whose answers are lost; 3 units each, one request each."""
    world.pipeline.doubt = truth
    before = dead(world)
    for _ in range(number):
        world.record("acme", new_key(), metric="exports")
    until("they are in doubt", lambda: dead(world) == before + number, deadline_s=20)


def dead(world: World) -> int:
    world.pipeline.check()
    return int(
        world.value(world.ledger, "SELECT count(*) FROM ledger.meter_event WHERE state = 'dead'")
    )


def sent(world: World) -> int:
    """Units that the stand-in really counted."""
    assert world.pipeline.service is not None
    state = world.pipeline.service.engine.state
    return sum(int(event.value) for event in state.recorded if state.counts(event))


def only_cell(world: World, *arguments: str) -> dict[str, Any]:
    (cell,) = world.cli.json("reconcile", "reconcile", *arguments)["cells"]
    assert isinstance(cell, dict)
    return cell


def balance(world: World) -> tuple[int, int, int]:
    text = "SELECT array[sum(settled), sum(pending), sum(ambiguous)] FROM ledger.balance"
    settled, pending, ambiguous = world.value(world.ledger, text)
    return int(settled), int(pending), int(ambiguous)


@pytest.fixture
def mapped(world: World) -> World:
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    world.record("acme", new_key(), metric="exports")
    world.settled(3)
    return world


def test_a_ledger_that_equals_stripe_says_so_and_needs_nothing(mapped: World) -> None:
    ran = mapped.cli("reconcile")
    assert (ran.code, ran.last) == (0, "1 cells equal · 0 not · 0 findings")
    again = mapped.cli("reconcile", *ACT)
    assert (again.code, again.last) == (0, "1 cells equal · 0 not · 0 findings")


@pytest.mark.parametrize("truth", ["there", "absent"])
def test_doubt_is_settled_once_after_the_sum_stood_still(mapped: World, truth: Doubt) -> None:
    world = mapped
    record_in_doubt(world, 2, truth)
    assert balance(world) == (3, 0, 6)

    young = only_cell(world, *ACT)
    assert (young["decision"], young["outcome"]) == ("wait", None)
    a_day_passes(world)
    still = only_cell(world, *ACT)
    assert "stood still" in still["next"], "what was read in flight proves nothing"
    a_day_passes(world)
    plan = world.cli("reconcile")
    assert "plan: 1 cells can be settled" in plan.err
    assert balance(world) == (3, 0, 6), "a plan changes nothing"

    world.pipeline.doubt = None
    done = only_cell(world, *ACT)
    assert (done["outcome"], done["in_doubt"]) == ("settled", "6")
    assert done["net_units"] == ("0" if truth == "there" else "6")
    world.settled(9)
    assert sent(world) == 9
    assert balance(world) == (9, 0, 0)
    again = world.cli.json("reconcile", "reconcile", *ACT)
    assert (again["cells"], again["ok"]) == ([], True)
    receipts = "SELECT count(*) FROM ledger.audit_log WHERE action = 'reconcile'"
    assert world.value(world.ledger, receipts) == 1
    assert world.cli("audit").code == 0
    open_items = "SELECT count(*) FROM ledger.parked WHERE state = 'open'"
    assert world.value(world.ledger, open_items) == 0


def test_killed_before_it_is_sent_and_run_again_it_sends_once(mapped: World) -> None:
    world = mapped
    record_in_doubt(world, 2, "absent")
    a_day_passes(world)
    assert world.cli("reconcile").code == 0
    a_day_passes(world)
    world.pipeline.doubt, world.pipeline.publishing = None, False
    assert only_cell(world, *ACT)["outcome"] == "settled"

    # Waiting to be sent, or lent to a publisher that stopped: either way nothing is settled again.
    waiting = world.cli.json("reconcile", "reconcile", *ACT)
    assert [cell["outcome"] for cell in waiting["cells"] if cell["outcome"]] == []
    assert (sent(world), balance(world)) == (3, (3, 6, 0))

    world.pipeline.publishing = True
    world.settled(9)
    again = world.cli("reconcile", *ACT)
    assert (again.code, again.last) == (0, "1 cells equal · 0 not · 0 findings")
    assert re.search(
        r"unchanged: cus_acme exports .* was settled by .*: the sums stood still for a day; "
        r"0 there, 2 absent, net \+6, meter event \d+ is recorded",
        again.out,
    ), again.out
    (receipt,) = world.cli.json("reconcile", "reconcile", *ACT)["settled_before"]
    assert (receipt["net_units"], receipt["net_state"]) == ("6", "recorded")
    assert (sent(world), balance(world)) == (9, (9, 0, 0))


def test_killed_after_it_was_sent_its_own_sum_is_what_settles_it(mapped: World) -> None:
    """The net request's own answer is lost for good: what is there is not sent a second time."""
    world = mapped
    record_in_doubt(world, 2, "absent")
    a_day_passes(world)
    assert world.cli("reconcile").code == 0
    a_day_passes(world)
    world.pipeline.doubt = "there"
    assert only_cell(world, *ACT)["outcome"] == "settled"
    until("the net request is in doubt itself", lambda: balance(world) == (3, 0, 6))
    assert sent(world) == 9
    assert only_cell(world, *ACT)["decision"] == "wait"
    a_day_passes(world)
    assert world.cli("reconcile").code == 0
    a_day_passes(world)

    done = only_cell(world, *ACT)

    assert (done["outcome"], done["net_units"]) == ("settled", "0")
    assert (sent(world), balance(world)) == (9, (9, 0, 0))
    assert len(world.cli.json("reconcile", "reconcile")["settled_before"]) == 2


def test_killed_between_two_cells_the_rest_is_settled_by_the_next_run(
    mapped: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mapped
    record_in_doubt(world, 1, "absent")
    world.pipeline.doubt = "absent"
    world.record("acme", new_key(), metric="api_calls", back="3 min")
    until("both are in doubt", lambda: dead(world) == 2, deadline_s=20)
    for _ in range(2):
        a_day_passes(world)
        assert world.cli("reconcile").code == 0
    world.pipeline.doubt = None
    settled: list[str] = []

    def killed(*arguments: Any) -> str:
        if settled:
            raise KeyboardInterrupt
        settled.append(settle(*arguments))
        return settled[0]

    monkeypatch.setattr("streams.cli.reconcile.settle", killed)
    assert world.cli("reconcile", *ACT).code != 0
    monkeypatch.setattr("streams.cli.reconcile.settle", settle)
    world.settled(6)

    assert world.cli("reconcile", *ACT).code == 0

    world.settled(9)
    assert (sent(world), balance(world)) == (9, (9, 0, 0))
    receipts = "SELECT count(*) FROM ledger.audit_log WHERE action = 'reconcile'"
    assert world.value(world.ledger, receipts) == 2


def test_one_net_meter_event_replaces_exactly_what_is_missing(mapped: World) -> None:
    world = mapped
    record_in_doubt(world, 1, "there")
    record_in_doubt(world, 2, "absent")
    a_day_passes(world)
    assert world.cli("reconcile").code == 0
    a_day_passes(world)
    world.pipeline.doubt = None
    done = only_cell(world, *ACT)
    assert (done["class"], done["net_units"], done["outcome"]) == ("missing", "6", "settled")
    world.settled(12)
    assert sent(world) == 12
    states = dict(
        world.value(
            world.ledger,
            "SELECT json_object_agg(state, n) FROM (SELECT state, count(*) AS n"
            " FROM ledger.meter_event GROUP BY state) AS s",
        )
    )
    assert states == {"recorded": 3, "superseded": 2}


def test_a_cell_that_a_report_makes_doubtful_is_settled_when_it_proves_equal(
    mapped: World,
) -> None:
    world = mapped
    admin(
        world,
        "INSERT INTO ledger.doubt (customer, event_name, window_start, window_end, reason)"
        " SELECT customer, event_name, window_start, window_end, 'report evt_1'"
        " FROM ledger.meter_event",
    )
    for _ in range(2):
        assert only_cell(world, *ACT)["decision"] == "wait"
        a_day_passes(world)
    assert only_cell(world, *ACT)["outcome"] == "settled"
    assert world.cli.json("reconcile", "reconcile")["cells"] == []
    assert sent(world) == 3


def test_what_stripe_rejected_and_nobody_named_is_taken_back_and_billed_again(
    mapped: World,
) -> None:
    world = mapped
    service = world.pipeline.service
    assert service is not None
    service.engine.settings.report_lag_s = 3600
    service.engine.settings.samples_max = 1
    fault = {"kind": "reject", "count": 3, "code": "archived_meter"}
    requests.post(f"{world.pipeline.stripe_url}/_sandbox/faults", json=fault, timeout=5)
    for _ in range(3):
        world.record("acme", new_key(), metric="exports")
    until("all sent", lambda: len(service.engine.state.recorded) == 4, deadline_s=20)
    # One report for all of them.
    service.engine.settings.report_lag_s = -10
    until("all reported", lambda: len(service.engine.state.unreported) == 0, deadline_s=20)
    assert world.cli("rejections", "sweep").code == 0
    for item in world.cli.json("parked_list", "dead", "list")["items"]:
        redriven = world.cli("dead", "redrive", str(item["item"]), "--reason", "active", "--yes")
        assert redriven.code == 0
    named = sent(world)
    until("what was named counts", lambda: sent(world) > named, deadline_s=20)
    missing = 12 - sent(world)
    assert missing > 0, "nothing was left unnamed"
    assert world.cli("reconcile").code == 0
    a_day_passes(world)
    assert only_cell(world)["decision"] == "wait", "it has not stood still"
    a_day_passes(world)
    plan = only_cell(world)
    assert (plan["decision"], plan["outcome"]) == ("take_back", None)

    done = only_cell(world, *ACT)

    assert done["outcome"] == "taken_back"
    items = world.cli.json("parked_list", "dead", "list")["items"]
    assert sum(int(item["units"]) for item in items) == missing
    shown = world.cli("dead", "show", str(items[0]["item"]))
    assert "redrive" in shown.out
    world.cli("dead", "redrive", "--cause", "refused", "--reason", "active", "--yes")
    world.settled(12)
    assert sent(world) == 12
    again = world.cli.json("reconcile", "reconcile", *ACT)
    assert (again["cells"], again["ok"]) == ([], True)
    assert world.cli.json("rejections_list", "rejections", "list")["doubts"] == []


def test_foreign_usage_is_reported_and_never_corrected(mapped: World) -> None:
    world = mapped
    foreign(world, 5)
    with world.ledger.connect() as conn:
        conn.execute("ALTER TABLE ledger.attempt DISABLE TRIGGER once")
        conn.execute("UPDATE ledger.attempt SET lease_until = now() - interval '1 hour'")
    ran = world.cli("reconcile", *ACT)
    assert ran.code == 1
    assert "higher" in ran.out
    assert "+5 that no request here explains" in ran.out
    assert world.cli("reconcile", *ACT).code == 1
    assert sent(world) == 8
    assert balance(world) == (3, 0, 0)


def foreign(world: World, units: int) -> None:
    """A meter event of somebody else, dated as the last one of ours."""
    dated = world.value(world.ledger, "SELECT max(timestamp_s) FROM ledger.meter_event")
    world.foreign("cus_acme", "exports", units, int(dated))


def test_a_cell_that_moved_since_it_was_read_is_left_alone(mapped: World) -> None:
    world = mapped
    record_in_doubt(world, 1, "absent")
    told = {
        "customer": "cus_acme", "event_name": "exports", "recorded": 0, "doubtful": [],
        "waiting_entries": [], "present": [], "absent": [], "adopted_units": 0, "net_units": 0,
    }  # fmt: skip
    with world.ledger.connect() as conn:
        row = conn.execute(
            "SELECT start_us, end_us FROM ledger.cells_v1(0, 1::bigint << 60, NULL, NULL)"
        ).fetchone()
        assert row is not None
        found = conn.execute(
            "SELECT ledger.settle_cell_v1(%s::json, 'why', 'me')",
            (json.dumps({**told, "start_us": row[0], "end_us": row[1]}),),
        ).fetchone()
    assert found == ("moved",)


def test_acting_needs_a_reason(mapped: World) -> None:
    ran = mapped.cli("reconcile", "--yes")
    assert ran.code == 2
    assert "--reason" in ran.err


def test_a_spent_budget_names_what_was_not_asked(
    mapped: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_RECONCILE_READS", "1")
    first = mapped.cli.json("reconcile", "reconcile")
    assert (first["reads"], first["not_asked"]) == (1, [])
    second = mapped.cli.json("reconcile", "reconcile")
    assert second["reads"] == 0
    assert second["not_asked"] == [{"customer": "cus_acme", "event_name": "exports"}]
