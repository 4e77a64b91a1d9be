"""What `tailrace audit` says of units, over real databases: each wrong amount is found, and named.

Amounts are changed as a superuser would, below every guard, so that nothing else contradicts them.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.cli.conftest import World, new_key
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

LIMITED = "SELECT metering.put_metric(%s, 0, 100, true)"
CORRECT = "SELECT metering.record_correction('acme', %s, %s, %s, 'measured twice', 'ann')"


def execute(world: World, *statements: str, in_outbox: bool = False) -> None:
    database = world.outbox if in_outbox else world.ledger
    with database.connect(autocommit=False) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def in_ledger(world: World, number: int, table: str = "level") -> None:
    """Waits until the ledger has so many rows of a kind."""
    query = f"SELECT count(*) FROM ledger.{table}"
    until(f"{number} in ledger.{table}", lambda: world.value(world.ledger, query) == number)


def differences(world: World, *options: str) -> list[tuple[Any, ...]]:
    """What an audit lists, after it has said so in its exit code."""
    document = world.cli.json("audit", "audit", "--no-stripe", *options)
    units = document["units"]
    listed = [
        (each["kind"], each["tenant_id"], each["metric"], each["verdict"], int(each["more_units"]))
        for each in units["differences"]
    ]
    assert units["different"] == len(listed)
    assert document["ok"] or listed
    return listed


def test_whatever_becomes_of_usage_its_units_are_those_recorded(world: World) -> None:
    for tenant in ("acme", "globex"):
        assert world.cli("customers", "map", tenant, f"cus_{tenant}").code == 0
    with world.outbox.connect() as conn:
        # Pushed to the service, and unknown to the ledger: a dead letter.
        conn.execute(LIMITED, ("teapots",))
        conn.execute("SELECT metering.set_shards('globex', 4)")
        for metric in ("api_calls", "exports"):
            conn.execute(LIMITED, (metric,))
    for tenant in ("acme", "globex"):
        for _ in range(5):
            world.record(tenant, new_key())
        world.record(tenant, new_key(), metric="exports")
    world.record("acme", "teapot", metric="teapots")
    world.record("acme", "late", back="30 hours")
    world.record("acme", "order")
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 5, 'order')")
        conn.execute("SELECT metering.record_usage('acme', 'exports', 4, 'undated')")
        conn.execute(CORRECT, ("order", -2, "ticket-1"))
        conn.execute(CORRECT, ("order", 5000, "ticket-2"))
    world.settled(3 * 13 + 4 - 2)

    for options in ((), ("--since", "48h"), ("--since", "1m")):
        audit = world.cli.json("audit", "audit", *options)
        assert (audit["ok"], audit["units"]["different"]) == (True, 0), audit
        assert audit["units"]["open"] == audit["units"]["shared"] == 0
    audit = world.cli.json("audit", "audit")
    classes = [audit["verdicts"][name] for name in ("accepted", "review", "dead", "correction")]
    assert (classes, audit["registry"]["conflicts"]) == ([14, 2, 1, 1], 1)
    with world.ledger.connect() as conn:
        counted = conn.execute(
            "SELECT count(*) FROM (SELECT DISTINCT tenant_id, metric, window_start"
            " FROM ledger.balance) AS b"
        ).fetchone()
    assert counted is not None
    # The late one is in no balance, the conflict and the corrections are compared apart.
    assert audit["units"]["equal"] == counted[0] + 3


@pytest.mark.parametrize("more", [5, -2])
def test_a_level_with_another_total_is_found_though_all_of_the_ledger_and_stripe_agree(
    world: World, more: int
) -> None:
    world.pipeline.publishing = False
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    world.record_before("acme", new_key(), 7)
    in_ledger(world, 1)
    execute(world, f"UPDATE ledger.level SET total = total + {more}")
    world.pipeline.publishing = True
    world.settled(3 + more)

    audit = world.cli("audit")
    said = ("lost 0 · double 1", "lost 1 · double 0")[more < 0]
    assert (audit.code, audit.last) == (1, said), audit
    [line] = [line for line in audit.out.splitlines() if line.startswith("units: ")]
    assert line.startswith("units: acme api_calls 20")
    told = f"recorded 3 units in 1 event, the ledger has {3 + more} in 1 event: {more:+d} units"
    assert told in line
    assert "see `tailrace statement --tenant acme --metric api_calls --month 20" in line
    assert differences(world) == [("usage", "acme", "api_calls", "units", more)]
    assert differences(world, "--since", "2h") == [("usage", "acme", "api_calls", "units", more)]
    sealed = world.value(world.ledger, "SELECT count(*) FROM ledger.sealed_minute")
    assert sealed == 0, "a minute is sealed only when its units are proven"


def test_an_entry_with_another_amount_than_its_event_is_found(world: World) -> None:
    world.pipeline.publishing = False
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    world.record("acme", new_key(), metric="exports")
    in_ledger(world, 1, "meter_log")
    execute(
        world,
        "ALTER TABLE ledger.meter_log DISABLE TRIGGER erased_only",
        "UPDATE ledger.meter_log SET delta = delta + 4",
        "UPDATE ledger.uncovered SET delta = delta + 4",
        "ALTER TABLE ledger.meter_log ENABLE TRIGGER erased_only",
    )
    world.pipeline.publishing = True
    world.settled(7)
    assert world.cli("audit").last == "lost 0 · double 1"
    assert differences(world) == [("usage", "acme", "exports", "units", 4)]


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("tenant_id = 'globex'", ("globex", "api_calls")),
        ("metric = 'exports'", ("acme", "exports")),
    ],
)
def test_usage_counted_to_somebody_or_something_else_is_found_on_both_sides(
    world: World, change: str, to: tuple[str, str]
) -> None:
    world.pipeline.publishing = False
    world.record("acme", new_key())
    in_ledger(world, 1)
    execute(world, f"UPDATE ledger.level SET {change}")
    audit = world.cli("audit", "--no-stripe")
    assert (audit.code, audit.last) == (1, "lost 1 · double 1"), audit
    short, over = ("usage", "acme", "api_calls", "short", -3), ("usage", *to, "over", 3)
    assert sorted(differences(world)) == sorted([short, over])


def test_usage_counted_in_another_window_is_found_in_both(world: World) -> None:
    world.pipeline.publishing = False
    world.record("acme", new_key())
    in_ledger(world, 1)
    shift = "interval '1 day'"
    execute(
        world,
        f"UPDATE ledger.level SET window_start = window_start - {shift},"
        f" window_end = window_end - {shift}",
    )
    assert [found[3:] for found in differences(world)] == [("over", 3), ("short", -3)]


def test_an_item_that_waits_with_another_amount_is_found_before_anybody_bills_it(
    world: World,
) -> None:
    world.record("acme", "late", back="30 hours")
    world.record("acme", "order")
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 5, 'order')")
        conn.execute(CORRECT, ("order", 5000, "ticket"))
    in_ledger(world, 3, "parked")
    execute(world, "UPDATE ledger.parked SET units = units + 1")
    assert differences(world) == [
        ("conflict", "acme", "api_calls", "units", 1),
        ("correction", "acme", "api_calls", "units", 1),
        ("usage", "acme", "api_calls", "units", 1),
    ]


def test_a_correction_with_another_amount_is_found(world: World) -> None:
    with world.outbox.connect() as conn:
        conn.execute(LIMITED, ("api_calls",))
    world.record("acme", "order")
    with world.outbox.connect() as conn:
        conn.execute(CORRECT, ("order", -2, "ticket"))
    query = "SELECT count(*) FROM ledger.meter_log WHERE kind = 'correction'"
    until("the correction", lambda: world.value(world.ledger, query) == 1)
    execute(
        world,
        "ALTER TABLE ledger.meter_log DISABLE TRIGGER erased_only",
        "UPDATE ledger.meter_log SET delta = -1 WHERE kind = 'correction'",
    )
    assert differences(world) == [("correction", "acme", "api_calls", "units", 1)]


def test_a_request_that_says_another_amount_than_its_entries_is_found(world: World) -> None:
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    world.record("acme", new_key())
    world.settled(3)
    execute(
        world,
        "ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen",
        "UPDATE ledger.meter_event SET units = 2",
    )
    audit = world.cli("audit", "--no-stripe")
    assert (audit.code, audit.last) == (1, "lost 1 · double 0"), audit
    [line] = [line for line in audit.out.splitlines() if line.startswith("request: ")]
    assert "cus_acme api_calls: 2 units, value 3, and its entries come to 3" in line


def test_an_approval_with_another_amount_than_its_item_is_found(world: World) -> None:
    assert world.cli("customers", "map", "acme", "cus_acme").code == 0
    world.record("acme", "late", back="30 hours")
    in_ledger(world, 1, "parked")
    item = world.value(world.ledger, "SELECT parked_id FROM ledger.parked")
    approved = world.cli("review", "approve", str(item), "--reason", "it was them", "--yes")
    assert approved.code == 0, approved
    world.settled(3)
    assert world.cli("audit").code == 0
    execute(
        world,
        "ALTER TABLE ledger.meter_log DISABLE TRIGGER erased_only",
        "UPDATE ledger.meter_log SET delta = 4, reason = 'x' WHERE kind = 'approval'",
    )
    kinds = {f["kind"] for f in world.cli.json("audit", "audit", "--no-stripe")["findings"]}
    assert "approval" in kinds


def test_what_a_restored_registry_dates_anew_is_no_difference(world: World) -> None:
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 3, 'undated')")
    world.record("acme", new_key())
    in_ledger(world, 2)
    execute(
        world,
        "UPDATE metering.usage_key SET received_at = received_at - interval '7 min',"
        " occurred_at = occurred_at - interval '7 min' WHERE event_key = 'undated'",
        in_outbox=True,
    )
    document = world.cli.json("audit", "audit", "--no-stripe")
    assert (document["ok"], document["registry"]["recorded_again"]) == (True, 1), document
    assert document["units"]["different"] == 0


def test_what_is_lost_or_a_phantom_is_told_with_its_units_and_counted_once(world: World) -> None:
    world.pipeline.invent.add("twice")
    world.record("acme", "twice")
    audit = world.cli("audit", "--no-stripe")
    assert (audit.code, audit.last) == (1, "lost 0 · double 1"), audit
    assert "recorded 3 units in 1 event, the ledger has 6 in 2 events: +3 units" in audit.out


def test_windows_that_another_source_has_usage_in_are_not_judged_by_this_registry(
    world: World,
) -> None:
    world.pipeline.publishing = False
    world.record("acme", new_key())
    world.record("globex", new_key())
    in_ledger(world, 2)
    execute(
        world,
        "INSERT INTO ledger.source (source, system_identifier, timeline) VALUES ('shop', '1', 1)",
        "INSERT INTO ledger.cell SELECT 'shop', minute, verdict_class, log_id, partition,"
        " birth_offset, 1, 1, now() FROM ledger.cell WHERE verdict_class = 'accepted' LIMIT 1",
        "UPDATE ledger.level SET count = count + 1, digest = digest + 1, total = total + 9"
        " WHERE tenant_id = 'acme'",
    )
    document = world.cli.json("audit", "audit", "--no-stripe")
    assert document["ok"], document
    assert (document["units"]["equal"], document["units"]["shared"]) == (1, 1)
    execute(world, "UPDATE ledger.level SET total = total + 1 WHERE tenant_id = 'globex'")
    assert differences(world) == [("usage", "globex", "api_calls", "units", 1)]
