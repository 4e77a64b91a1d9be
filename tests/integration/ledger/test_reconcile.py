"""What settling a cell does in the ledger, and what it refuses to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.ledger.world import LOG, World

pytestmark = pytest.mark.postgres


async def in_doubt(world: World, *names: str) -> dict[str, Any]:
    """Events whose requests are in doubt for good; their cell as the ledger shows it."""
    await world.map()
    await world.tell(events=tuple(world.event(name, 4) for name in names))
    while claims := await world.claim():
        for claim in claims:
            await world.settle(claim, "dead", dead="ambiguous", executed=True)
    return cell(world)


def cell(world: World) -> dict[str, Any]:
    (row,) = world.rows("SELECT to_json(c) FROM ledger.cells_v1(0, 1::bigint << 60, NULL, NULL) c")
    found: dict[str, Any] = row[0]
    return found


def settle(world: World, of: dict[str, Any], **changes: Any) -> str:
    ids = [event for event, _ in of["doubtful"]]
    told = {
        "customer": of["customer"], "event_name": of["event_name"], "start_us": of["start_us"],
        "end_us": of["end_us"], "recorded": of["recorded"], "doubtful": ids,
        "waiting_entries": of["waiting_entries"], "present": [], "absent": ids,
        "adopted_units": 0, "net_units": 4 * len(ids), "evidence": {"stripe": "0"},
        "net_request": {
            "value": str(4 * len(ids)), "timestamp_s": of["start_us"] // 1_000_000 + 1,
            "identifier": "m1:net", "payload_hash": "00",
        },
    } | changes  # fmt: skip
    text = "SELECT ledger.settle_cell_v1(%s::json, 'it stood still', 'ann')"
    return str(world.value(text, json.dumps(told)))


def close_the_invoice(world: World) -> None:
    """Waits until the invoice of everything so far is closed."""
    world.admin.execute("ALTER TABLE ledger.customer DISABLE TRIGGER append_only")
    world.admin.execute("ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen")
    world.admin.execute(
        "UPDATE ledger.customer SET anchor = now() - interval '1 minute',"
        " billing_interval = 'day', grace = interval '0'"
    )
    world.admin.execute("UPDATE ledger.meter_event SET deadline_at = now() - interval '1 minute'")


async def test_absent_requests_are_superseded_by_one_of_their_entries(world: World) -> None:
    of = await in_doubt(world, "a", "b")
    assert world.balance("ambiguous") == 8
    assert settle(world, of) == "settled"
    assert (world.balance("ambiguous"), world.balance("pending")) == (0, 8)
    claim = await world.only_claim()
    assert (claim.value, claim.identifier) == ("8", "m1:net")
    await world.settle(claim)
    assert world.balance("settled") == 8
    (trail,) = world.rows("SELECT actor, detail FROM ledger.audit_log WHERE action = 'reconcile'")
    assert trail[0] == "ann"
    assert trail[1]["evidence"] == {"stripe": "0"}


async def test_the_same_settlement_again_finds_that_the_cell_moved(world: World) -> None:
    of = await in_doubt(world, "a", "b")
    assert settle(world, of) == "settled"
    again = {"net_request": {"value": "8", "timestamp_s": 1, "identifier": "m1:x",
                             "payload_hash": "00"}}  # fmt: skip
    assert settle(world, of, **again) == "moved"
    assert world.value("SELECT count(*) FROM ledger.meter_event WHERE state = 'pending'") == 1


async def test_a_net_request_that_was_sent_without_an_answer_goes_out_as_the_same(
    world: World,
) -> None:
    """Whoever dies between sending and settling leaves a repetition that Stripe can recognise."""
    assert settle(world, await in_doubt(world, "a", "b")) == "settled"
    first = await world.only_claim()
    assert settle(world, cell(world)) == "moved", "while it may be on its way nothing is proven"
    world.expire_leases()

    again = await world.only_claim()

    assert (again.identifier, again.idempotency_key) == (first.identifier, first.idempotency_key)
    assert again.possibly_executed
    assert settle(world, cell(world)) == "moved"
    await world.settle(again)
    assert world.balance("settled") == 8
    assert cell(world)["recorded"] == 8


async def test_a_net_request_under_a_spent_identifier_is_not_sent(world: World) -> None:
    """A report names it already: whoever sent it, nobody here remembers."""
    of = await in_doubt(world, "a", "b")
    world.admin.execute(
        "INSERT INTO ledger.error_report (event_id, event_type, error_count, unnamed, body,"
        " noted_by) VALUES ('evt_1', 'report', 1, 0, '{}', 'sweep')"
    )
    world.admin.execute(
        "INSERT INTO ledger.rejection (event_id, idempotency_key, code, identifier, message)"
        " VALUES ('evt_1', 'm1:net.g1', 'archived_meter', 'm1:net', 'the meter is archived')"
    )

    assert settle(world, of) == "settled"

    assert await world.claim() == []
    assert world.balance("ambiguous") == 8
    assert [row[0] for row in world.rows("SELECT reason FROM ledger.parked WHERE state = 'open'")
            ] == ["ambiguous"]  # fmt: skip
    assert world.value("SELECT count(*) FROM ledger.doubt WHERE settled_at IS NULL") == 1


async def test_a_request_in_flight_makes_it_another_cell(world: World) -> None:
    of = await in_doubt(world, "a")
    await world.tell(events=(world.event("b", 4),))
    await world.only_claim()
    assert settle(world, of) == "moved"


async def test_what_is_absent_and_too_late_for_its_invoice_waits_as_carry(world: World) -> None:
    of = await in_doubt(world, "a", "b")
    close_the_invoice(world)
    assert settle(world, of) == "carried"
    assert (world.balance("ambiguous"), world.balance("held")) == (0, 8)
    assert await world.claim() == []


async def test_what_takes_back_is_told_apart_in_an_adopted_cell(world: World) -> None:
    """The lost ledger may have sent the first of two that cancel each other."""
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    world.value("SELECT ledger.note_went_back_v1(%s::uuid, 0, 90, 80, '{}')", LOG)
    world.value("SELECT ledger.adopt_v1('restored', 'ann')")
    await world.tell(
        events=(world.event("b", 2),),
        corrections=(world.correction("c", -6, world.series(metric="jobs")),),
    )
    of = cell(world)
    assert (of["waiting"], of["waiting_negative"]) == (0, -6)
    assert of["reasons"] == ["ledger_adopted 1"]


async def test_an_adopted_difference_stays_adopted_while_it_grows_smaller(world: World) -> None:
    def noted(remembered: int, held: int) -> bool:
        text = "SELECT ledger.note_went_back_v1(%s::uuid, 0, %s, %s, '{}')"
        return bool(world.value(text, LOG, remembered, held))

    assert not noted(90, 80)
    world.value("SELECT ledger.adopt_v1('restored', 'ann')")
    assert noted(90, 80)
    assert noted(90, 85), "it was told some of it again"
    assert noted(88, 85), "by a worker that remembers less"
    assert not noted(90, 79), "it went back once more"
    assert not noted(91, 80)
    assert world.value("SELECT count(*) FROM ledger.went_back WHERE adoption_id IS NULL") == 2


async def test_settling_needs_a_reason(world: World) -> None:
    with pytest.raises(Exception, match="reason"):
        world.value("SELECT ledger.settle_cell_v1('{}', ' ', 'ann')")


async def test_a_late_answer_to_a_superseded_request_is_a_finding(world: World) -> None:
    """It was sent before its lease ended, and says so a day later: a person compares."""
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()
    world.expire_leases()
    second = await world.only_claim()
    await world.settle(second, "dead", dead="ambiguous", executed=True)
    of = cell(world)
    assert settle(world, of) == "settled"
    await world.settle(claim)
    assert world.value("SELECT kind FROM ledger.finding") == "superseded_recorded"


async def reported(world: World) -> dict[str, Any]:
    """Two confirmed requests in a cell of which a report counts one that it does not name."""
    await world.map()
    await world.tell(events=tuple(world.event(name, 4, back=120) for name in "ab"))
    await world.drain()
    world.admin.execute(
        "INSERT INTO ledger.error_report (event_id, event_type, error_count, unnamed, body,"
        " noted_by) VALUES ('evt_1', 'report', 1, 1, '{}', 'sweep')"
    )
    world.admin.execute(
        "INSERT INTO ledger.doubt (customer, event_name, window_start, window_end, reason, report)"
        " SELECT DISTINCT customer, event_name, window_start, window_end, 'report evt_1', 'evt_1'"
        " FROM ledger.meter_event"
    )
    return cell(world)


def take_back(world: World, of: dict[str, Any], *requests: int) -> str:
    told = {name: of[name] for name in ("customer", "event_name", "start_us", "end_us", "recorded")}
    told |= {"requests": requests, "units": 4, "evidence": {"stripe": "4"}}
    text = "SELECT ledger.take_back_unnamed_v1(%s::json, 'it stood still', 'ann')"
    return str(world.value(text, json.dumps(told)))


async def test_what_nobody_named_is_taken_back_of_the_cell_that_was_reported(world: World) -> None:
    of = await reported(world)
    first = of["reported"][0][0]
    assert take_back(world, of, first, 999) == "moved", "that one is not of this cell"
    assert take_back(world, of, first) == "taken_back"
    assert (world.balance("settled"), world.balance("dead")) == (4, 4)


async def test_nothing_unnamed_is_taken_back_once_the_ledger_went_back(world: World) -> None:
    """It would settle the doubts of the adoption as well, and free what waits for its sums."""
    of = await reported(world)
    assert world.value("SELECT ledger.adopt_v1('restored', 'ann', true)") == 1
    await world.tell(events=(world.event("c", 2, back=120),))
    assert take_back(world, cell(world), of["reported"][0][0]) == "moved"
    assert world.balance("dead") == 0
