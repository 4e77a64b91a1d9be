"""`tailrace status`: one screen names every trouble and the command to type."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streams.adapters.ledger import open_ledger
from streams.core.observation import Answer, KeptBack, MaybeSent, NotSent, Observation
from tests.integration.cli.conftest import World, new_key
from tests.support.waiting import until

pytestmark = pytest.mark.postgres


def figures(world: World) -> dict[str, Any]:
    return world.cli.json("status", "status")


def named(world: World) -> dict[str, dict[str, Any]]:
    """What needs somebody, by name."""
    remarks = figures(world)["remarks"]
    return {remark["name"]: remark for remark in remarks if remark["severity"] != "info"}


def attempts(world: World, least: int) -> None:
    """Waits until Stripe was asked so often."""

    def asked() -> bool:
        world.pipeline.check()
        return int(world.value(world.ledger, "SELECT count(*) FROM ledger.attempt")) >= least

    until(f"{least} attempts", asked, deadline_s=20)


def test_nothing_waits_in_a_ledger_where_all_is_well(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", new_key(), metric="exports")
    world.settled(3)
    assert world.cli("audit").code == 0
    shown = world.cli("status")
    assert shown.out.startswith("money at risk: no: nothing waits for anybody\n")
    assert shown.err == ""
    assert figures(world)["money_at_risk"]["at_risk"] == "no"
    assert figures(world)["sink"]["failures"] == 0


def test_an_outage_a_poison_event_a_late_one_and_a_wrong_meter_are_named_with_what_to_type(
    world: World,
) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.pipeline.refuse = "no_meter"
    world.record("acme", new_key(), metric="exports")
    until(
        "the wrong meter is noticed",
        lambda: world.value(world.ledger, "SELECT count(*) FROM ledger.parked") == 1,
        deadline_s=20,
    )
    world.pipeline.refuse, world.pipeline.outage = None, Answer(503, False)
    world.pipeline.rename.add("poison")
    world.record("acme", "poison", metric="exports")
    world.record("acme", "late", metric="exports", back="30 hours")
    attempts(world, 5)
    until("the late one is parked", lambda: "review" in named(world), deadline_s=20)

    shown = world.cli("status")
    assert shown.out.startswith("money at risk: not yet: 4 things wait for somebody\n")
    assert (shown.code, shown.err) == (0, ""), "attention is no finding"
    lines = shown.out.partition("\n\n")[0].splitlines()[1:]
    assert lines.pop() == "nothing is proven yet: `tailrace audit`"
    assert len(lines) == 4
    (outage,) = (line for line in lines if line.startswith("Stripe is down for "))
    assert "(HTTP 503); the oldest doubt is " in outage
    assert outage.endswith("`tailrace deadlines`")
    (poison,) = (line for line in lines if "malformed (" in line)
    assert poison.endswith("`tailrace dead list`")
    (meter,) = (line for line in lines if "no_meter" in line)
    assert meter == (
        "1 dead of exports, refused (no_meter): create the meter in Stripe, then redrive: "
        '`tailrace dead redrive --cause no_meter --reason "…"`'
    )
    (late,) = (line for line in lines if " late of exports" in line)
    assert late == "1 late of exports waits for a decision: `tailrace review list`"


@pytest.mark.parametrize(
    ("observed", "name", "said"),
    [
        (Answer(401, True, error_message="Invalid API Key"), "sink_down", "refuses the key"),
        (NotSent("ClientConnectorError"), "sink_down", "nothing is in doubt"),
        (MaybeSent("TimeoutError"), "sink_down", "the oldest doubt"),
    ],
    ids=["key", "no connection", "no answer"],
)
def test_what_keeps_stripe_away_is_named(
    observed: Observation, name: str, said: str, world: World
) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.pipeline.outage = observed
    world.record("acme", new_key(), metric="exports")
    attempts(world, 5)
    assert said in named(world)[name]["text"]
    world.pipeline.outage = None
    world.settled(3)
    assert named(world).keys() == set()
    assert figures(world)["sink"]["failures"] == 0


def test_an_outage_is_named_while_nothing_can_be_sent(world: World) -> None:
    """Its tenant is unmapped, so only sweeps for error reports meet it; an answer ends it."""
    world.record("acme", new_key(), metric="exports")
    assert "nothing was asked of it yet" in world.cli("status").out
    asyncio.run(silent_sweeps(world))
    # It takes requests: that is the newer word.
    world.cli("customers", "map", "acme", "cus_acme")
    world.settled(3)
    assert "sink_down" not in named(world)


async def silent_sweeps(world: World) -> None:
    """Sweeps without an answer until Stripe counts as down, one with, and one that is refused."""
    login = world.ledger.login("ledger_service", "ledger_finance")
    async with open_ledger(world.ledger.dsn(login)) as ledger:
        assert await ledger.rejections.claim_sweep(0.0) is not None
        for _ in range(2):
            await ledger.rejections.unanswered("HTTP 503", refused=False)
        assert "sink_down" not in named(world), "two may be a coincidence"
        await ledger.rejections.unanswered("HTTP 503", refused=False)
        assert "(HTTP 503); nothing is in doubt" in named(world)["sink_down"]["text"]
        assert "3 failures since: HTTP 503" in world.cli("status").out
        await ledger.rejections.swept(0)
        assert "sink_down" not in named(world)
        assert "ago, to a request or to a look" in world.cli("status").out
        await ledger.rejections.unanswered("HTTP 401", refused=True)
        assert "Stripe refuses the key" in named(world)["sink_down"]["text"]


def test_requests_that_a_worker_kept_back_say_nothing_of_stripe(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.pipeline.outage = NotSent(KeptBack.SINK_DOWN)
    world.record("acme", new_key(), metric="exports")
    attempts(world, 5)
    assert figures(world)["sink"]["failures"] == 0


def test_amounts_that_no_worker_takes_are_named(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.pipeline.publishing = False
    world.record("acme", new_key(), metric="exports")
    until("an amount waits", lambda: figures(world)["waiting"]["entries_waiting"] == 1)
    assert "idle" not in named(world)
    with world.ledger.connect() as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute("UPDATE ledger.meter_log SET created_at = now() - interval '6 min'")
    assert named(world)["idle"]["text"] == "amounts are due since 6 min and no worker takes them"
