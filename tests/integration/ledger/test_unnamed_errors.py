"""Errors that a report counts and does not name: their cells are marked, and no others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from streams.core.lane import Claim, Evidence
from streams.core.rejection import (
    CLOCKS_US,
    ERROR_REPORT,
    NEVER_ACCEPTED,
    SENT_BEFORE_US,
    ErrorReport,
    Sample,
    Tried,
)
from streams.ports import Concerned
from tests.integration.ledger.test_rejections import note, recorded, report
from tests.integration.ledger.world import World

pytestmark = pytest.mark.postgres
Rows = list[tuple[Any, ...]]


def by_answer(world: World, number: int, *request_ids: str, unnamed: int = 0) -> ErrorReport:
    """A report whose samples hold nothing but the ids of Stripe's answers."""
    end_us = world.now_us + 60_000_000
    samples = tuple(Sample(one, "archived_meter", None, one) for one in request_ids)
    return ErrorReport(
        f"evt_{number}", ERROR_REPORT, "mtr_1", end_us - 120_000_000, end_us,
        len(samples) + unnamed, unnamed, samples,
    )  # fmt: skip


async def sent(world: World, *tenants: str) -> dict[str, Claim]:
    """One request of each tenant, in flight."""
    for tenant in tenants:
        await world.map(tenant, f"cus_{tenant}")
    await world.tell(events=tuple(world.event(f"e-{t}", 4, t) for t in tenants))
    return {claim.customer.removeprefix("cus_"): claim for claim in await world.claim(100)}


def doubted(world: World) -> list[str]:
    """Tenants whose cell is marked."""
    rows = world.rows("SELECT customer FROM ledger.doubt WHERE settled_at IS NULL ORDER BY 1")
    return [customer.removeprefix("cus_") for (customer,) in rows]


def findings(world: World) -> Rows:
    return world.rows("SELECT kind, subject FROM ledger.finding ORDER BY 1, 2")


WITHOUT = "error_report_without_cells"


async def test_every_cell_they_may_be_of_is_marked(world: World) -> None:
    claims = await recorded(world, 4, 5, 6)
    await world.tell(levels=(world.level(world.series(back=7), 3, 30),))
    await world.drain()

    await note(world, report(world, 1, claims[0].idempotency_key, unnamed=2))

    cells = world.rows(
        "SELECT customer, event_name, ledger.us(window_start), reason, settled_at FROM ledger.doubt"
        " ORDER BY window_start"
    )
    assert [cell[:3] for cell in cells] == [
        ("cus_1", "jobs", world.series(back=back, metric="jobs").window_start_us)
        for back in (19, 18)
    ]
    assert {cell[3:] for cell in cells} == {
        ("error report evt_1 counts more requests than it names", None)
    }
    assert world.balance("settled") == 41


@pytest.mark.parametrize(
    ("concerned", "marked"),
    [
        (Concerned("jobs"), ["jobs"]),
        (Concerned("api_calls"), ["api_calls"]),
        (Concerned("other"), []),
        (Concerned(), ["api_calls", "jobs"]),
        (Concerned(None, frozenset({"jobs", "other"})), ["api_calls"]),
    ],
)
async def test_meters_they_cannot_be_of_are_not_marked(
    world: World, concerned: Concerned, marked: list[str]
) -> None:
    await recorded(world, 4)
    await world.tell(levels=(world.level(world.series(back=7), 3, 30),))
    await world.drain()

    await note(world, report(world, 1, unnamed=1), concerned=concerned)

    rows = world.rows("SELECT event_name FROM ledger.doubt ORDER BY 1")
    assert [name for (name,) in rows] == marked


OUTCOMES = (*sorted(NEVER_ACCEPTED), "Recorded", "Ambiguous", "Collision", "brand new")


async def test_what_stripe_surely_never_accepted_is_not_marked(world: World) -> None:
    """The same rule as for one meter event: attempts are told apart by what they came to."""
    seen = [(outcome, status) for outcome in OUTCOMES for status in (None, 200, 400, 500)]
    claims = await sent(world, *(f"t{n:02}" for n in range(len(seen) + 1)))
    for n, (outcome, status) in enumerate(seen):
        evidence = Evidence(outcome, http_status=status, request_id=f"req_{n}")
        await world.settle(claims[f"t{n:02}"], "pending", delay_ms=60_000, evidence=evidence)

    await note(world, report(world, 1, unnamed=1))

    may_count = [f"t{n:02}" for n, one in enumerate(seen) if Tried(1, *one).may_count]
    assert doubted(world) == [*may_count, f"t{len(seen):02}"]
    assert 0 < len(may_count) < len(seen)


@pytest.mark.parametrize(
    ("off_us", "marked"),
    [
        (-SENT_BEFORE_US, True),
        (-SENT_BEFORE_US - 1, False),
        (120_000_000 + CLOCKS_US - 1, True),
        (120_000_000 + CLOCKS_US, False),
    ],
)
async def test_what_was_sent_at_another_time_is_not_marked(
    world: World, off_us: int, marked: bool
) -> None:
    """`off_us`: from the start of the validation, which lasts two minutes."""
    await recorded(world, 4)
    told = report(world, 1, unnamed=1)
    world.admin.execute(
        "SET session_replication_role = replica;"
        f"UPDATE ledger.attempt SET started_at = ledger.at({told.start_us + off_us});"
        "SET session_replication_role = origin"
    )

    await note(world, told)

    assert len(doubted(world)) == marked
    assert findings(world) == ([] if marked else [(WITHOUT, "evt_1")])


@pytest.mark.parametrize("first", [0, 1])
async def test_what_another_report_names_is_not_among_them_in_either_order(
    world: World, first: int
) -> None:
    claims = await sent(world, "a", "b")
    reports = [
        report(world, 1, unnamed=1),
        report(world, 2, claims["a"].idempotency_key),
        report(world, 3, claims["b"].idempotency_key),
    ]

    for told in (reports[first], reports[1 - first]):
        await note(world, told)
    assert doubted(world) == ["b"]
    assert findings(world) == []

    # All that it may be of are named elsewhere: it is somebody else's request.
    await note(world, reports[2])
    assert doubted(world) == []
    assert findings(world) == [(WITHOUT, "evt_1")]


async def test_what_is_settled_stays_so_and_a_rejection_in_doubt_stays_marked(
    world: World,
) -> None:
    claims = await sent(world, "a", "b")
    await note(world, report(world, 1, unnamed=1))
    world.rows("UPDATE ledger.doubt SET settled_at = now() WHERE customer = 'cus_a' RETURNING 1")

    await note(world, report(world, 2, f"{claims['b'].identifier}.g2"))

    reasons = world.rows("SELECT customer, report FROM ledger.doubt WHERE settled_at IS NULL")
    assert sorted(reasons, key=str) == [("cus_b", "evt_1"), ("cus_b", None)]


async def answered(world: World, claim: Claim, request_id: str | None) -> None:
    await world.settle(claim, evidence=Evidence("Recorded", 200, request_id=request_id))


async def test_a_request_named_by_its_answer_is_taken_back(world: World) -> None:
    claims = await sent(world, "a", "b")
    for tenant, claim in claims.items():
        await answered(world, claim, f"req_{tenant}")

    assert (await note(world, by_answer(world, 1, "req_a"))).taken_back == 1

    assert world.rows("SELECT state, dead_kind FROM ledger.meter_event ORDER BY customer") == [
        ("dead", "refused"), ("recorded", None),
    ]  # fmt: skip
    assert world.rows("SELECT key_generation, meter_event_id IS NULL FROM ledger.rejection") == [
        (1, False)
    ]
    assert doubted(world) == []
    assert findings(world) == []


async def test_an_answer_nobody_knows_is_one_of_those_that_were_lost(world: World) -> None:
    claims = await sent(world, "a", "b", "c")
    await answered(world, claims["a"], "req_a")

    await note(world, by_answer(world, 1, "req_b", "req_x"))
    assert doubted(world) == ["b", "c"]

    # The answer was slow: it is told to the ledger after the report.
    await answered(world, claims["b"], "req_b")
    assert await world.ledger.rejections.judge_again() == 1
    assert await world.ledger.rejections.judge_again() == 0
    assert world.balance("dead", "b") == 4
    assert doubted(world) == ["c"]


async def test_with_others_unnamed_an_answer_that_came_may_be_meant_too(world: World) -> None:
    claims = await sent(world, "a", "b")
    await answered(world, claims["a"], "req_a")
    await note(world, by_answer(world, 1, "req_x", unnamed=1))
    assert doubted(world) == ["a", "b"]


Play = Callable[[World], Awaitable[Any]]


async def narrowed(world: World) -> Any:
    await test_what_another_report_names_is_not_among_them_in_either_order(world, 0)


async def never_accepted(world: World) -> Any:
    await test_what_stripe_surely_never_accepted_is_not_marked(world)


async def by_name(world: World) -> Any:
    concerned = Concerned(None, frozenset({"jobs"}))
    await test_meters_they_cannot_be_of_are_not_marked(world, concerned, ["api_calls"])


async def in_time(world: World) -> Any:
    at_us = 120_000_000 + CLOCKS_US
    await test_what_was_sent_at_another_time_is_not_marked(world, at_us, marked=False)


PLANTS: list[tuple[str, str, str, Play]] = [
    ("windows_about", "NOT (m.rejected_at IS NOT NULL", "NOT (false", narrowed),
    ("narrow_doubt_v1", "SET settled_at = now()", "SET settled_at = d.settled_at", narrowed),
    ("narrow_doubt_v1", "PERFORM ledger.report_without_cells(one)", "NULL", narrowed),
    ("windows_about", "AND a.http_status IS DISTINCT FROM 400", "", never_accepted),
    ("windows_about", "a.outcome <> ALL", "a.outcome = ANY", never_accepted),
    ("windows_about", "AND m.event_name <> ALL (r.not_of)", "", by_name),
    ("attempts_about", "r.validation_end +", "r.validation_end + interval '10 minutes' +", in_time),
    ("windows_about", "OR a.request_id IS NULL", "OR true",
     test_an_answer_nobody_knows_is_one_of_those_that_were_lost),
    ("join_answers", "a.request_id = x.request_id", "false",
     test_a_request_named_by_its_answer_is_taken_back),
    ("lock_rejected_v1", "PERFORM ledger.join_answers(e.event_id, reach) FROM", "PERFORM FROM",
     test_an_answer_nobody_knows_is_one_of_those_that_were_lost),
]  # fmt: skip


@pytest.mark.parametrize("plant", range(len(PLANTS)))
async def test_a_rule_taken_out_is_noticed(world: World, plant: int) -> None:
    function, rule, instead, play = PLANTS[plant]
    world.plant(function, rule, instead)
    with pytest.raises(AssertionError):
        await play(world)
