"""An adopted cell of which Stripe has a part: what it lacks is told apart from what it has."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from streams.core.billing import CarryPass
from tests.integration.ledger.test_carry import carry, carry_entry, entries, let_deadline_pass
from tests.integration.ledger.test_reconcile import cell, close_the_invoice, in_doubt, settle
from tests.integration.ledger.world import MINUTE_US, World, values

pytestmark = pytest.mark.postgres

BACK = 120
"""An hour that is over, in a period that ended half an hour ago."""


async def adopted(world: World, *units: int) -> dict[str, Any]:
    """A restored ledger that owes so much of one hour; its cell. The invoice is open yet."""
    end_us = world.now_us // MINUTE_US * MINUTE_US - 30 * MINUTE_US
    await world.map(anchor_us=end_us, billing_interval="month", grace_us=60 * MINUTE_US)
    told = tuple(world.event(f"e{n}", each, back=BACK) for n, each in enumerate(units))
    await world.tell(events=told)
    assert world.value("SELECT ledger.adopt_v1('restored', 'ann', true)") == 1
    assert await world.claim() == [], "what the lost ledger may have sent waits"
    let_adoption_pass(world)
    return cell(world)


def let_adoption_pass(world: World) -> None:
    """What waiting until the lost ledger can have sent nothing any more would do."""
    world.admin.execute("ALTER TABLE ledger.adoption DISABLE TRIGGER USER")
    world.admin.execute(
        "UPDATE ledger.adoption SET adopted_at = adopted_at - interval '1 hour',"
        " until_at = until_at - interval '1 hour', quiet_from = quiet_from - interval '1 hour'"
    )
    world.admin.execute("ALTER TABLE ledger.adoption ENABLE TRIGGER USER")


def settle_part(world: World, of: dict[str, Any], there: int, net: int) -> str:
    def request(units: int, name: str) -> dict[str, Any]:
        return {
            "value": str(units), "timestamp_s": of["start_us"] // 1_000_000 + 1,
            "identifier": f"m1:{name}:{units}", "payload_hash": "00",
        }  # fmt: skip

    return settle(
        world, of, adopted_units=there, net_units=net,
        adopted_request=request(there, "adopted"), net_request=request(net, "net"),
    )  # fmt: skip


def overdue(world: World) -> list[tuple[int, int]]:
    return world.rows("SELECT entry_id, delta FROM ledger.overdue ORDER BY entry_id")


async def test_what_is_missing_of_a_closed_invoice_is_for_a_person_and_billed_once(
    world: World,
) -> None:
    of = await adopted(world, 4, 4)
    let_deadline_pass(world)
    first, last = of["waiting_entries"]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="before the ledger went"):
        carry_entry(world, last)

    assert settle_part(world, of, 3, 5) == "carried"

    assert entries(world) == [("event", 4), ("event", 4), ("adoption", -1), ("adoption", 1)]
    assert [world.balance(state) for state in ("settled", "held", "pending")] == [3, 5, 0]
    assert [delta for _, delta in overdue(world)] == [4, 1], "the latest is what it lacks"
    assert await world.drain() == [], "nothing is sent for the closed period"
    assert (await world.ledger.audit.misplaced()).entries == 0
    assert await carry(world) == CarryPass(0, 2, 0)

    for entry, _ in overdue(world):
        carry_entry(world, entry)
    sent = await world.drain()
    assert sorted(values(sent)) == [1, 4]
    assert {claim.timestamp_s * 1_000_000 >= world.now_us - MINUTE_US for claim in sent} == {True}
    assert world.balance("settled") == 8
    assert sum(row["recorded"] for (row,) in world.rows(
        "SELECT to_json(c) FROM ledger.cells_v1(0, 1::bigint << 60, NULL, NULL) c")
    ) == 8, "3 were there, 5 are in the open period"  # fmt: skip
    assert settle_part(world, of, 3, 5) == "moved"
    assert first not in dict(overdue(world))


async def test_what_is_missing_of_a_closed_invoice_may_be_written_off(world: World) -> None:
    of = await adopted(world, 4)
    let_deadline_pass(world)
    assert settle_part(world, of, 3, 1) == "carried"
    ((entry, units),) = overdue(world)

    carry_entry(world, entry, elsewhere="nowhere")

    assert units == 1
    assert overdue(world) == []
    assert await world.drain() == []
    assert (world.balance("settled"), world.balance("decided")) == (3, -1)


async def test_it_says_who_told_it_apart_why_and_of_what(world: World) -> None:
    of = await adopted(world, 4)
    let_deadline_pass(world)
    settle_part(world, of, 3, 1)
    (entry,) = of["waiting_entries"]
    assert world.rows(
        "SELECT a.delta, a.reference, a.actor, a.reason, a.target_event_id = e.event_id,"
        " a.occurred_at = e.occurred_at, a.window_start = e.window_start FROM ledger.meter_log a"
        " JOIN ledger.meter_log e ON e.entry_id = %s WHERE a.kind = 'adoption' ORDER BY 1",
        entry,
    ) == [
        (-1, f"out of entry {entry}", "ann", "it stood still", True, True, True),
        (1, f"in for entry {entry}", "ann", "it stood still", True, True, True),
    ]
    ((detail,),) = world.rows("SELECT detail FROM ledger.audit_log WHERE action = 'reconcile'")
    assert (detail["carried"], detail["adopted_units"], detail["net_units"]) == (True, 3, 1)
    assert detail["missing"] == [entry for entry, _ in overdue(world)]
    assert detail["net_request"] is None


async def test_an_invoice_that_closes_on_the_missing_part_leaves_what_is_there_alone(
    world: World,
) -> None:
    """The net request covers what it sends and nothing else, so that is all that comes back."""
    of = await adopted(world, 4, 4)
    assert settle_part(world, of, 3, 5) == "settled"
    assert (world.balance("settled"), world.balance("pending")) == (3, 5)
    let_deadline_pass(world)

    await carry(world)

    assert sum(delta for _, delta in overdue(world)) == 5
    assert world.balance("settled") == 3


async def test_a_request_in_doubt_is_told_apart_by_its_entries(world: World) -> None:
    """The backup holds it as under way; the lost ledger sent it, or a part of its cell."""
    end_us = world.now_us // MINUTE_US * MINUTE_US - 30 * MINUTE_US
    await world.map(anchor_us=end_us, billing_interval="month", grace_us=60 * MINUTE_US)
    await world.tell(events=tuple(world.event(name, 4, back=BACK) for name in "ab"))
    await world.only_claim()
    assert world.value("SELECT ledger.adopt_v1('restored', 'ann', true)") == 1
    of = cell(world)
    assert (len(of["doubtful"]), of["waiting"]) == (1, 4)
    let_deadline_pass(world)

    assert settle_part(world, of, 5, 3) == "carried"

    assert (world.balance("settled"), world.balance("held"), world.balance("ambiguous")) == (
        5,
        3,
        0,
    )
    assert [delta for _, delta in overdue(world)] == [3]
    assert world.value(
        "SELECT superseded_by IS NOT NULL FROM ledger.meter_event WHERE state = 'superseded'"
    )


@pytest.mark.parametrize(
    ("owed", "there", "net", "present", "missing"),
    [
        ([5, 3], 5, 3, [5], [3]),
        ([5, 3], 8, 0, [5, 3], []),
        ([5, 3], 3, 5, [5, -2], [3, 2]),
        ([10, -4], 10, -4, [10], [-4]),
        ([10, -4], 8, -2, [10, -4, 2], [-2]),
        ([10, -4], 4, 2, [10, -4, -2], [2]),
        ([10, -4], -4, 10, [-4], [10]),
        ([10, -1], 4, 5, [10, -1, -5], [5]),
        ([10, -4, -6], 4, -4, [10, -4, -6, 4], [-4]),
    ],
)
async def test_what_stripe_lacks_is_the_latest_of_its_sign(
    world: World, owed: list[int], there: int, net: int, present: list[int], missing: list[int]
) -> None:
    of = await adopted(world, *owed)
    let_deadline_pass(world)

    outcome = settle_part(world, of, there, net)

    assert outcome == ("carried" if net else "settled")
    assert world.rows(
        "SELECT e.delta FROM ledger.meter_event_entry x JOIN ledger.meter_log e USING (entry_id)"
        " JOIN ledger.meter_event m USING (meter_event_id)"
        " WHERE x.live AND m.state = 'recorded' AND m.units = %s ORDER BY e.entry_id",
        there,
    ) == [(units,) for units in present]
    assert [delta for _, delta in overdue(world)] == missing


async def test_sums_that_the_entries_do_not_hold_are_refused(world: World) -> None:
    of = await adopted(world, 4, 4)
    for there, net in ((3, 6), (8, -1), (2, 5)):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="adopted_units"):
            settle_part(world, of, there, net)
    assert entries(world) == [("event", 4), ("event", 4)]


async def test_what_was_told_apart_is_told_apart_again_after_another_restore(world: World) -> None:
    of = await adopted(world, 4)
    assert settle_part(world, of, 3, 1) == "settled"
    world.admin.execute("ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen")
    world.admin.execute(
        "UPDATE ledger.meter_event SET state = 'dead', dead_kind = 'refused'"
        " WHERE state = 'recorded'"
    )
    world.admin.execute("ALTER TABLE ledger.meter_event ENABLE TRIGGER frozen")
    assert world.value("SELECT ledger.adopt_v1('restored again', 'ann', true)") == 2

    assert settle_part(world, cell(world), 2, 2) == "settled"

    assert [units for _, units in entries(world)] == [4, -1, 1, -1, 1]
    assert (world.balance("settled"), world.balance("pending")) == (2, 2)


async def test_a_cell_says_when_the_first_invoice_of_what_it_owes_closes(world: World) -> None:
    of = await adopted(world, 4)
    deadline_us = world.value("SELECT ledger.us(deadline_at) FROM ledger.uncovered")
    assert of["deadline_us"] == deadline_us
    settle_part(world, of, 4, 0)
    assert cell(world)["deadline_us"] is None, "nothing is owed any more"


async def test_a_cell_with_a_lost_answer_says_when_its_invoice_closes(world: World) -> None:
    of = await in_doubt(world, "a")
    assert of["deadline_us"] is None, "no cycle is known"
    close_the_invoice(world)
    closed_us = world.value("SELECT ledger.us(deadline_at) FROM ledger.meter_event")
    assert cell(world)["deadline_us"] == closed_us
