"""Meters that are wrong at Stripe: noted once, until a look does not find them again."""

from __future__ import annotations

from streams.core.live_meter import MeterFinding
from tests.integration.ledger.test_decisions import decide
from tests.integration.ledger.world import World

FINDINGS = "SELECT kind, subject, detail ->> 'rule', cleared_by FROM ledger.finding ORDER BY 1, 2"
LOGGED = (
    "SELECT action, subject, detail ->> 'why' FROM ledger.audit_log"
    " WHERE action LIKE 'meter%%' OR action = 'clear_finding' ORDER BY audit_id"
)


def wrong(event_name: str, rule: str = "formula is last, not sum") -> MeterFinding:
    return MeterFinding("formula", event_name, rule, "create another")


async def look(world: World, *found: MeterFinding) -> bool:
    """A look of any worker, to its end."""
    name = await world.ledger.catalogue.claim_meters(0.0)
    assert name is not None
    return await world.ledger.catalogue.note_meters(name, found)


async def test_what_a_look_finds_stands_until_one_does_not_find_it(world: World) -> None:
    login = "login_ledger_service"
    other = MeterFinding("archived", "jobs", "the meter is archived", "reactivate it")
    assert await look(world, wrong("exports"), wrong("exports"), other)
    assert await look(world, wrong("exports"), other)
    assert world.rows(FINDINGS) == [
        ("meter_archived", "jobs", "the meter is archived", None),
        ("meter_formula", "exports", "formula is last, not sum", None),
    ]
    assert await world.ledger.audit.findings(5) == [], "the books are as they must be"
    assert await look(world, wrong("exports", "formula is count, not sum"))
    assert world.rows(FINDINGS) == [
        ("meter_archived", "jobs", "the meter is archived", login),
        ("meter_formula", "exports", "formula is count, not sum", None),
    ]
    (number,) = (row[0] for row in world.rows(
        "SELECT finding_id FROM ledger.finding WHERE subject = 'exports'"
    ))  # fmt: skip
    assert decide(world, "clear_finding(%s, 'mended')", number) is True
    assert decide(world, "clear_finding(%s, 'mended')", number) is False
    assert await look(world, wrong("exports"))
    assert world.rows(FINDINGS)[1][3] is None, "it is wrong still, whoever said otherwise"
    assert await look(world)
    assert [row[3] for row in world.rows(FINDINGS)] == [login, login]
    logged = [(action, why) for action, _, why in world.rows(LOGGED)]
    assert logged == [
        ("meter_archived", None),
        ("meter_formula", None),
        ("meter_formula", None),
        ("clear_finding", "not so any more"),
        ("clear_finding", "mended"),
        ("meter_formula", None),
        ("clear_finding", "not so any more"),
    ]


async def test_one_worker_looks_for_all_and_an_older_look_changes_nothing(world: World) -> None:
    ours, others = world.ledger.catalogue, world.ledger.catalogue
    older = await ours.claim_meters(3600.0)
    assert older is not None
    assert await others.claim_meters(3600.0) is None
    newer = await others.claim_meters(0.0)
    assert newer is not None
    assert await others.note_meters(newer, [wrong("exports")])
    assert not await ours.note_meters(older, [])
    assert [row[3] for row in world.rows(FINDINGS)] == [None]
    world.plant("note_meters_v1", "ledger.us(l.claimed_at) = look", "look IS NOT NULL")
    assert await ours.note_meters(older, [])
    assert [row[3] for row in world.rows(FINDINGS)] != [None], "the rule is what keeps it open"
