"""Error reports in the ledger: noted once, taken back, redriven under another identifier."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from streams.adapters.ledger import LedgerRefusedError
from streams.core.lane import Claim
from streams.core.rejection import ERROR_REPORT, ErrorReport, Sample, UnreadableReport
from streams.ports import Concerned, Noted, NotedBy
from tests.integration.ledger.test_decisions import decide
from tests.integration.ledger.world import HOUR_US, World, values

pytestmark = pytest.mark.postgres
OF_JOBS = Concerned("jobs")


def report(
    world: World, number: int, *keys: str, unnamed: int = 0, back_us: int = 0
) -> ErrorReport:
    end_us = world.now_us - back_us + 60_000_000
    samples = tuple(Sample(key, "archived_meter", "The meter is archived.") for key in keys)
    return ErrorReport(
        f"evt_{number}", ERROR_REPORT, "mtr_1", end_us - 120_000_000, end_us,
        len(keys) + unnamed, unnamed, samples,
    )  # fmt: skip


async def note(
    world: World,
    told: ErrorReport | UnreadableReport,
    by: NotedBy = "webhook",
    concerned: Concerned = OF_JOBS,
) -> Noted:
    return await world.ledger.rejections.note_report(told, b'{"id": "evt"}', concerned, by)


async def recorded(world: World, *units: int) -> list[Claim]:
    await world.map()
    events = tuple(world.event(f"e{n}", n, back=20 - i) for i, n in enumerate(units))
    await world.tell(events=events)
    return await world.drain()


def states(world: World) -> list[tuple[Any, ...]]:
    return world.rows(
        "SELECT state, dead_kind, rejected_at IS NOT NULL FROM ledger.meter_event"
        " ORDER BY meter_event_id"
    )


async def test_a_rejected_meter_event_is_owed_again_and_keeps_the_evidence(world: World) -> None:
    first, second = await recorded(world, 4, 5)

    noted = await note(world, report(world, 1, first.idempotency_key))

    assert noted == Noted(repeated=False, taken_back=1)
    assert states(world) == [("dead", "refused", True), ("recorded", None, False)]
    assert (world.balance("settled"), world.balance("dead")) == (5, 4)
    kind, reason, state, detail = world.rows(
        "SELECT kind, reason, state, detail FROM ledger.parked"
    )[0]
    assert (kind, reason, state) == ("dead", "refused", "open")
    assert detail["rejections"] == [
        {
            "event_id": "evt_1",
            "code": "archived_meter",
            "message": "The meter is archived.",
            "idempotency_key": first.idempotency_key,
        }
    ]
    assert [a["outcome"] for a in detail["attempts"]] == ["recorded"]
    assert second.identifier != first.identifier
    assert world.rows("SELECT * FROM ledger.doubt") == []


@pytest.mark.parametrize(
    "change",
    ["code = 'other'", "identifier = 'm1:other'", "meter_event_id = NULL", "key_generation = 9"],
)
async def test_what_a_report_says_never_changes(world: World, change: str) -> None:
    (claim,) = await recorded(world, 4)
    await note(world, report(world, 1, claim.idempotency_key))

    with pytest.raises(psycopg.errors.RestrictViolation, match="never changes"):
        world.admin.execute(f"UPDATE ledger.rejection SET {change}".encode())


async def test_a_repeated_report_changes_nothing(world: World) -> None:
    (claim,) = await recorded(world, 4)
    told = report(world, 1, claim.idempotency_key, unnamed=1)
    await note(world, told)
    before = everything(world)

    assert await note(world, told, "sweep") == Noted(repeated=True, taken_back=0)

    assert everything(world) == before
    assert await world.ledger.rejections.known_reports(["evt_1", "evt_2"]) == {"evt_1"}


async def test_two_who_are_told_the_same_note_it_once(world: World) -> None:
    claims = await recorded(world, *range(1, 9))
    told = report(world, 1, *(claim.idempotency_key for claim in claims))

    noted = await asyncio.gather(*(note(world, told) for _ in range(4)))

    assert sorted(noted) == [Noted(False, 8), *[Noted(True, 0)] * 3]
    assert world.balance("dead") == 36


async def test_redriven_it_goes_out_under_another_identifier_and_counts_once(world: World) -> None:
    (claim,) = await recorded(world, 4)
    await note(world, report(world, 1, claim.idempotency_key))
    item = world.value("SELECT parked_id FROM ledger.parked")

    decide(world, "redrive(%s, 'the meter is active again')", item)

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="redriven already"):
        decide(world, "redrive(%s, 'twice')", item)
    (again,) = await world.drain()
    assert (again.value, again.timestamp_s) == (claim.value, claim.timestamp_s)
    assert again.identifier != claim.identifier
    assert (again.attempts_used, again.possibly_executed) == (0, False)
    assert states(world) == [("superseded", "refused", True), ("recorded", None, False)]
    assert (world.balance("settled"), world.balance("dead")) == (4, 0)
    assert world.value("SELECT superseded_by FROM ledger.meter_event WHERE state = 'superseded'")
    # Told once more, and by another report: what is superseded stays so.
    assert (await note(world, report(world, 2, claim.idempotency_key))).taken_back == 0
    assert world.balance("settled") == 4


async def test_rejected_a_second_time_it_is_dead_a_second_time(world: World) -> None:
    (claim,) = await recorded(world, 4)
    await note(world, report(world, 1, claim.idempotency_key))
    decide(world, "redrive(%s, 'x')", world.value("SELECT parked_id FROM ledger.parked"))
    (again,) = await world.drain()

    await note(world, report(world, 2, again.idempotency_key))

    assert world.rows("SELECT state FROM ledger.parked ORDER BY parked_id") == [
        ("redriven",), ("open",),
    ]  # fmt: skip
    assert world.balance("dead") == 4


async def test_a_correction_that_waits_resolves_what_is_rejected(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()
    await world.settle(claim, executed=True)
    instant = "(SELECT occurred_at FROM ledger.meter_log WHERE kind = 'event')"
    decide(world, f"correct('acme', 'jobs', {instant}, -4, 'ticket-1', 'never to be billed')")

    await note(world, report(world, 1, claim.idempotency_key))

    assert world.rows("SELECT state FROM ledger.parked") == [("corrected",)]
    assert await world.drain() == []
    assert (world.balance("settled"), world.balance("dead + pending")) == (0, 0)


async def test_a_report_that_overtakes_its_own_answer(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()

    await note(world, report(world, 1, claim.idempotency_key))
    assert states(world) == [("dead", "refused", True)]
    await world.settle(claim)

    assert states(world) == [("dead", "refused", True)]
    assert world.balance("dead") == 4
    assert await world.claim() == []
    assert world.rows("SELECT outcome FROM ledger.attempt") == [("recorded",)]
    assert world.rows("SELECT kind FROM ledger.finding") == []


async def test_a_lost_answer_is_explained_by_the_report(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()
    await world.settle(claim, "ambiguous", executed=True, delay_ms=60_000)

    await note(world, report(world, 1, claim.idempotency_key))

    assert states(world) == [("dead", "refused", True)]
    world.due_now()
    assert await world.claim() == []
    decide(world, "redrive(%s, 'x')", world.value("SELECT parked_id FROM ledger.parked"))
    assert values(await world.drain()) == [4]


async def test_a_later_attempt_that_may_count_leaves_doubt_until_it_has_an_outcome(
    world: World,
) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    first = await world.only_claim()
    await world.settle(first, "ambiguous", executed=True, delay_ms=0)
    world.rows(
        "UPDATE ledger.meter_event SET key_generation = 2, next_attempt_at = now() RETURNING 1"
    )
    world.due_now()
    second = await world.only_claim()
    assert second.idempotency_key == f"{first.identifier}.g2"

    await note(world, report(world, 1, first.idempotency_key))

    assert states(world) == [("dead", "ambiguous", True)]
    assert world.balance("ambiguous") == 4
    assert world.rows("SELECT customer, event_name, reason FROM ledger.doubt") == [
        (
            "cus_1",
            "jobs",
            f"meter event {first.meter_event_id} was rejected, and may have been sent again",
        )
    ]
    item = world.value("SELECT parked_id FROM ledger.parked")
    with pytest.raises(psycopg.Error, match="may be in Stripe's books"):
        decide(world, "redrive(%s, 'x')", item)
    assert await world.ledger.rejections.judge_again() == 0

    await world.settle(second, "pending", delay_ms=60_000)
    world.rows("UPDATE ledger.lane SET next_due_at = now() RETURNING 1")
    assert await world.claim() == []
    assert states(world) == [("dead", "ambiguous", True)]
    await note(world, report(world, 2, second.idempotency_key))
    assert states(world) == [("dead", "refused", True)]
    assert await world.ledger.rejections.judge_again() == 0


async def test_errors_of_requests_that_nobody_sent_are_a_finding(world: World) -> None:
    await recorded(world, 4)

    await note(world, report(world, 1, unnamed=1, back_us=HOUR_US))

    assert world.rows("SELECT * FROM ledger.doubt") == []
    assert world.rows("SELECT kind, subject FROM ledger.finding") == [
        ("error_report_without_cells", "evt_1")
    ]


async def test_a_report_nobody_can_read_is_kept_and_is_a_finding(world: World) -> None:
    await note(world, UnreadableReport("evt_1", ERROR_REPORT, "missing `data`"))

    assert world.rows("SELECT kind, subject FROM ledger.finding") == [
        ("error_report_unreadable", "evt_1")
    ]
    assert world.rows("SELECT error_count, body FROM ledger.error_report") == [(0, {"id": "evt"})]


@pytest.mark.parametrize(
    ("key", "findings"),
    [("somebody-else-7", []), ("m1:aaaa.g1", [("error_report_of_unknown_request",)])],
)
async def test_a_request_of_somebody_else_is_noted_and_touches_nothing(
    world: World, key: str, findings: list[tuple[str]]
) -> None:
    await recorded(world, 4)

    assert (await note(world, report(world, 1, key))).taken_back == 0

    assert world.rows("SELECT idempotency_key, meter_event_id FROM ledger.rejection") == [
        (key, None)
    ]
    assert world.balance("settled") == 4
    assert world.rows("SELECT kind FROM ledger.finding") == findings


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("state = 'dead', dead_kind = 'refused'", "is final"),
        ("state = 'dead', dead_kind = 'refused', rejected_at = now()", "only a report"),
        ("rejected_at = now()", "only a report"),
    ],
)
async def test_without_a_report_nothing_recorded_is_taken_back(
    world: World, change: str, rule: str
) -> None:
    await recorded(world, 4)

    with pytest.raises(psycopg.errors.RestrictViolation, match=rule):
        world.rows(f"UPDATE ledger.meter_event SET {change} RETURNING 1")


async def test_the_workers_can_neither_make_up_evidence_nor_change_it(world: World) -> None:
    (claim,) = await recorded(world, 4)
    await note(world, report(world, 1, claim.idempotency_key))
    with world.database.connect(world.database.login("ledger_service")) as worker:
        for statement in (
            "INSERT INTO ledger.rejection SELECT 'evt_1', 'k', 'c', 'i', 1, NULL, NULL",
            "INSERT INTO ledger.error_report (event_id) VALUES ('x')",
            "UPDATE ledger.meter_event SET rejected_at = now()",
            "UPDATE ledger.doubt SET reason = ''",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(statement.encode())
    for table in ("error_report", "rejection", "doubt"):
        with pytest.raises(psycopg.errors.RestrictViolation):
            world.rows(f"DELETE FROM ledger.{table} RETURNING 1")
    with pytest.raises(psycopg.errors.RestrictViolation, match="identifier is spent"):
        world.rows("UPDATE ledger.meter_event SET state = 'pending' RETURNING 1")


async def test_one_sweeps_at_a_time_and_from_a_day_before_the_last(world: World) -> None:
    desk = world.ledger.rejections
    since = await asyncio.gather(*(desk.claim_sweep(60.0) for _ in range(4)))

    assert sum(one is not None for one in since) == 1
    assert await desk.claim_sweep(0.0) == pytest.approx(
        world.now_us - 30 * 24 * HOUR_US, abs=60_000_000
    )
    await desk.swept(world.now_us)
    await desk.swept(world.now_us - HOUR_US)
    assert await desk.claim_sweep(0.0) == world.now_us - 24 * HOUR_US


def everything(world: World) -> list[list[tuple[Any, ...]]]:
    """What the ledger says; not when, nor by which way it heard."""
    return [
        world.rows(query)
        for query in (
            "SELECT meter_event_id, state, dead_kind, rejected_at IS NOT NULL, next_attempt_at"
            " FROM ledger.meter_event ORDER BY 1",
            "SELECT customer, event_name, window_start, reason FROM ledger.doubt"
            " WHERE settled_at IS NULL ORDER BY 1, 2, 3, 4",
            "SELECT meter_event_id, reason, state, detail - 'attempts' FROM ledger.parked"
            " ORDER BY 1",
            "SELECT event_id, error_count, unnamed FROM ledger.error_report ORDER BY 1",
            "SELECT event_id, idempotency_key, meter_event_id FROM ledger.rejection ORDER BY 1, 2",
            "SELECT kind, subject FROM ledger.finding ORDER BY 1, 2",
            "SELECT tenant_id, window_start, settled, dead, ambiguous, pending FROM ledger.balance"
            " ORDER BY 1, 2",
        )
    ]


Step = tuple[str, Any]


async def play(world: World, steps: Sequence[Step]) -> list[list[tuple[Any, ...]]]:
    """One order of answers and reports, on a ledger that forgets it afterwards."""
    world.admin.execute(FORGET)
    for name, what in steps:
        if name == "settle":
            await world.settle(what)
        else:
            await note(world, what, "webhook" if name == "webhook" else "sweep")
    await world.ledger.rejections.judge_again()
    return everything(world)


FORGET = """
SET session_replication_role = replica;
DELETE FROM ledger.finding; DELETE FROM ledger.doubt; DELETE FROM ledger.rejection;
DELETE FROM ledger.error_report; DELETE FROM ledger.parked;
UPDATE ledger.attempt SET finished_at = NULL, outcome = NULL;
UPDATE ledger.meter_event SET state = 'pending', dead_kind = NULL, rejected_at = NULL,
    settled_at = NULL, possibly_executed = false, next_attempt_at = now() + interval '1 minute';
SET session_replication_role = origin;
"""


@pytest.mark.parametrize("seed", range(8))
async def test_any_order_and_repetition_of_answers_webhook_and_sweep_gives_the_same_ledger(
    world: World, seed: int
) -> None:
    chance = random.Random(seed)
    for n in range(4):
        await world.map(f"t{n}", f"cus_{n}")
    await world.tell(events=tuple(world.event(f"e{n}", n + 1, f"t{n}") for n in range(4)))
    claims = await world.claim()
    keys = [claim.idempotency_key for claim in claims]
    reports = [
        report(world, 1, keys[0], unnamed=chance.randint(0, 1)),
        report(world, 2, keys[0], keys[1]),
        report(world, 3, "m1:zzzz.g1", unnamed=1),
        report(world, 4, claims[2].identifier),
    ]
    steps: list[Step] = [("settle", claim) for claim in claims]
    steps += [(way, told) for told in reports for way in ("webhook", "sweep")]

    ends = []
    for _ in range(6):
        order = [*steps, *chance.sample(steps[len(claims) :], 3)]
        chance.shuffle(order)
        ends.append(await play(world, order))

    for end in ends:
        assert end == ends[0]
    assert world.value("SELECT count(*) FROM ledger.meter_event WHERE state = 'recorded'") == 1


PLANTS = {
    "settle_v1": ("AND m.rejected_at IS NULL", ""),
    "doubt_unnamed_v1": ("> 0 THEN", "> 9 THEN"),
    "take_back_v1": ("IF d.dead_kind IS NOT NULL THEN", "IF false THEN"),
    "redrive_course": ("WHEN m.rejected_at IS NOT NULL OR", "WHEN"),
}


async def story(world: World) -> tuple[Any, ...]:
    """A report overtakes its own answer, counts one more, and what it names is redriven."""
    await world.map()
    await world.map("other", "cus_2")
    await world.tell(events=(world.event("a", 4), world.event("b", 5, "other")))
    claim, other = sorted(await world.claim(), key=lambda claim: claim.customer)
    await note(world, report(world, 1, claim.idempotency_key))
    await note(world, report(world, 2, unnamed=1))
    await world.settle(claim)
    await world.settle(other)
    dead = world.rows("SELECT parked_id FROM ledger.parked WHERE state = 'open'")
    for (item,) in dead:
        decide(world, "redrive(%s, 'x')", item)
    again = await world.drain()
    return (
        [one.identifier == claim.identifier for one in again],
        world.balance("settled"),
        world.value("SELECT count(*) FROM ledger.doubt"),
        len(dead),
    )


@pytest.mark.parametrize("function", [None, *PLANTS])
async def test_a_rule_of_the_database_taken_out_is_noticed(
    world: World, function: str | None
) -> None:
    if function is not None:
        world.plant(function, *PLANTS[function])
    try:
        seen = await story(world)
    except (psycopg.Error, LedgerRefusedError):
        seen = ()
    assert (seen == ([False], 4, 1, 1)) == (function is None)
