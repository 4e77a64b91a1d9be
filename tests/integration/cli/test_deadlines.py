"""Billing deadlines on the command line: who cannot make them, what will miss, what is carried."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sandbox.stripe_sandbox.fact import Subscription
from tests.integration.cli.conftest import METERS, World, new_key
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

PUNCTUAL = METERS.replace('"0s"', '"0s"\nskew_max = "10m"').replace(
    'publish = "event"', 'publish = "event"\nskew_max = "10m"\ncarry = "manual"'
)
"""Meters that make a grace of an hour; `exports` waits for a person when it is too late."""


def punctual(world: World) -> None:
    """The meters of this file in force at once: as if they had been the first."""
    with world.ledger.connect() as admin:
        admin.execute("ALTER TABLE ledger.meter_version DISABLE TRIGGER USER")
        admin.execute("UPDATE ledger.meter_version SET skew_max_us = 600000000")
        admin.execute("UPDATE ledger.meter_version SET carry = 'manual' WHERE metric = 'exports'")
        admin.execute("ALTER TABLE ledger.meter_version ENABLE TRIGGER USER")
    world.meters.write_text(PUNCTUAL, encoding="utf-8")


def cycle(world: World, ago: timedelta, grace: str = "1h") -> tuple[str, ...]:
    """Options of a customer whose month ended so long ago."""
    anchor = world.value(world.ledger, "SELECT date_trunc('minute', now())") - ago
    return ("--anchor", anchor.isoformat(), "--interval", "month", "--grace", grace)


def subscribe(world: World, customer: str, **changes: Any) -> None:
    anchor_s = int(datetime(2026, 1, 15, 14, 37, 21, tzinfo=UTC).timestamp())
    made = Subscription(f"sub_{customer}", customer, ["api_calls"], anchor_s, **changes)

    async def remember() -> None:
        assert world.pipeline.service is not None
        world.pipeline.service.engine.remember([made])

    world.pipeline.ask(remember())


def miss(world: World, units_times: int = 1) -> list[dict[str, Any]]:
    """Exports of a customer whose invoice closed just now: what waits."""
    punctual(world)
    options = cycle(world, timedelta(minutes=46))
    assert world.cli("customers", "map", "acme", "cus_acme", *options).code == 0
    for _ in range(units_times):
        world.record("acme", new_key(), metric="exports", back="47 min")
    # Its skew of ten minutes would refuse it: a person approves, too late for its invoice.
    with world.ledger.connect() as admin:
        until(
            "the late usage is in review",
            lambda: _count(admin, "SELECT count(*) FROM ledger.parked") == units_times,
        )
        admin.execute(
            "SELECT ledger.approve(parked_id, 'confirmed', NULL, 'own') FROM ledger.parked"
        )
    return list(world.cli.json("carry_list", "carry", "list")["waiting"])


def _count(admin: Any, query: str) -> int:
    return int(admin.execute(query).fetchone()[0])


def test_a_grace_that_meters_cannot_make_is_refused_before_any_worker_would(world: World) -> None:
    refused = world.cli("customers", "map", "acme", "cus_a", *cycle(world, timedelta(days=1)))
    assert refused.code == 78
    assert "meter api_calls: usage may be 24 h 15 min on its way" in refused.err
    assert "raise the finalisation grace in Stripe" in refused.err
    assert world.cli.json("customers_list", "customers", "list")["mappings"] == []


def test_a_second_tenant_of_a_customer_has_its_billing_cycle_and_another_one_is_told(
    world: World,
) -> None:
    punctual(world)
    options = cycle(world, timedelta(days=1), grace="2h")
    assert world.cli("customers", "map", "acme", "cus_a", *options).code == 0

    second = world.cli("customers", "map", "bolt", "cus_a")

    assert (second.code, "billing cycle of cus_a as acme is mapped" in second.err) == (0, True)
    assert "another billing cycle" not in second.err
    other = cycle(world, timedelta(days=2))
    third = world.cli("customers", "map", "coop", "cus_a", *other)
    assert third.code == 0
    assert "acme has another billing cycle for cus_a" in third.err
    listed = world.cli.json("customers_list", "customers", "list")["mappings"]
    cycles = {m["tenant_id"]: (m["anchor"], m["interval"], m["grace_s"]) for m in listed}
    assert cycles["bolt"] == cycles["acme"] != cycles["coop"]


def test_a_tenant_mapped_before_its_customers_cycle_was_known_is_told_and_mapped_anew(
    world: World,
) -> None:
    punctual(world)
    assert world.cli("customers", "map", "early", "cus_a").code == 0
    options = cycle(world, timedelta(days=1), grace="2h")

    mapped = world.cli("customers", "map", "acme", "cus_a", *options)
    assert "early has no billing cycle for cus_a, so nothing of it has a deadline" in mapped.err
    assert (
        world.cli("customers", "map", "early", "cus_a", "--reason", "its cycle", "--yes").code == 0
    )

    again = world.cli("customers", "map", "early", "cus_a", "--reason", "its cycle", "--yes")
    assert again.out.startswith("unchanged: early is mapped to cus_a"), again
    mappings = world.cli.json("customers_list", "customers", "list")["mappings"]
    newest = {m["tenant_id"]: (m["anchor"], m["interval"], m["grace_s"]) for m in mappings}
    assert newest["early"] == newest["acme"]


def test_whoever_loses_a_race_of_deciding_is_told_whose_decision_stands(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (waiting,) = miss(world)
    entry = str(waiting["entry"])

    def decided_meanwhile(*_: object) -> None:
        with world.ledger.connect() as admin:
            admin.execute("SELECT ledger.carry_entry(%s, 'an invoice item', 'ii_1')", (entry,))

    monkeypatch.setattr("streams.cli.carry._plan", decided_meanwhile)
    lost = world.cli("carry", "apply", entry, "--reason", "into the next", "--yes")
    assert lost.code == 0
    assert re.fullmatch(rf"unchanged: entry {entry}: -3 in entry \d+, ii_1, by \w+", lost.last)


def test_meters_check_and_apply_refuse_what_no_worker_would_start_by(world: World) -> None:
    punctual(world)
    assert (
        world.cli("customers", "map", "acme", "cus_a", *cycle(world, timedelta(days=1))).code == 0
    )
    assert world.cli("meters", "check", str(world.meters)).code == 0
    world.meters.write_text(PUNCTUAL.replace('"10m"', '"46m"'), encoding="utf-8")
    checked = world.cli.json("meters_check", "meters", "check", str(world.meters))
    assert {problem["path"] for problem in checked["problems"]} == {
        "meters.api_calls.skew_max",
        "meters.exports.skew_max",
    }
    refused = world.cli("meters", "apply", str(world.meters), "--yes")
    assert refused.code == 78
    assert "after 1 h of grace; no worker starts by it" in refused.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--grace", "73h"), "--grace: Stripe allows at most 72 hours"),
        (("--interval", "day", "--grace", "24h"), "--grace: must be shorter than the billing"),
        (("--anchor", "2026-11-01T00:00:00.5Z"), "--anchor: Stripe's anchors are whole seconds"),
        (("--interval", "quarter"), "--interval: 'quarter' is no billing period of Stripe's"),
        (("--interval", "37 months"), "`--interval '3 months'` for quarters"),
    ],
)
def test_a_cycle_that_stripe_cannot_have_is_refused(
    world: World, options: tuple[str, ...], said: str
) -> None:
    given = ("--anchor", "2026-11-01T00:00:00Z", "--interval", "month", *options)
    refused = world.cli("customers", "map", "acme", "cus_a", *given)
    assert refused.code == 2
    assert said in refused.err


def test_a_cycle_is_read_from_stripe_and_straddling_windows_are_named(world: World) -> None:
    subscribe(world, "cus_a")
    mapped = world.cli("customers", "map", "acme", "cus_a", "--grace", "25h")
    assert mapped.code == 0, mapped.err
    assert "billing cycle read from Stripe: month from 2026-01-15T14:37:21" in mapped.err
    [line] = world.cli.json("customers_list", "customers", "list")["mappings"]
    assert (line["anchor"], line["interval"]) == ("2026-01-15T14:37:21.000000Z", "month")
    assert line["period_end"].endswith("-15T14:37:21.000000Z")
    assert line["straddling"] == [{"metric": "api_calls", "window_s": 60, "bound_s": 21}]
    shown = world.cli("customers", "list").out
    assert "acme: api_calls windows of 60 s hold up to 21 s of usage" in shown
    again = world.cli("customers", "map", "acme", "cus_a")
    assert again.out.startswith("unchanged: acme is mapped to cus_a")


@pytest.mark.parametrize("read", [True, False], ids=["read from Stripe", "given"])
def test_a_quarter_keeps_its_anchor(world: World, read: bool) -> None:
    given = ("--anchor", "2026-01-15T14:37:21Z", "--interval", "3 month")
    if read:
        subscribe(world, "cus_a", interval_count=3)
    mapped = world.cli(
        "customers", "map", "acme", "cus_a", "--grace", "25h", *(() if read else given)
    )
    assert mapped.code == 0, mapped.err
    [line] = world.cli.json("customers_list", "customers", "list")["mappings"]
    assert (line["anchor"], line["interval"]) == ("2026-01-15T14:37:21.000000Z", "3 months")
    assert line["period_end"][5:] in {
        f"{month}-15T14:37:21.000000Z" for month in ("01", "04", "07", "10")
    }


@pytest.mark.parametrize(
    ("interval", "said"),
    [(None, "it has no subscription"), ("hour", "it has no subscription that recurs by days")],
)
def test_where_stripe_tells_no_cycle_the_mapping_says_so_and_has_none(
    world: World, interval: Any, said: str
) -> None:
    if interval:
        subscribe(world, "cus_a", interval=interval)
    mapped = world.cli("customers", "map", "acme", "cus_a")
    assert mapped.code == 0
    assert f"billing cycle: not known from Stripe: {said}" in mapped.err
    assert "no billing deadline is known for it" in mapped.err
    refused = world.cli("customers", "map", "globex", "cus_b", "--grace", "2h")
    assert refused.code == 2
    assert "--grace: says nothing without a billing cycle" in refused.err


def test_where_stripe_cannot_be_read_the_mapping_goes_on_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_STRIPE_API_BASE", "http://127.0.0.1:9")
    mapped = world.cli("customers", "map", "acme", "cus_a")
    assert mapped.code == 0
    assert "billing cycle: not read from Stripe: subscriptions of cus_a" in mapped.err


def test_what_will_miss_its_invoice_is_said_before_it_does(world: World) -> None:
    punctual(world)
    options = cycle(world, timedelta(minutes=3))
    assert world.cli("customers", "map", "acme", "cus_acme", *options).code == 0
    world.pipeline.publishing = False
    world.record("acme", new_key(), metric="exports", back="4 min")
    world.record("acme", new_key(), metric="exports", back="1 min")
    with world.ledger.connect() as admin:
        until("both entries", lambda: _count(admin, "SELECT count(*) FROM ledger.uncovered") == 2)
    found = world.cli.json("deadlines", "deadlines", "--all")
    assert [(a["outlook"], a["state"], a["units"]) for a in found["unsettled"]] == [
        ("at risk", "entry", "3"),
        ("on time", "entry", "3"),
    ]
    assert 0 < found["unsettled"][0]["left_s"] < 45 * 60
    assert world.cli("deadlines").code == 0
    with world.ledger.connect() as admin:
        admin.execute("UPDATE ledger.lane SET paused = true, pause_reason = 'x'")
    shown = world.cli("deadlines")
    assert shown.code == 1
    assert "will miss" in shown.out
    assert "entry, paused" in shown.out
    world.pipeline.publishing = True


def test_manual_amounts_wait_listed_and_are_carried_once_with_receipts(world: World) -> None:
    [waiting] = miss(world)
    assert (waiting["units"], waiting["policy"], waiting["customer"]) == ("3", "manual", "cus_acme")
    entry = str(waiting["entry"])
    missed = world.cli("deadlines")
    assert missed.code == 1
    assert "missed" in missed.out
    assert "`tailrace carry list`" in missed.err
    assert entry in world.cli("carry", "list").out
    assert world.cli.json("status", "status")["waiting"]["entries_overdue"] == 1
    assert "usage missed its invoice: `tailrace carry list`" in world.cli("status").out

    asked = world.cli("carry", "apply", entry, "--reason", "agreed with acme")
    assert asked.code == 2
    assert f"plan: entry {entry}: 3 of acme exports" in asked.err
    done = world.cli("carry", "apply", entry, "--reason", "agreed with acme", "--yes")
    assert done.code == 0, done.err
    assert done.out.startswith(f"entry {entry}: -3 in entry ")
    world.settled(3)
    again = world.cli("carry", "apply", entry, "--reason", "twice", "--yes")
    assert (again.code, again.out.startswith(f"unchanged: entry {entry}: -3 in")) == (0, True)

    listed = world.cli.json("carry_list", "carry", "list")
    assert listed["waiting"] == []
    assert [(d["units"], d["reason"]) for d in listed["decided"]] == [("3", "agreed with acme")]
    after = world.cli.json("deadlines", "deadlines")
    assert [(d["state"], d["units"]) for d in after["decided"]] == [("carried", "3")]
    assert world.cli("deadlines").code == 0
    assert world.cli("audit").code == 0


def test_amounts_of_a_tenant_are_closed_elsewhere_together(world: World) -> None:
    assert len(miss(world, 2)) == 2
    options = ("--tenant", "acme", "--elsewhere", "ii_77", "--reason", "invoice item", "--yes")
    done = world.cli("carry", "apply", *options)
    assert done.code == 0
    assert done.out.count(", ii_77") == 2
    assert world.cli("carry", "apply", *options).out == "unchanged: nothing of these waits\n"
    assert asyncio.run(_nothing_sent(world))


async def _nothing_sent(world: World) -> bool:
    assert world.pipeline.service is not None
    return world.pipeline.service.engine.state.recorded == []


def test_what_cannot_be_carried_is_refused_by_name_and_the_rest_is(world: World) -> None:
    [waiting] = miss(world)
    entry = str(waiting["entry"])
    done = world.cli("carry", "apply", entry, "999", "--reason", "why", "--yes")
    assert done.code == 1
    assert "refused: entry 999 has not missed an invoice" in done.out
    assert f"entry {entry}: -3" in done.out
    for options, said in (
        (("--reason", " "), "--reason: is empty"),
        (("--reason", "x"), "no entries are named"),
    ):
        refused = world.cli("carry", "apply", *options)
        assert refused.code == 2
        assert said in refused.err


def test_a_refusal_of_the_ledger_names_the_rule_and_the_way_out(world: World) -> None:
    [waiting] = miss(world)
    refused = world.cli(
        "carry", "apply", str(waiting["entry"]), "--reason", "x", "--customer", "cus_z", "--yes"
    )
    assert refused.code == 1
    assert "mapped to cus_acme now" in refused.out
    assert "--customer" in refused.err
