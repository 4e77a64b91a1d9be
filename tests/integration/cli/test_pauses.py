"""`pause`, `resume` and `held`: plan first, --yes, a receipt, and the second time nothing."""

from __future__ import annotations

import pytest

from streams.adapters.ledger import open_ledger
from streams.core.orders import HeldRecord
from tests.integration.cli.conftest import World, new_key

pytestmark = pytest.mark.postgres

WHY = ("--reason", "Stripe maintenance")
HELD = HeldRecord(
    "11111111-2222-3333-4444-555555555555", 7, 3, "c" * 64, "schema version 2 is unknown", 12
)


def test_a_pause_shows_its_plan_holds_amounts_and_is_a_no_op_the_second_time(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    refused = world.cli("pause", "--tenant", "acme", *WHY)
    assert refused.code == 2
    assert "plan: pause tenant acme: 0 lanes with 0 units" in refused.err
    assert "next: read the plan above, then `tailrace pause --tenant acme" in refused.err
    paused = world.cli("pause", "--tenant", "acme", *WHY, "--yes")
    assert (paused.code, paused.out.startswith("paused: tenant acme by")) == (0, True)
    world.record("acme", new_key(), metric="exports")
    assert world.cli("audit").code == 0
    document = world.cli.json("pause_list", "pause", "list")
    [pause] = document["pauses"]
    assert (pause["scope"], pause["subject"], pause["by"]) == (
        "tenant",
        "acme",
        world.ledger.login("ledger_service", "ledger_finance"),
    )
    assert (pause["lanes"], pause["units_waiting"]) == (1, "3")
    assert world.value(world.ledger, "SELECT sum(pending) FROM ledger.balance") == 3
    again = world.cli("pause", "--tenant", "acme", "--reason", "again", "--yes")
    assert again.code == 0
    assert again.out.startswith("unchanged: tenant acme by")
    assert f"receipt {pause['receipt']}" in again.out
    status = world.cli.json("status", "status")
    assert status["pauses"] == [pause]
    assert "PUBLISHING IS PAUSED: tenant acme" in world.cli("status").out
    assert "Stripe maintenance" in world.cli("pause", "list").out
    resumed = world.cli("resume", "--tenant", "acme", "--reason", "over", "--yes")
    assert (resumed.code, resumed.out.startswith("resumed tenant acme")) == (0, True)
    world.settled(3)
    twice = world.cli("resume", "--tenant", "acme", "--reason", "over", "--yes")
    assert twice.out.startswith("unchanged: resumed already, tenant acme")


def test_units_that_wait_for_a_customer_as_well_are_counted_and_told_apart(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    others = ("--meter", "api_calls"), ("--tenant", "elsewhere")
    for scope in (("--meter", "exports"), ("--tenant", "nobody"), ("--all",), *others):
        assert world.cli("pause", *scope, *WHY, "--yes").code == 0
    world.record("acme", new_key(), metric="exports")
    world.record("nobody", new_key(), metric="exports")
    assert world.cli("audit").code == 0
    waiting = {
        pause["subject"]: (pause["units_waiting"], pause["units_unmapped"])
        for pause in world.cli.json("pause_list", "pause", "list")["pauses"]
    }
    assert waiting == {
        "exports": ("6", "3"),
        "nobody": ("3", "3"),
        None: ("6", "3"),
        "api_calls": ("0", "0"),
        "elsewhere": ("0", "0"),
    }
    assert "3 units (all also unmapped)" in world.cli("pause", "list").out


def test_resuming_one_pause_leaves_the_others(world: World) -> None:
    assert world.cli("pause", "--all", *WHY, "--yes").code == 0
    assert world.cli("pause", "--meter", "exports", *WHY, "--yes").code == 0
    resumed = world.cli("resume", "--all", "--reason", "over", "--yes")
    assert "still paused: meter exports" in resumed.err
    assert world.cli("resume", "--tenant", "x", *WHY, "--yes").out == (
        "unchanged: tenant x was never paused\n"
    )


def test_a_tenant_that_nobody_knows_is_told_in_the_plan(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    for tenant, unknown in (("nobody", True), ("acme", False)):
        plan = world.cli("pause", "--tenant", tenant, *WHY, "--yes")
        assert plan.code == 0
        assert (f"recorded or mapped for {tenant}" in plan.err) is unknown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", *WHY), "one of --all, --meter and --tenant"),
        (("pause", "--all", "--meter", "exports", *WHY), "one of --all, --meter and --tenant"),
        (("pause", "--all"), "--reason: say why"),
        (("resume", "--all", "--lane", "1", *WHY), "one of --all, --meter and --tenant"),
        (("pause", "--meter", "nothing", *WHY, "--yes"), "meter: there is no meter nothing"),
        (("held", "skip", "1", "2"), "--reason: say why"),
        (("held", "skip", "1", "2", *WHY, "--yes"), "offset: no worker is held at offset 2"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    world: World, arguments: tuple[str, ...], said: str
) -> None:
    refused = world.cli(*arguments)
    assert refused.code == 2
    assert said in refused.err
    assert "next:" in refused.err


def test_a_lane_that_publishing_stopped_is_listed_and_resumed_by_finance(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.ledger.connect() as conn:
        conn.execute(
            "INSERT INTO ledger.lane (customer, event_name, paused, pause_reason)"
            " VALUES ('cus_1', 'exports', true, 'value: more than 15 digits')"
        )
    [lane] = world.cli.json("pause_list", "pause", "list")["lanes_stopped"]
    number = str(lane["lane"])
    assert f"tailrace resume --lane {number}" in world.cli("pause", "list").out
    assert world.cli("resume", "--lane", number, *WHY).code == 2
    for role, code in (("ledger_service", 78), ("ledger_finance", 0)):
        monkeypatch.setenv("TAILRACE_LEDGER_DSN", world.ledger.dsn(world.ledger.login(role)))
        resumed = world.cli("resume", "--lane", number, *WHY, "--yes")
        assert resumed.code == code, resumed.err
        assert resumed.out == ("" if code else f"resumed lane {number}\n")
    again = world.cli("resume", "--lane", number, *WHY, "--yes")
    assert again.out == f"unchanged: not stopped, lane {number}\n"


async def hold(world: World) -> None:
    async with open_ledger(
        world.ledger.dsn(world.ledger.login("ledger_service", "ledger_finance"))
    ) as ledger:
        await ledger.report_held(HELD, "w1")


async def test_a_held_record_is_listed_and_skipped_with_a_receipt(world: World) -> None:
    await hold(world)
    [record] = world.cli.json("held_list", "held", "list")["records"]
    assert (record["partition"], record["offset"], record["state"]) == (7, 3, "held")
    assert "schema version 2 is unknown" in world.cli("held", "list").out
    refused = world.cli("held", "skip", "7", "3", *WHY)
    assert refused.code == 2
    assert "plan: the record at offset 3 of partition 7 (12 bytes" in refused.err
    skipped = world.cli("held", "skip", "7", "3", *WHY, "--yes")
    assert (skipped.code, skipped.out.startswith("skipped offset 3 of partition 7")) == (0, True)
    again = world.cli("held", "skip", "7", "3", *WHY, "--yes")
    assert again.out.startswith("unchanged: skipped already, offset 3 of partition 7")
    [record] = world.cli.json("held_list", "held", "list")["records"]
    assert record["state"] == "skipped"
    assert record["decision"]["reason"] == "Stripe maintenance"


async def test_a_decision_that_came_too_late_is_a_finding(world: World) -> None:
    """A worker with newer code had read the record before it knew of the decision."""
    await hold(world)
    assert world.cli("held", "skip", "7", "3", *WHY, "--yes").code == 0
    with world.ledger.connect() as conn:
        conn.execute(
            "INSERT INTO ledger.log (log_id, log_topic, first, reason)"
            " VALUES (%s, 'usage.events', true, 'a test') ON CONFLICT DO NOTHING",
            (HELD.log_id,),
        )
        conn.execute(
            "INSERT INTO ledger.position VALUES (%s, 7, 'usage.events', 9, '', now())"
            " ON CONFLICT (log_id, partition) DO UPDATE SET position = 9",
            (HELD.log_id,),
        )
    listed = world.cli("held", "list", "--json")
    assert listed.code == 1
    assert '"contradicted"' in listed.out
