"""Past the billing deadline: never sent to the closed period, never lost, decided once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from streams.agents.overdue import OverduePass, UnpunctualMetersError
from streams.core.billing import BillingCycle, CarryPass, deadline_us, period_of
from streams.core.catalogue import Catalogue
from streams.core.lane import Claim
from tests.integration.ledger.world import DAY_US, EVENTWISE, MINUTE_US, WINDOWED, World, values

pytestmark = pytest.mark.postgres

GRACE_US = 15 * MINUTE_US
"""As long as the margin: a period's deadline is its own end."""
CLOSED, OPEN = 6, 1
"""Windows so many minutes back: before and after the end of the period three minutes ago."""
WHY = "the customer agreed"


async def month_ended(world: World, **changes: Any) -> int:
    """A customer whose month ended three minutes ago; when."""
    end_us = world.now_us // MINUTE_US * MINUTE_US - 3 * MINUTE_US
    how = {"anchor_us": end_us, "billing_interval": "month", "grace_us": GRACE_US, **changes}
    await world.map(**how)
    return end_us


async def meters(world: World, policy: Any) -> None:
    """`calls` (by window) and `runs` (by event) with this carry policy."""
    both = (("calls", WINDOWED), ("runs", EVENTWISE))
    await world.ledger.catalogue.append_meters(
        [v._replace(metric=name, event_name=name, carry=policy) for name, v in both], "tests"
    )


async def use(world: World, units: int, *, back: int = CLOSED, metric: str = "calls") -> None:
    series = world.series(back=back, metric=metric)
    if metric == "runs":
        event = world.event(f"{metric}{back}{units}", units, back=back)
        await world.tell(events=(replace(event, series=series),))
    else:
        await world.tell(levels=(world.level(series, 1, units),))
    await world.ledger.cut_entries(100)


async def carry(world: World) -> CarryPass:
    return await world.ledger.carry.carry_overdue(100)


def decide(world: World, call: str, *parameters: Any) -> Any:
    """One call by somebody of finance."""
    with world.database.connect(world.database.login("ledger_finance")) as person:
        row = person.execute(f"SELECT {call}".encode(), parameters).fetchone()
        return row[0] if row else None


def carry_entry(world: World, entry: int, **more: str) -> Any:
    named = "".join(f", {name} => '{value}'" for name, value in more.items())
    return decide(world, f"ledger.carry_entry(%s, '{WHY}'{named})", entry)


def entries(world: World) -> list[tuple[str, int]]:
    return world.rows("SELECT kind, delta FROM ledger.meter_log ORDER BY entry_id")


def first_entry(world: World) -> int:
    return int(world.value("SELECT min(entry_id) FROM ledger.overdue"))


def dated(sent: list[Claim], end_us: int) -> bool:
    """Whether all of them are dated in the open period."""
    return all(claim.timestamp_s * 1_000_000 >= end_us for claim in sent)


def let_deadline_pass(world: World) -> None:
    """What waiting for the deadline of every request would do."""
    earlier = "deadline_at = deadline_at - interval '45 minutes'"
    for table, change in (
        ("meter_event", earlier),
        ("uncovered", earlier),
        ("customer", "grace = interval '15 minutes'"),
    ):
        world.admin.execute(f"ALTER TABLE ledger.{table} DISABLE TRIGGER USER".encode())
        world.admin.execute(f"UPDATE ledger.{table} SET {change}".encode())
        world.admin.execute(f"ALTER TABLE ledger.{table} ENABLE TRIGGER USER".encode())


@pytest.mark.parametrize("metric", ["calls", "runs"])
async def test_next_period_moves_the_amount_into_the_open_period_by_itself(
    world: World, metric: str
) -> None:
    end_us = await month_ended(world)
    await meters(world, "next-period")
    await use(world, 30, metric=metric)
    assert await world.claim() == []

    assert await carry(world) == CarryPass(1, 0, 0)

    kind = "event" if metric == "runs" else "usage"
    assert entries(world) == [(kind, 30), ("carry", -30), ("carry", 30)]
    sent = await world.drain()
    assert values(sent) == [30]
    assert dated(sent, end_us)
    closed, opened = world.rows(
        "SELECT settled, pending + held FROM ledger.balance ORDER BY window_start"
    )
    assert (closed, opened) == ((0, 0), (30, 0))
    assert await carry(world) == CarryPass(0, 0, 0)
    assert (await world.ledger.audit.misplaced()).entries == 0


async def test_a_carry_names_what_it_moved_and_why(world: World) -> None:
    end_us = await month_ended(world)
    await meters(world, "next-period")
    await use(world, 30)

    await carry(world)

    assert world.rows(
        "SELECT c.customer, c.event_name, ledger.us(c.deadline_at), c.policy, o.delta, i.delta,"
        " o.window_start = e.window_start, i.window_start >= ledger.at(%s), i.reference"
        " FROM ledger.carry c JOIN ledger.meter_log e USING (entry_id)"
        " JOIN ledger.meter_log o ON o.entry_id = c.out_entry_id"
        " JOIN ledger.meter_log i ON i.entry_id = c.in_entry_id",
        end_us,
    ) == [("cus_1", "calls", end_us, "next-period", -30, 30, True, True, "in for entry 1")]


async def test_a_replay_carries_nothing_again_and_what_comes_later_is_carried_by_itself(
    world: World,
) -> None:
    await month_ended(world)
    await meters(world, "next-period")
    series = world.series(back=CLOSED, metric="calls")
    first = world.batch(levels=(world.level(series, 1, 30),))
    for _ in range(2):
        await world.ledger.apply_facts(first)
        await world.ledger.cut_entries(100)
        await carry(world)
    assert [delta for _, delta in entries(world)] == [30, -30, 30]

    await world.tell(levels=(world.level(series, 2, 35),))
    await world.ledger.cut_entries(100)
    assert await carry(world) == CarryPass(1, 0, 0)

    assert [delta for _, delta in entries(world)] == [30, -30, 30, 5, -5, 5]
    assert sum(values(await world.drain())) == 35


async def test_review_waits_in_the_queue_and_an_approval_carries(world: World) -> None:
    end_us = await month_ended(world)
    await meters(world, "review")
    await use(world, 30)

    assert await carry(world) == CarryPass(0, 1, 0)
    assert await carry(world) == CarryPass(0, 0, 0)

    assert world.rows(
        "SELECT kind, reason, units, state, detail ->> 'rule' FROM ledger.parked"
    ) == [("review", "past_deadline", 30, "open", "too late for its invoice")]
    assert await world.drain() == []
    assert world.balance("held") == 30
    decide(world, f"ledger.approve((SELECT parked_id FROM ledger.parked), '{WHY}')")

    sent = await world.drain()
    assert values(sent) == [30]
    assert dated(sent, end_us)
    assert world.rows("SELECT state, decided_by, why FROM ledger.parked") == [
        ("approved", "login_ledger_finance", WHY)
    ]
    assert world.rows("SELECT action, actor FROM ledger.decision") == [
        ("carry", "login_ledger_finance")
    ]
    assert await carry(world) == CarryPass(0, 0, 0)


async def test_a_rejected_one_is_billed_nowhere_and_the_books_say_so(world: World) -> None:
    await month_ended(world)
    await meters(world, "review")
    await use(world, 30)
    await carry(world)

    decide(world, f"ledger.reject((SELECT parked_id FROM ledger.parked), '{WHY}')")

    assert await world.drain() == []
    assert (world.balance("total"), world.balance("decided"), world.balance("settled")) == (
        30, -30, 0,
    )  # fmt: skip
    assert world.value("SELECT reference FROM ledger.carry") == "nowhere"


async def test_manual_waits_listed_until_a_person_carries_it_once(world: World) -> None:
    await month_ended(world)
    await meters(world, "manual")
    await use(world, 30)

    assert await carry(world) == CarryPass(0, 0, 0)
    assert world.rows("SELECT delta, policy, customer FROM ledger.overdue") == [
        (30, "manual", "cus_1")
    ]
    entry = first_entry(world)
    done = carry_entry(world, entry)
    again = carry_entry(world, entry)

    assert done == again
    assert world.value("SELECT count(*) FROM ledger.decision") == 1
    assert values(await world.drain()) == [30]
    assert world.rows("SELECT entry_id FROM ledger.overdue") == []


async def test_what_is_billed_elsewhere_keeps_its_reference(world: World) -> None:
    await month_ended(world)
    await meters(world, "manual")
    await use(world, 30)

    carry_entry(world, first_entry(world), elsewhere="invoice item ii_77")

    assert await world.drain() == []
    assert world.rows("SELECT in_entry_id, reference, actor FROM ledger.carry") == [
        (None, "invoice item ii_77", "login_ledger_finance")
    ]


async def test_what_is_not_overdue_is_refused(world: World) -> None:
    await month_ended(world)
    await meters(world, "manual")
    await use(world, 30, back=OPEN)
    entry = world.value("SELECT min(entry_id) FROM ledger.meter_log")

    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="has not missed"):
        carry_entry(world, entry)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="say why"):
        decide(world, "ledger.carry_entry(%s, ' ')", entry)

    assert values(await world.drain()) == [30]


async def test_a_waiting_request_that_surely_was_not_executed_is_carried(world: World) -> None:
    end_us = await month_ended(world, grace_us=60 * MINUTE_US)
    await meters(world, "next-period")
    await use(world, 30)
    await world.settle(await world.only_claim(), "pending", delay_ms=DAY_US // 1_000)

    let_deadline_pass(world)
    assert await carry(world) == CarryPass(1, 0, 0)

    sent = await world.drain()
    assert values(sent) == [30]
    assert dated(sent, end_us)


@pytest.mark.parametrize("by", ["the pass", "a claim"])
@pytest.mark.parametrize("doubt", ["an answer is lost", "the publisher died"])
async def test_what_may_have_been_executed_is_not_asked_about_past_its_deadline(
    world: World, doubt: str, by: str
) -> None:
    """The question itself could be the first to be recorded, and on no invoice."""
    await month_ended(world, grace_us=60 * MINUTE_US)
    await meters(world, "next-period")
    await use(world, 30)
    claim = await world.only_claim()
    if doubt == "an answer is lost":
        await world.settle(claim, "ambiguous", executed=True, delay_ms=0)
    else:
        world.expire_leases()

    let_deadline_pass(world)
    if by == "the pass":
        assert await carry(world) == CarryPass(0, 0, 1)
    assert await world.claim() == []

    assert world.balance("ambiguous") == 30
    assert world.rows("SELECT kind, reason, units FROM ledger.parked") == [
        ("dead", "ambiguous", 30)
    ]
    assert await carry(world) == CarryPass(0, 0, 0)
    if doubt == "the publisher died":
        await world.settle(claim)  # its answer came after all
        assert (world.balance("settled"), world.balance("ambiguous")) == (30, 0)


async def test_a_lane_in_flight_is_left_alone_over_its_deadline(world: World) -> None:
    await month_ended(world, grace_us=60 * MINUTE_US)
    await meters(world, "next-period")
    await use(world, 30)
    claim = await world.only_claim()

    let_deadline_pass(world)
    assert await carry(world) == CarryPass(0, 0, 0)

    await world.settle(claim)
    assert world.balance("settled") == 30


async def test_a_dead_letter_that_is_redriven_too_late_is_carried(world: World) -> None:
    end_us = await month_ended(world, grace_us=60 * MINUTE_US)
    await meters(world, "next-period")
    await use(world, 30)
    await world.settle(await world.only_claim(), "dead", dead="refused")
    let_deadline_pass(world)
    assert await carry(world) == CarryPass(0, 0, 0)

    decide(world, f"ledger.redrive((SELECT parked_id FROM ledger.parked), '{WHY}')")
    assert await world.claim() == []
    assert await carry(world) == CarryPass(1, 0, 0)

    sent = await world.drain()
    assert (values(sent), dated(sent, end_us)) == ([30], True)


async def test_what_is_taken_back_is_carried_only_as_far_as_there_is_something(
    world: World,
) -> None:
    await month_ended(world)
    await meters(world, "next-period")
    series = world.series(back=CLOSED, metric="calls")
    await world.tell(corrections=(world.correction("c", -5, series),))

    assert await carry(world) == CarryPass(0, 1, 0)
    assert "-5 would make the open period" in world.value("SELECT rule FROM ledger.overdue")
    entry = first_entry(world)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="it holds 0"):
        carry_entry(world, entry)
    await use(world, 7, back=OPEN)
    carry_entry(world, entry)

    assert sum(values(await world.drain())) == 2


async def test_what_the_closed_period_holds_is_no_cover_for_the_open_one(world: World) -> None:
    await month_ended(world, grace_us=60 * MINUTE_US)
    await meters(world, "next-period")
    await use(world, 30)
    assert values(await world.drain()) == [30]
    let_deadline_pass(world)
    series = world.series(back=CLOSED, metric="calls")
    await world.tell(corrections=(world.correction("c", -5, series),))

    assert await carry(world) == CarryPass(0, 1, 0)
    assert "it holds 0" in world.value("SELECT rule FROM ledger.overdue")


async def test_what_a_later_period_holds_is_no_cover_for_the_open_one(world: World) -> None:
    ends_us = world.now_us // MINUTE_US * MINUTE_US + 2 * MINUTE_US
    await world.map(anchor_us=ends_us, billing_interval="day", grace_us=GRACE_US)
    await meters(world, "next-period")
    await use(world, 30, back=-4)
    series = world.series(back=24 * 60 + 2, metric="calls")
    await world.tell(corrections=(world.correction("c", -5, series),))

    assert await carry(world) == CarryPass(0, 1, 0)
    assert "it holds 0" in world.value("SELECT rule FROM ledger.overdue")


async def test_usage_of_one_customer_is_not_carried_to_another_unasked(world: World) -> None:
    end_us = await month_ended(world)
    await meters(world, "next-period")
    await use(world, 30)
    world.admin.execute(
        "INSERT INTO ledger.customer (tenant_id, effective_from, customer, actor)"
        " VALUES ('acme', ledger.at(%s), 'cus_2', 'tests')",
        (end_us,),
    )

    assert await carry(world) == CarryPass(0, 1, 0)
    entry = first_entry(world)
    for payer in ({}, {"payer": "cus_1"}):
        with pytest.raises(psycopg.Error, match="was cus_1's, but the tenant is mapped to cus_2"):
            carry_entry(world, entry, **payer)
    carry_entry(world, entry, payer="cus_2")

    assert [(c.customer, c.value) for c in await world.drain()] == [("cus_2", "30")]


async def test_nothing_is_carried_while_the_ledger_is_halted(world: World) -> None:
    await month_ended(world)
    await meters(world, "next-period")
    await use(world, 30)
    world.admin.execute("INSERT INTO ledger.halt (kind, detail) VALUES ('x', '{}')")
    assert await carry(world) == CarryPass(0, 0, 0)

    decide(world, "ledger.lift_halt('x', 'settled')")

    assert await carry(world) == CarryPass(1, 0, 0)


async def test_nothing_is_nothing_to_carry(world: World) -> None:
    await month_ended(world)
    await meters(world, "manual")
    await use(world, 0, metric="runs")

    assert await carry(world) == CarryPass(0, 0, 0)

    assert world.rows("SELECT state FROM ledger.meter_event") == [("nothing",)]


async def test_passes_and_publishers_at_the_same_time_carry_and_send_each_amount_once(
    world: World,
) -> None:
    await month_ended(world)
    await meters(world, "next-period")
    for n in range(40):
        event = world.event(f"e{n}", n + 1, back=CLOSED if n % 2 else OPEN)
        series = world.series(back=CLOSED if n % 2 else OPEN, metric="runs")
        await world.tell(events=(replace(event, series=series),))

    sent: list[Claim] = []

    async def passes() -> None:
        for _ in range(10):
            await world.ledger.carry.carry_overdue(5)

    async def publish() -> None:
        for _ in range(25):
            for claim in await world.claim():
                sent.append(claim)
                await world.settle(claim)

    await asyncio.gather(passes(), passes(), publish(), publish())
    while (await carry(world)).carried:
        pass
    sent += await world.drain()

    assert sum(values(sent)) == sum(range(1, 41))
    assert world.value("SELECT count(*) FROM ledger.carry") == 20
    assert world.balance("settled") == sum(range(1, 41))


async def test_a_window_that_two_periods_share_is_dated_in_the_later_one(world: World) -> None:
    """Also what is added to it while it is still open: before the anchor it waits."""
    minute_us = world.now_us // MINUTE_US * MINUTE_US
    anchor_us = minute_us + 41_000_000
    await world.map(anchor_us=anchor_us, billing_interval="month", grace_us=GRACE_US)
    series = world.series(back=0)
    await world.tell(corrections=(world.correction("c", 5, series),))

    due_us, found_us = world.rows(
        "SELECT ledger.us(due_at), ledger.us(deadline_at) FROM ledger.uncovered"
    )[0]

    assert due_us == series.window_end_us - 1_000_000
    cycle = BillingCycle(anchor_us, "month", GRACE_US)
    assert found_us == deadline_us(cycle, series.window_end_us - 1_000_000, GRACE_US)
    assert period_of(anchor_us, "month", due_us).start_us == anchor_us


async def test_what_a_forgotten_ledger_may_have_sent_is_not_carried_before_it_was_compared(
    world: World,
) -> None:
    await month_ended(world)
    await meters(world, "next-period")
    await use(world, 30)
    world.admin.execute(
        "INSERT INTO ledger.doubt (customer, event_name, window_start, window_end, reason)"
        " SELECT 'cus_1', 'calls', window_start, window_end, 'ledger_adopted 1'"
        " FROM ledger.uncovered"
    )
    assert await carry(world) == CarryPass(0, 0, 0)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="before the ledger went"):
        carry_entry(world, first_entry(world))

    world.admin.execute("UPDATE ledger.doubt SET settled_at = now()")

    assert await carry(world) == CarryPass(1, 0, 0)


async def test_what_a_lost_ledger_may_have_carried_is_not_carried_again_by_itself(
    world: World,
) -> None:
    """Its first carry was sent under a date of its own, which no cell in doubt holds."""
    await month_ended(world)
    await meters(world, "next-period")
    await use(world, 30)
    world.value("SELECT ledger.adopt_v1('restored', 'ann', true)")
    world.admin.execute("UPDATE ledger.doubt SET settled_at = now()")

    assert await carry(world) == CarryPass(0, 1, 0)
    ((rule,),) = world.rows("SELECT detail ->> 'rule' FROM ledger.parked")
    assert rule.startswith("the ledger that was lost may have carried it already")
    assert entries(world) == [("usage", 30)]

    carry_entry(world, first_entry(world))  # by a person who has compared
    assert entries(world) == [("usage", 30), ("carry", -30), ("carry", 30)]


async def test_no_worker_starts_by_meters_that_cannot_make_the_grace_of_a_customer_in_force(
    world: World,
) -> None:
    """A mapping that another one has replaced is nobody's any more."""
    versions, now_us = await world.ledger.load_catalogue()
    catalogue = Catalogue(tuple(versions), now_us)
    overdue = OverduePass(world.ledger.carry)
    await world.map("a", "cus_a")
    await world.map("b", "cus_b", anchor_us=0, billing_interval="month", grace_us=DAY_US * 2)
    assert await overdue.check(catalogue)

    await world.map("c", "cus_c", anchor_us=0, billing_interval="month")
    with pytest.raises(UnpunctualMetersError, match=r"cus_c \(tenant c\) after 1 h of grace"):
        await overdue.check(catalogue)
    world.admin.execute("UPDATE ledger.setting SET value = '20 minutes' WHERE name LIKE '%margin'")
    with pytest.raises(UnpunctualMetersError, match="20 min of margin"):
        await overdue.check(catalogue)
    world.admin.execute(
        "INSERT INTO ledger.customer (tenant_id, effective_from, customer, actor)"
        " VALUES ('c', ledger.at(%s), 'cus_c', 'tests')",
        (now_us // MINUTE_US * MINUTE_US,),
    )

    assert await overdue.check(catalogue)
