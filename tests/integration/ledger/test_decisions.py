from __future__ import annotations

from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from tests.integration.ledger.world import LOG, World, uuid_of, values

pytestmark = pytest.mark.postgres


def decide(world: World, call: str, *parameters: Any) -> Any:
    """One call by somebody of finance."""
    with world.database.connect(world.database.login("ledger_finance")) as person:
        row = person.execute(f"SELECT ledger.{call}".encode(), parameters).fetchone()
        return row[0] if row else None


async def park(world: World, name: str | None = "p", **changes: Any) -> int:
    await world.tell(parked=(world.parked(name, **changes),))
    return int(world.value("SELECT max(parked_id) FROM ledger.parked"))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("late", "approval"), ("early", "approval"), ("correction_limit", "correction")],
)
async def test_an_approved_item_is_billed_in_its_own_window_once(
    world: World, reason: str, kind: str
) -> None:
    await world.map()
    item = await park(world, reason=reason)

    decide(world, "approve(%s, 'the customer confirmed it')", item)

    assert world.rows(
        "SELECT kind, delta, event_id::text, actor, reason FROM ledger.meter_log"
    ) == [(kind, 4, uuid_of("p"), "login_ledger_finance", "the customer confirmed it")]
    assert world.rows("SELECT state, decided_by FROM ledger.parked") == [
        ("approved", "login_ledger_finance")
    ]
    assert world.balance("decided") == 4
    assert values(await world.drain()) == [4]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="approved already"):
        decide(world, "approve(%s, 'again')", item)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="approved already"):
        decide(world, "reject(%s, 'again')", item)


async def test_a_replay_neither_repeats_nor_undoes_a_decision(world: World) -> None:
    item = await park(world)
    decide(world, "approve(%s, 'yes')", item)

    again = await park(world)

    assert again == item
    assert world.rows("SELECT state FROM ledger.parked") == [("approved",)]
    assert world.balance("decided") == 4


async def test_an_identity_is_approved_once_even_under_two_reasons(world: World) -> None:
    decide(world, "approve(%s, 'yes')", await park(world, reason="late"))
    other = await park(world, reason="early")

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is an entry already"):
        decide(world, "approve(%s, 'yes')", other)


async def test_a_rejected_item_is_never_billed(world: World) -> None:
    decide(world, "reject(%s, 'fraud')", await park(world))

    assert world.value("SELECT count(*) FROM ledger.meter_log") == 0
    assert world.rows("SELECT action, reason FROM ledger.decision") == [("reject", "fraud")]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"reason": "conflict"}, "conflicts with usage"),
        ({"reason": "beyond_horizon"}, "may have been counted"),
        ({"units": None}, "no amount and window"),
        ({"series": None}, "no amount and window"),
        ({"kind": "dead", "reason": "malformed"}, "no amount and window"),
    ],
)
async def test_what_cannot_be_approved_says_why(
    world: World, changes: dict[str, Any], rule: str
) -> None:
    item = await park(world, **changes)

    with pytest.raises(psycopg.Error, match=rule):
        decide(world, "approve(%s, 'yes')", item)

    assert world.rows("SELECT state FROM ledger.parked") == [("open",)]


async def test_beyond_the_horizon_needs_proof(world: World) -> None:
    item = await park(world, reason="beyond_horizon")

    decide(world, "approve(%s, 'yes', 'archive 2026-11-01 lacks it')", item)

    assert world.value("SELECT reference FROM ledger.meter_log") == "archive 2026-11-01 lacks it"


async def test_what_is_too_old_for_stripe_is_billed_by_two_corrections_instead(
    world: World,
) -> None:
    await world.map()
    series = world.series(back=36 * 24 * 60)
    await world.tell(levels=(world.level(series, 1, 4),))
    await world.ledger.cut_entries(10)
    await world.settle(await world.only_claim(), "dead", dead="refused")
    item = world.value("SELECT parked_id FROM ledger.parked")

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
        decide(world, "redrive(%s, 'the meter exists now')", item)
    assert "more than 34 days ago" in str(refused.value)
    assert refused.value.diag.message_hint == (
        "Correct it instead: its own window by its opposite, the open period by it."
    )

    call = "correct('acme', 'api_calls', ledger.at(%s), %s, %s, 'too old', NULL, %s)"
    for units, into in ((-4, "own"), (4, "carry")):
        decide(world, call, series.window_start_us, units, f"dead-{into}", into)
    assert values(await world.drain()) == [4]
    assert (world.balance("total + decided"), world.balance("settled")) == (4, 4)
    assert (world.balance("dead"), world.balance("pending"), world.balance("held")) == (0, 0, 0)
    assert world.rows("SELECT state, decided_by, why FROM ledger.parked") == [
        ("corrected", "login_ledger_finance", "correction dead-own: too old")
    ]


async def test_an_unknown_item_is_named(world: World) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="99 does not exist"):
        decide(world, "reject(99, 'x')")


async def test_a_redriven_meter_event_keeps_its_identifier(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    dead = await world.only_claim()
    await world.settle(dead, "dead", dead="refused")
    item = world.value("SELECT parked_id FROM ledger.parked")
    with pytest.raises(psycopg.Error, match="still owes to Stripe"):
        decide(world, "reject(%s, 'x')", item)

    decide(world, "redrive(%s, 'the meter exists now')", item)

    again = await world.only_claim()
    assert again.identifier == dead.identifier
    assert again.idempotency_key != dead.idempotency_key
    assert again.attempts_used == 0
    await world.settle(again, "dead", dead="refused")
    assert world.rows("SELECT state FROM ledger.parked") == [("open",)]
    decide(world, "redrive(%s, 'once more')", item)
    assert values(await world.drain()) == [4]
    assert world.balance("settled") == 4


async def test_what_stripe_may_have_is_not_redriven(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    await world.settle(await world.only_claim(), "dead", dead="exhausted", executed=True)
    world.admin.execute("ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen")
    world.admin.execute(
        "UPDATE ledger.meter_event SET first_attempt_at = now() - interval '23 hours'"
    )

    with pytest.raises(psycopg.Error, match="may be in Stripe's books"):
        decide(world, "redrive(%s, 'x')", world.value("SELECT parked_id FROM ledger.parked"))


async def test_a_record_is_not_redriven_here(world: World) -> None:
    with pytest.raises(psycopg.Error, match="no dead meter event"):
        decide(world, "redrive(%s, 'x')", await park(world))


CORRECT = "correct('acme', 'api_calls', ledger.at(%s), %s, %s, %s)"


async def test_finance_corrects_down_to_what_is_there_and_no_further(world: World) -> None:
    await world.map()
    series = world.series()
    at = series.window_start_us + 5
    await world.tell(levels=(world.level(series, 3, 30),))

    decide(world, CORRECT, at, -20, "ticket 1", "measured twice")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="negative") as refused:
        decide(world, CORRECT, at, -11, "ticket 2", "measured twice")

    assert refused.value.diag.message_hint == "At most -10 is possible."
    assert (world.balance("total"), world.balance("decided")) == (30, -20)
    assert values(await world.drain()) == [10]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="stands for another"):
        decide(world, CORRECT, at, -1, "ticket 1", "the same key again")


@pytest.mark.parametrize(
    ("metric", "key", "why", "rule"),
    [
        ("api_calls", "", "why", "a reason and a key"),
        ("api_calls", "key", " ", "a reason and a key"),
        ("unknown", "key", "why", "has no meter"),
    ],
)
async def test_a_correction_without_reason_key_or_meter_is_refused(
    world: World, metric: str, key: str, why: str, rule: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=rule):
        decide(world, "correct('acme', %s, now(), 1, %s, %s)", metric, key, why)


async def test_a_log_is_not_opened_without_a_reason(world: World) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="why"):
        decide(world, "open_log('t', %s, ' ')", LOG)


async def test_lifting_a_halt_that_is_not_there_says_so(world: World) -> None:
    assert decide(world, "lift_halt('ledger_went_back', 'x')") is False


async def test_a_held_series_goes_on_when_its_last_finding_is_cleared(world: World) -> None:
    await world.map()
    level = world.level(world.series(), 3, 30)
    await world.tell(levels=(level, world.level(world.series(back=6), 1, 7)))
    await world.tell(levels=(replace(level, total=31),))
    await world.tell(levels=(replace(level, birth_offset=8),))
    assert values(await world.drain()) == [7]
    one, two = (row[0] for row in world.rows("SELECT finding_id FROM ledger.finding ORDER BY 1"))

    assert decide(world, "clear_finding(%s, 'compared with the topic')", one) is True
    assert await world.drain() == []
    assert decide(world, "clear_finding(%s, 'compared with the topic')", two) is True

    assert values(await world.drain()) == [30]
    assert await world.ledger.audit.findings(5) == []
    assert decide(world, "clear_finding(%s, 'again')", one) is False
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        decide(world, "clear_finding(%s, ' ')", two)


async def test_a_paused_lane_is_resumed(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    lane = world.value("SELECT lane_id FROM ledger.lane")
    world.admin.execute("UPDATE ledger.lane SET paused = true, pause_reason = 'x'")
    assert await world.claim() == []

    assert decide(world, "resume_lane(%s, 'put right')", lane) is True
    assert decide(world, "resume_lane(%s, 'put right')", lane) is False

    assert values(await world.drain()) == [4]
