"""Reports that name what a restored ledger forgot: kept, listed, joined before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.queries import load_queries
from streams.adapters.ledger_pool import LedgerRefusedError
from streams.core.lane import Claim
from tests.integration.ledger.test_rejections import note, recorded, report, states
from tests.integration.ledger.world import World, values

pytestmark = pytest.mark.postgres

FORGET = """
SET session_replication_role = replica;
UPDATE ledger.lane SET claimed_by = NULL, claimed_until = NULL, attempt_id = NULL;
DELETE FROM ledger.attempt; DELETE FROM ledger.meter_event_entry; DELETE FROM ledger.meter_event;
SET session_replication_role = origin;
SELECT ledger.place_entries(array_agg(entry_id)) FROM ledger.meter_log;
"""


async def forgotten(world: World) -> Claim:
    """A request that Stripe confirmed, in a ledger restored to just before it was frozen."""
    (claim,) = await recorded(world, 4)
    world.admin.execute(FORGET)
    return claim


def listed(world: World) -> list[Any]:
    text = load_queries("ledger", "queries_rejections.sql")["unknown_requests"].statement
    return [row[1] for row in world.admin.execute(text, {"limit": 100}).fetchall()]


async def rejected(world: World) -> Claim:
    """The same, and a report names it before the ledger knows it again."""
    claim = await forgotten(world)
    assert (await note(world, report(world, 1, claim.idempotency_key))).taken_back == 0
    return claim


async def test_what_the_ledger_forgot_stays_listed_until_it_is_known(world: World) -> None:
    claim = await rejected(world)
    await note(world, report(world, 2, "somebody-else-7", "m1:other.g1"))

    assert listed(world) == [claim.idempotency_key, "m1:other.g1"] or listed(world) == [
        "m1:other.g1", claim.idempotency_key,
    ]  # fmt: skip
    await world.claim()
    assert listed(world) == ["m1:other.g1"]


async def test_a_spent_identifier_is_never_sent_and_stripes_sums_decide(world: World) -> None:
    claim = await rejected(world)

    assert await world.claim() == []

    assert states(world) == [("dead", "ambiguous", True)]
    assert world.rows("SELECT identifier FROM ledger.meter_event") == [(claim.identifier,)]
    assert world.rows("SELECT * FROM ledger.attempt") == []
    assert world.balance("ambiguous") == 4
    assert world.rows("SELECT customer, event_name, settled_at FROM ledger.doubt") == [
        ("cus_1", "jobs", None)
    ]
    ((reason, state, detail),) = world.rows("SELECT reason, state, detail FROM ledger.parked")
    assert (reason, state) == ("ambiguous", "open")
    assert [one["event_id"] for one in detail["rejections"]] == ["evt_1"]
    assert [one["delta"] for one in detail["entries"]] == [4]
    # Nothing that is told again makes it plain: attempts that nobody remembers may count.
    assert await world.ledger.rejections.judge_again() == 0
    await note(world, report(world, 2, claim.idempotency_key), "sweep")
    assert states(world) == [("dead", "ambiguous", True)]


async def test_others_of_its_lane_go_on(world: World) -> None:
    await rejected(world)
    await world.tell(events=(world.event("next", 5, back=3),))

    assert values(await world.drain()) == [5]
    assert states(world) == [("dead", "ambiguous", True), ("recorded", None, False)]


async def test_without_a_report_it_is_sent(world: World) -> None:
    claim = await forgotten(world)
    (again,) = await world.claim()
    assert again.identifier == claim.identifier


async def test_a_report_of_an_attempt_that_the_ledger_lacks_leaves_doubt(world: World) -> None:
    """The backup has the request, and not all attempts at it."""
    (claim,) = await recorded(world, 4)

    await note(world, report(world, 1, f"{claim.identifier}.g2"))

    assert states(world) == [("dead", "ambiguous", True)]
    assert await world.ledger.rejections.judge_again() == 0


PLANTS = [
    ("freeze_v1", "NOT ledger.take_back_spent_v1(made)", "true"),
    ("freeze_v1", "x.identifier = r.identifier", "x.identifier = r.payload_hash"),
    ("take_back_spent_v1", "'ambiguous'", "'refused'"),
    ("take_back_spent_v1", "SET meter_event_id = m.meter_event_id", "SET meter_event_id = NULL"),
]


@pytest.mark.parametrize(("function", "rule", "plant"), [("", "", ""), *PLANTS])
async def test_a_rule_taken_out_is_noticed(
    world: World, function: str, rule: str, plant: str
) -> None:
    await rejected(world)
    if function:
        world.plant(function, rule, plant)
    try:
        sent = values(await world.drain())
    except LedgerRefusedError:
        sent = [0]
    seen = (sent, world.balance("ambiguous"), listed(world))
    assert (seen == ([], 4, [])) == (not function)
