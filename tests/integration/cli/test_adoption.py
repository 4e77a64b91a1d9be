"""A ledger restored from a backup: nothing that Stripe has is sent twice, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from psycopg import sql

from tests.integration.cli.conftest import World, new_key
from tests.integration.cli.test_reconcile import ACT, a_day_passes, admin, balance, sent
from tests.support.postgres import Database
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

ADOPT = ("ledger", "adopt", "--yes", "--reason", "restored the backup")
BACK = "90 min"
"""An hour that is over, however the test falls."""


def copy_database(world: World, template: Database, name: str) -> None:
    """A copy under another name, while the workers leave both alone."""
    world.pipeline.holding = True
    until("the pipeline holds", world.pipeline.idle.is_set)
    with template.server.admin.connect() as conn:
        for database in (template.name, name):
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                (database,),
            )
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
        conn.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template.name)
            )
        )
    world.pipeline.holding = False


def halted(world: World) -> bool:
    world.pipeline.check()
    text = "SELECT count(*) FROM ledger.halt WHERE lifted_at IS NULL"
    return bool(world.value(world.ledger, text))


def held_units(world: World) -> int:
    world.pipeline.check()
    return int(
        world.value(
            world.ledger,
            "SELECT coalesce(sum(delta), 0) FROM ledger.uncovered WHERE lane_id IS NOT NULL",
        )
    )


@pytest.fixture
def restored(world: World, fresh_database: Callable[..., Database]) -> World:
    """12 units sent before the backup, 9 after it, then the backup is restored."""
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    for _ in range(2):
        world.record("acme", new_key(), metric="exports", back=BACK)
        world.record("acme", new_key(), back=BACK)
    world.settled(12)
    backup = fresh_database()
    copy_database(world, world.ledger, backup.name)
    for _ in range(2):
        world.record("acme", new_key(), metric="exports", back=BACK)
    world.record("acme", new_key(), back=BACK)
    world.settled(21)
    copy_database(world, backup, world.ledger.name)
    return world


def stood_still(world: World) -> None:
    """What `tailrace reconcile --yes` does over two days, until the sums prove something."""
    for _ in range(2):
        young = world.cli.json("reconcile", "reconcile", *ACT)
        assert {cell["decision"] for cell in young["cells"]} == {"wait"}
        admin(
            world,
            "ALTER TABLE ledger.adoption DISABLE TRIGGER append_only",
            "UPDATE ledger.adoption SET quiet_from = quiet_from - interval '25 hours'",
            "ALTER TABLE ledger.adoption ENABLE TRIGGER append_only",
        )
        a_day_passes(world)


def reconciled(world: World) -> None:
    stood_still(world)
    done = world.cli.json("reconcile", "reconcile", *ACT)
    assert done["ok"]
    assert {cell["outcome"] for cell in done["cells"]} == {"settled"}


def test_nothing_is_sent_twice_and_nothing_is_lost(restored: World) -> None:
    world = restored
    until("the workers noticed", lambda: halted(world))
    world.record("acme", new_key(), metric="exports", back=BACK)

    plan = world.cli.json("ledger_adopt", "ledger", "adopt")
    assert plan["halted"]
    assert not plan["adopted"]
    assert [p["acknowledged"] > p["stored"] for p in plan["partitions"]] == [True]
    assert sum(int(c["stripe"]) - int(c["recorded"]) for c in plan["cells"]) == 9
    assert halted(world), "a plan changes nothing"
    assert sent(world) == 21
    early = world.cli("audit")
    assert (early.code, "`tailrace ledger adopt`, then audit again" in early.err) == (75, True)

    adopted = world.cli(*ADOPT)
    assert (adopted.code, adopted.last) == (0, "adopted: receipt 1, restored the backup")
    until("the workers told it again", lambda: held_units(world) == 12, deadline_s=20)
    assert sent(world) == 21, "what was told again waits"
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit
    assert world.cli.json("audit", "audit")["stripe"]["open"] >= 1
    assert world.cli.json("status", "status")["waiting"]["cells_to_compare"] >= 1
    assert "wait until Stripe's sums were compared" in world.cli("status").out
    reconciled(world)
    world.settled(24)

    assert sent(world) == 24
    assert balance(world) == (24, 0, 0)
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit
    assert world.cli.json("reconcile", "reconcile")["ok"]


def the_invoice_closes(world: World) -> None:
    """What waiting for the end of the period would do, and for the last that may be on its way."""
    admin(
        world,
        "ALTER TABLE ledger.customer DISABLE TRIGGER append_only",
        "ALTER TABLE ledger.adoption DISABLE TRIGGER append_only",
        "UPDATE ledger.customer SET billing_interval = 'month', grace = interval '15 minutes',"
        " anchor = date_trunc('minute', now()) - interval '80 minutes'",
        "UPDATE ledger.uncovered SET deadline_at = now() - interval '80 minutes'",
        "UPDATE ledger.adoption SET until_at = date_trunc('hour', now()) - interval '1 minute'",
        "ALTER TABLE ledger.customer ENABLE TRIGGER append_only",
        "ALTER TABLE ledger.adoption ENABLE TRIGGER append_only",
    )


def test_what_stripe_lacks_of_a_closed_invoice_is_carried_and_what_it_has_is_not(
    restored: World,
) -> None:
    world = restored
    until("the workers noticed", lambda: halted(world))
    world.record("acme", new_key(), metric="exports", back=BACK)
    assert world.cli(*ADOPT).code == 0
    until("the workers told it again", lambda: held_units(world) == 12, deadline_s=20)
    stood_still(world)
    the_invoice_closes(world)

    plan = world.cli.json("reconcile", "reconcile")
    (late,) = (cell for cell in plan["cells"] if cell["net_units"] != "0")
    assert late["next"] == (
        "3 are too late for their invoice and would wait in `tailrace carry list`,"
        " 6 are there and adopted"
    )
    done = world.cli("reconcile", *ACT)
    assert done.code == 0
    assert "next: `tailrace carry list`, then `tailrace carry apply" in done.err
    assert balance(world)[0] == 21
    ((entry, units),) = (
        (line["entry"], line["units"])
        for line in world.cli.json("carry_list", "carry", "list")["waiting"]
    )
    assert (units, sent(world)) == ("3", 21)

    carried = world.cli("carry", "apply", str(entry), "--yes", "--reason", "next invoice")
    assert carried.code == 0
    world.settled(24)
    assert sent(world) == 24
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit
    assert world.cli.json("reconcile", "reconcile")["ok"]


def test_the_second_time_it_is_a_no_op_with_the_receipt(restored: World) -> None:
    world = restored
    until("the workers noticed", lambda: halted(world))
    assert world.cli(*ADOPT).code == 0
    again = world.cli(*ADOPT)
    assert again.code == 0
    assert "nothing to adopt: receipt 1 of" in again.last
    assert world.cli.json("ledger_adopt", *ADOPT)["receipt"]["adoption"] == 1
    assert world.value(world.ledger, "SELECT count(*) FROM ledger.adoption") == 1


def test_new_hours_go_on_while_old_ones_wait(restored: World) -> None:
    world = restored
    until("the workers noticed", lambda: halted(world))
    assert world.cli(*ADOPT).code == 0
    until("the workers told it again", lambda: held_units(world) == 9, deadline_s=20)
    admin(
        world,
        "ALTER TABLE ledger.adoption DISABLE TRIGGER append_only",
        "UPDATE ledger.adoption SET until_at = date_trunc('hour', now()) - interval '1 minute'",
        "ALTER TABLE ledger.adoption ENABLE TRIGGER append_only",
    )
    world.record("acme", new_key(), metric="exports", back="0 min")
    until("usage of after the adoption is sent", lambda: sent(world) == 24)
    assert held_units(world) == 9


def test_what_begins_after_the_adoption_the_lost_ledger_cannot_have_sent(restored: World) -> None:
    world = restored
    until("the workers noticed", lambda: halted(world))
    assert world.cli(*ADOPT).code == 0
    reach = "SELECT until_at - adopted_at FROM ledger.adoption"
    assert world.value(world.ledger, reach) == timedelta(minutes=10), "its requests in flight"
    key = new_key()
    world.record("acme", key, metric="exports", back="0 min")
    until("it waits with its hour", lambda: held_units(world) == 12, deadline_s=20)
    assert "its hour is compared with Stripe first" in world.cli("trace", "acme", key).out
    cells = world.cli.json("reconcile", "reconcile")["cells"]
    nexts = {c["next"] for c in cells if (c["event_name"], c["held"]) == ("exports", "3")}
    assert nexts == {"it is not over yet, and compared as a whole"}


def test_a_ledger_that_never_went_back_has_nothing_to_adopt(world: World) -> None:
    ran = world.cli(*ADOPT)
    assert (ran.code, ran.last[:16]) == (0, "nothing to adopt")
    assert world.cli("ledger", "adopt", "--yes").code == 2


def test_what_was_under_way_counts_as_in_doubt_and_is_compared(restored: World) -> None:
    """A request of the backup that the forgotten ledger had sent: found, never sent again."""
    world = restored
    until("the workers noticed", lambda: halted(world))
    admin(
        world,
        "ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen",
        "UPDATE ledger.meter_event SET state = 'pending', settled_at = NULL, next_attempt_at ="
        " now() WHERE meter_event_id = (SELECT min(meter_event_id) FROM ledger.meter_event"
        " WHERE event_name = 'exports')",
        "ALTER TABLE ledger.meter_event ENABLE TRIGGER frozen",
    )
    assert world.cli.json("ledger_adopt", *ADOPT)["receipt"]["detail"]["unsettled"]
    until("the workers told it again", lambda: held_units(world) == 9, deadline_s=20)
    reconciled(world)
    assert sent(world) == 21
    assert balance(world) == (21, 0, 0)
