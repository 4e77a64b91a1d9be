"""Corrections by people: what fits, who agrees, where it goes once the invoice is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from streams.core.lane import Evidence
from tests.integration.ledger.test_decisions import park
from tests.integration.ledger.world import DAY_US, EVENTWISE, MINUTE_US, World, values
from tests.support.postgres import lock_waiters
from tests.support.waiting import eventually

pytestmark = pytest.mark.postgres

CORRECT = "correct('acme', 'api_calls', ledger.at(%s), %s, %s, 'measured twice')"
PROPOSE = "propose_correction('acme', 'api_calls', ledger.at(%s), %s, %s, 'measured twice')"


def as_person(world: World, name: str, call: str, *parameters: Any) -> Any:
    """One call by a login of finance of this name."""
    world.admin.execute(
        f"DO $$ BEGIN IF to_regrole('{name}') IS NULL THEN CREATE ROLE {name} LOGIN; END IF; END $$"
        .encode()
    )  # fmt: skip
    world.admin.execute(f"GRANT ledger_finance TO {name}".encode())
    with world.database.connect(name) as person:
        row = person.execute(f"SELECT ledger.{call}".encode(), parameters).fetchone()
        return row[0] if row else None


async def closed(world: World, *, back_days: int = 3) -> int:
    """Start of a window of `acme` whose invoice closed long ago; the present one is open."""
    today_us = world.now_us // DAY_US * DAY_US
    await world.map(anchor_us=today_us, billing_interval="day", grace_us=3600 * 1_000_000)
    return today_us - back_days * DAY_US + 600 * MINUTE_US


async def old_item(world: World, start_us: int, name: str = "p", **changes: Any) -> int:
    series = world.series()
    old = type(series)("acme", "api_calls", 1, start_us, start_us + MINUTE_US, 0)
    return await park(world, name, series=old, occurred_at_us=start_us, **changes)


async def test_the_same_key_is_one_correction_however_often_it_is_said(world: World) -> None:
    await world.tell(levels=(world.level(world.series(), 3, 30),))
    at = world.series().window_start_us

    first = as_person(world, "ann", CORRECT, at, -20, "t1")
    again = as_person(world, "ben", CORRECT, at + 7, -20, "t1")

    assert again == first
    assert world.balance("decided") == -20
    assert world.rows("SELECT action, actor FROM ledger.decision") == [("correct", "ann")]


@pytest.mark.parametrize(("units", "back"), [(-19, 5), (-20, 6)])
async def test_a_key_with_another_content_is_refused(world: World, units: int, back: int) -> None:
    await world.tell(
        levels=(world.level(world.series(), 3, 30), world.level(world.series(back=6), 3, 30))
    )
    as_person(world, "ann", CORRECT, world.series().window_start_us, -20, "t1")

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="stands for another"):
        as_person(world, "ann", CORRECT, world.series(back=back).window_start_us, units, "t1")


async def test_above_the_limit_one_person_alone_books_nothing(world: World) -> None:
    at = world.series().window_start_us

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="alone"):
        as_person(world, "ann", CORRECT, at, 1001, "t1")

    as_person(world, "ann", CORRECT, at, 1000, "t2")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="alone"):
        as_person(world, "ben", CORRECT, at, 1, "t3")
    assert world.balance("decided") == 1000


async def test_a_proposal_is_booked_by_another_login_and_by_no_other_way(world: World) -> None:
    at = world.series().window_start_us
    number = as_person(world, "ann", PROPOSE, at, 5000, "t1")

    assert as_person(world, "ann", PROPOSE, at, 5000, "t1") == number
    assert world.balance("decided") == 0
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="your own"):
        as_person(world, "ann", "approve_proposal(%s, 'mine')", number)
    with pytest.raises(psycopg.errors.RestrictViolation):
        world.admin.execute("UPDATE ledger.proposal SET units = 1")
    with pytest.raises(psycopg.errors.CheckViolation):
        world.admin.execute(
            "UPDATE ledger.proposal SET state = 'approved', decided_by = proposed_by,"
            " entry_id = (SELECT max(entry_id) FROM ledger.meter_log)"
        )

    entry = as_person(world, "ben", "approve_proposal(%s, 'seen the invoice')", number)

    assert world.balance("decided") == 5000
    assert world.rows("SELECT state, decided_by, entry_id FROM ledger.proposal") == [
        ("approved", "ben", entry)
    ]
    assert world.rows("SELECT actor, detail ->> 'proposed_by' FROM ledger.decision") == [
        ("ben", "ann")
    ]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="approved already"):
        as_person(world, "ben", "approve_proposal(%s, 'again')", number)
    assert as_person(world, "ann", CORRECT, at, 5000, "t1") == entry
    # What two have agreed to is not counted against the next single one.
    as_person(world, "ann", CORRECT, at, 1000, "t2")


async def test_a_rejected_proposal_books_nothing_ever(world: World) -> None:
    at = world.series().window_start_us
    number = as_person(world, "ann", PROPOSE, at, 5000, "t1")

    as_person(world, "ann", "reject_proposal(%s, 'a typing error')", number)

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="rejected already"):
        as_person(world, "ben", "approve_proposal(%s, 'yes')", number)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="stands for proposal"):
        as_person(world, "ben", CORRECT, at, 5000, "t1")
    assert world.value("SELECT count(*) FROM ledger.meter_log") == 0


async def test_a_proposal_is_looked_at_afresh_when_it_is_approved(world: World) -> None:
    at = world.series().window_start_us
    await world.tell(levels=(world.level(world.series(), 3, 5000),))
    number = as_person(world, "ann", PROPOSE, at, -4500, "t1")
    as_person(world, "ben", CORRECT, at, -1000, "t2")

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="negative") as refused:
        as_person(world, "ben", "approve_proposal(%s, 'yes')", number)

    assert refused.value.diag.message_hint == "At most -4000 is possible."
    assert world.rows("SELECT state FROM ledger.proposal") == [("open",)]


async def test_whoever_approves_says_where_it_goes_once_its_invoice_has_closed(
    world: World,
) -> None:
    await world.map()
    at = world.series().window_start_us
    number = as_person(world, "ann", PROPOSE, at, 5000, "t1")
    world.admin.execute("ALTER TABLE ledger.customer DISABLE TRIGGER append_only")
    world.admin.execute(
        "UPDATE ledger.customer SET anchor = date_trunc('second', now()) - interval '1 minute',"
        " billing_interval = 'month', grace = interval '0'"
    )

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="reaches its own invoice no"):
        as_person(world, "ben", "approve_proposal(%s, 'yes')", number)
    as_person(world, "ben", "approve_proposal(%s, 'yes', 'carry')", number)

    assert world.rows("SELECT state, choice FROM ledger.proposal") == [("approved", None)]
    assert world.rows("SELECT detail ->> 'into' FROM ledger.decision") == [("carry",)]
    chosen = as_person(
        world, "ann", PROPOSE.replace("twice')", "twice', NULL, 'own')"), at, 5000, "t2"
    )
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="own was proposed"):
        as_person(world, "ben", "approve_proposal(%s, 'yes', 'carry')", chosen)


async def test_only_the_owner_sets_the_limit_and_a_metrics_own_wins(world: World) -> None:
    at = world.series().window_start_us
    limit = "SELECT ledger.set_correction_limit(%s, %s, 'agreed with finance')"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_person(world, "ann", "set_correction_limit(1, NULL, 'x')")

    world.admin.execute(limit, (10, None))
    world.admin.execute(limit, (2000, "api_calls"))

    as_person(world, "ann", CORRECT, at, 2000, "t1")
    jobs = CORRECT.replace("api_calls", "jobs")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="more than the 10"):
        as_person(world, "ann", jobs, at, 11, "t2")
    assert world.rows("SELECT count(*) FROM ledger.audit_log WHERE action LIKE 'set%%'") == [(2,)]


async def test_a_closed_invoice_is_asked_for_by_name_and_never_guessed(world: World) -> None:
    start_us = await closed(world)
    item = await old_item(world, start_us)

    for call, parameters in ((CORRECT, (start_us, 5, "t1")), ("approve(%s, 'yes')", (item,))):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="reaches its own") as asked:
            as_person(world, "ann", call, *parameters)
        assert "own" in (asked.value.diag.message_hint or "")
        assert "carry" in (asked.value.diag.message_hint or "")
    assert world.value("SELECT count(*) FROM ledger.meter_log") == 0


async def test_own_keeps_the_amount_in_its_window_and_sends_nothing(world: World) -> None:
    item = await old_item(world, await closed(world))

    as_person(world, "ann", "approve(%s, 'yes', NULL, 'own')", item)

    assert world.balance("held") == 4
    assert await world.drain() == []


async def test_carry_bills_the_amount_in_the_open_period(world: World) -> None:
    start_us = await closed(world)
    item = await old_item(world, start_us)
    as_person(world, "ann", "approve(%s, 'yes', NULL, 'carry')", item)
    carry = CORRECT.replace("'measured twice'", "'measured twice', NULL, 'carry'")
    entry = as_person(world, "ann", carry, start_us, 5, "t1")

    assert values(await world.drain()) == [9]
    opened_us = world.value("SELECT ledger.us(window_start) FROM ledger.meter_log LIMIT 1")
    assert opened_us >= world.now_us // MINUTE_US * MINUTE_US
    assert world.rows(
        "SELECT detail ->> 'into', (detail ->> 'window_start_us')::bigint FROM ledger.decision"
        " WHERE entry_id = %s",
        entry,
    ) == [("carry", start_us)]
    # Said again when the choice is no more asked, it is the same correction.
    assert as_person(world, "ben", carry, start_us, 5, "t1") == entry


async def test_an_event_wise_amount_is_carried_with_a_date_of_the_open_period(world: World) -> None:
    start_us = await closed(world)
    series = world.series(metric=EVENTWISE.metric)
    old = type(series)("acme", "jobs", 1, start_us, start_us + MINUTE_US, 0)
    item = await park(world, series=old, metric="jobs", occurred_at_us=start_us + 5)

    as_person(world, "ann", "approve(%s, 'yes', NULL, 'carry')", item)

    [claim] = await world.drain()
    assert claim.timestamp_s >= world.now_us // 1_000_000


async def test_what_is_open_is_not_carried(world: World) -> None:
    await world.map()
    item = await park(world)

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="still open"):
        as_person(world, "ann", "approve(%s, 'yes', NULL, 'carry')", item)


async def test_nothing_is_carried_to_another_customers_invoice(world: World) -> None:
    start_us = await closed(world)
    item = await old_item(world, start_us)
    world.admin.execute(
        "INSERT INTO ledger.customer (tenant_id, effective_from, customer, actor)"
        " VALUES ('acme', ledger.at(%s), 'cus_2', 'tests')",
        (start_us + DAY_US,),
    )

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cus_1 then and is to cus_2"):
        as_person(world, "ann", "approve(%s, 'yes', NULL, 'carry')", item)


async def test_usage_older_than_stripe_takes_is_asked_for_without_any_anchor(world: World) -> None:
    await world.map()
    start_us = world.now_us // DAY_US * DAY_US - 40 * DAY_US
    item = await old_item(world, start_us)

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="reaches its own invoice no"):
        as_person(world, "ann", "approve(%s, 'yes')", item)
    as_person(world, "ann", "approve(%s, 'yes', NULL, 'carry')", item)
    assert values(await world.drain()) == [4]


@pytest.mark.parametrize(
    ("anchor", "interval", "at", "start"),
    [
        ("2026-01-31 14:37:21", "month", "2026-02-10", "2026-01-31 14:37:21"),
        ("2026-01-31 14:37:21", "month", "2026-02-28 14:37:20.999999", "2026-01-31 14:37:21"),
        ("2026-01-31 14:37:21", "month", "2026-02-28 14:37:21", "2026-02-28 14:37:21"),
        ("2026-01-31 14:37:21", "month", "2026-03-31 14:37:20", "2026-02-28 14:37:21"),
        ("2024-02-29", "year", "2026-02-27", "2025-02-28"),
        ("2026-01-01", "week", "2025-12-31 23:59:59", "2025-12-25"),
    ],
)
async def test_a_period_starts_where_the_one_before_ended(
    world: World, anchor: str, interval: str, at: str, start: str
) -> None:
    asked = "ledger.period_start(%s::timestamptz, %s, %s::timestamptz)"
    found = world.value(f"SELECT {asked} = %s::timestamptz", anchor, interval, at, start)
    assert found is True
    assert world.value(
        "SELECT ledger.period_end(%s::timestamptz, %s, %s::timestamptz - interval '1 us')"
        " = %s::timestamptz",
        anchor, interval, start, start,
    ) is True  # fmt: skip


async def dead(world: World, **how: Any) -> int:
    """One dead meter event of 4 units; its item."""
    await world.tell(events=(world.event("a", 4),))
    await world.settle(await world.only_claim(), "dead", dead="refused", **how)
    return int(world.value("SELECT max(parked_id) FROM ledger.parked"))


def first_sent(world: World, hours_ago: int) -> None:
    """The dead request was sent so long ago."""
    world.admin.execute("ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen")
    world.admin.execute(
        "UPDATE ledger.meter_event SET first_attempt_at = now() - make_interval(hours => %s)",
        (hours_ago,),
    )
    world.admin.execute("ALTER TABLE ledger.meter_event ENABLE TRIGGER frozen")


@pytest.mark.parametrize("proof", [None, "somebody believes that the summary shows 0"])
async def test_doubt_is_sent_under_its_identifier_while_stripe_still_knows_it(
    world: World, proof: str | None
) -> None:
    await world.map()
    item = await dead(world, executed=True)
    before = world.value("SELECT identifier FROM ledger.meter_event")
    first_sent(world, 22)

    as_person(world, "ann", "redrive(%s, 'why', %s)", item, proof)

    again = await world.only_claim()
    assert (again.identifier, again.possibly_executed) == (before, True)
    await world.settle(again)
    assert world.balance("settled") == 4


async def test_a_collision_is_not_sent_again_where_its_duplicate_would_look_like_our_own(
    world: World,
) -> None:
    await world.map()
    item = await dead(
        world, executed=True, evidence=Evidence("Collision", 400, "duplicate_unexplained")
    )

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="books already"):
        as_person(world, "ann", "redrive(%s, 'why')", item)


async def test_doubt_about_what_would_be_another_request_needs_proof_at_once(world: World) -> None:
    await world.map()
    item = await dead(world, executed=True)
    world.admin.execute("ALTER TABLE ledger.customer DISABLE TRIGGER ALL")
    world.admin.execute("UPDATE ledger.customer SET customer = 'cus_other'")

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="books already"):
        as_person(world, "ann", "redrive(%s, 'why')", item)


async def test_doubt_of_a_ledger_that_went_back_is_not_sent_before_its_cell_was_compared(
    world: World,
) -> None:
    """The lost ledger merged it with what came later, and sent both under another identifier."""
    await world.map()
    await world.tell(levels=(world.level(world.series(), 1, 10),))
    await world.ledger.cut_entries(10)
    await world.settle(await world.only_claim(), "pending", delay_ms=3_600_000)
    assert world.value("SELECT ledger.adopt_v1('restored', 'ann', true)") == 1
    item = world.value("SELECT parked_id FROM ledger.parked WHERE reason = 'ambiguous'")

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="books already"):
        as_person(world, "ann", "redrive(%s, 'why')", item)
    # A proof of this identifier's absence says nothing of the other: the amount waits for the sums.
    as_person(world, "ann", "redrive(%s, 'why', 'its hour shows 0')", item)
    assert await world.claim() == []

    world.admin.execute("UPDATE ledger.doubt SET settled_at = now()")
    world.admin.execute("UPDATE ledger.lane SET next_due_at = now()")
    assert (await world.only_claim()).value == "10"


async def test_doubt_that_is_proven_away_is_sent_under_a_new_identifier(world: World) -> None:
    await world.map()
    item = await dead(world, executed=True)
    first = world.value("SELECT identifier FROM ledger.meter_event")
    first_sent(world, 23)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="books already"):
        as_person(world, "ann", "redrive(%s, 'why', ' ')", item)

    as_person(world, "ann", "redrive(%s, 'why', 'the summary of 10:00 shows 0')", item)

    again = await world.only_claim()
    assert again.identifier != first
    assert (again.attempts_used, again.possibly_executed) == (0, False)
    await world.settle(again)
    assert world.balance("settled") == 4
    assert world.rows("SELECT detail ->> 'proof' FROM ledger.decision") == [
        ("the summary of 10:00 shows 0",)
    ]


async def test_a_redrive_past_the_deadline_reaches_no_closed_invoice(world: World) -> None:
    await world.map()
    item = await dead(world)
    world.admin.execute("ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen")
    world.admin.execute("UPDATE ledger.meter_event SET deadline_at = now()")
    world.admin.execute("ALTER TABLE ledger.meter_event ENABLE TRIGGER frozen")

    as_person(world, "ann", "redrive(%s, 'why')", item)

    assert world.rows("SELECT state FROM ledger.meter_event ORDER BY meter_event_id")[0] == (
        "superseded",
    )


async def test_an_amount_that_is_an_entry_already_is_not_approved_as_another(world: World) -> None:
    item = await park(world, reason="carry")

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="another decision"):
        as_person(world, "ann", "approve(%s, 'yes')", item)


async def test_a_services_correction_keeps_its_key_and_target_when_it_is_approved(
    world: World,
) -> None:
    target = "00000000-0000-0000-0000-000000000007"
    record = f'{{"event_key": "svc-1", "target_event_id": "{target}"}}'.encode()
    await world.tell(levels=(world.level(world.series(), 3, 30),))
    item = await park(world, reason="correction_limit", record=record, units=-4)

    as_person(world, "ann", "approve(%s, 'yes')", item)

    assert world.rows(
        "SELECT kind, reference, target_event_id::text FROM ledger.meter_log WHERE delta < 0"
    ) == [("correction", "svc-1", target)]


async def test_a_services_correction_is_not_approved_below_zero(world: World) -> None:
    await world.tell(levels=(world.level(world.series(), 3, 30),))
    item = await park(world, reason="correction_limit", units=-31)

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="negative") as refused:
        as_person(world, "ann", "approve(%s, 'yes')", item)

    assert "At most -30 is possible" in (refused.value.diag.message_hint or "")
    assert world.rows("SELECT state FROM ledger.parked") == [("open",)]
    assert world.value("SELECT count(*) FROM ledger.decision") == 0


async def test_nobody_takes_the_key_by_which_another_correction_is_reversed(world: World) -> None:
    await world.tell(levels=(world.level(world.series(), 3, 30),))
    at = world.series().window_start_us
    as_person(world, "ann", CORRECT, at, -20, "t1")

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="correct reverse"):
        as_person(world, "ben", CORRECT, at, 5, "reversal of t1")

    as_person(world, "ann", CORRECT, at, 20, "reversal of t1")
    assert world.balance("total + decided") == 30
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="a key of its own"):
        as_person(world, "ann", CORRECT, at, 5, "t\x01")


async def test_a_large_correction_of_a_service_needs_two_logins(world: World) -> None:
    item = await park(world, reason="correction_limit", units=1001)

    for _ in range(2):
        assert as_person(world, "ann", "approve(%s, 'the meter was down')", item) is None
    assert world.balance("decided") == 0
    assert world.rows("SELECT action, actor FROM ledger.decision") == [("agree", "ann")]
    with pytest.raises(psycopg.errors.CheckViolation):
        world.admin.execute(
            "INSERT INTO ledger.decision (action, parked_id, actor, reason, detail)"
            " VALUES ('approve', %s, 'ann', 'x', '{\"agreed_by\": \"ann\"}')",
            (item,),
        )

    assert as_person(world, "ben", "approve(%s, 'seen the log')", item) is not None

    assert world.balance("decided") == 1001
    assert world.rows("SELECT action, actor, detail ->> 'agreed_by' FROM ledger.decision") == [
        ("agree", "ann", None),
        ("approve", "ben", "ann"),
    ]
    # What two have agreed to is not counted against the next single one.
    as_person(world, "ann", CORRECT, world.series().window_start_us, 1000, "t2")


async def test_many_small_approvals_of_one_person_are_one_large_one(world: World) -> None:
    for name, billed in (("p", True), ("q", False)):
        item = await park(world, name, reason="correction_limit", units=600)
        entry = as_person(world, "ann", "approve(%s, 'yes')", item)
        assert (entry is not None) is billed
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="alone"):
        as_person(world, "ben", CORRECT, world.series().window_start_us, 500, "t1")


async def test_two_corrections_never_both_fit_into_the_same_rest(world: World) -> None:
    await world.tell(levels=(world.level(world.series(), 3, 30),))
    at = world.series().window_start_us
    as_person(world, "ann", CORRECT, at, 1, "makes the login")

    with world.database.connect("ann", autocommit=False) as first:
        first.execute(f"SELECT ledger.{CORRECT}".encode(), (at, -20, "t1"))
        other = asyncio.create_task(
            asyncio.to_thread(as_person, world, "ben", CORRECT, at, -20, "t2")
        )
        await eventually("the second one waits", lambda: lock_waiters(world.admin) == 1)
        first.commit()

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="negative"):
        await other
    assert world.balance("total + decided") == 11


async def test_two_people_decide_an_item_once(world: World) -> None:
    item = await park(world)
    as_person(world, "ann", "correction_limit('api_calls')")

    with world.database.connect("ann", autocommit=False) as first:
        first.execute(b"SELECT ledger.approve(%s, 'yes')", (item,))
        other = asyncio.create_task(
            asyncio.to_thread(as_person, world, "ben", "reject(%s, 'no')", item)
        )
        await eventually("the second one waits", lambda: lock_waiters(world.admin) == 1)
        first.commit()

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="approved already"):
        await other
    assert world.rows("SELECT action FROM ledger.decision") == [("approve",)]
