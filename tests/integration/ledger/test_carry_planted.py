"""Each rule of billing periods and of carrying, taken out: some test of it falls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import psycopg
import pytest

from streams.adapters.ledger import Ledger
from streams.adapters.ledger_pool import LedgerRefusedError
from streams.ports import LedgerUnavailableError
from tests.integration.ledger import test_carry as carrying
from tests.integration.ledger import test_parted as parting
from tests.integration.ledger import test_time_edges as edges
from tests.integration.ledger.world import EVENTWISE, WINDOWED, World
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres
Play = Callable[[World], Awaitable[None]]


async def periods(world: World) -> None:
    for edge in edges.EDGES.periods:
        edges.test_a_period_ends_and_a_deadline_falls_where_the_edges_say(world.admin, edge)
    edges.test_core_and_ledger_agree_on_every_drawn_period(world.admin)


async def shared_window(world: World) -> None:
    await carrying.test_a_window_that_two_periods_share_is_dated_in_the_later_one(world)


def in_doubt(by: str) -> Play:
    play = carrying.test_what_may_have_been_executed_is_not_asked_about_past_its_deadline
    return partial(_in_doubt, play, by)


async def _in_doubt(play: Any, by: str, world: World) -> None:
    await play(world, "an answer is lost", by)


def moved(metric: str) -> Play:
    play = carrying.test_next_period_moves_the_amount_into_the_open_period_by_itself
    return partial(_moved, play, metric)


async def _moved(play: Any, metric: str, world: World) -> None:
    await play(world, metric)


def parted(owed: list[int], there: int, net: int, present: list[int], missing: list[int]) -> Play:
    play = partial(_parted, parting.test_what_stripe_lacks_is_the_latest_of_its_sign)
    return partial(play, (owed, there, net, present, missing))


async def _parted(play: Any, given: tuple[Any, ...], world: World) -> None:
    await play(world, *given)


class Plant(NamedTuple):
    """A rule of a function, what stands in its place, and what notices."""

    function: str
    rule: str
    instead: str
    play: Play


PLANTS = {
    # Periods begin at the anchor, on its own day, and end before the next one.
    "months from the month's start": Plant(
        "period_edges", "SELECT a + step * k", "SELECT date_trunc('month', a) + step * k", periods
    ),
    "the 31st becomes the 28th for ever": Plant(
        "period_edges",
        "a + step * k::double precision",
        "a - (greatest(0, extract(day FROM a) - 28) || ' days')::interval"
        " + step * k::double precision",
        periods,
    ),
    "a year is a month": Plant(
        "period_edges", "interval '12 months'", "interval '1 month'", periods
    ),
    "a quarter is a month": Plant("period_edges", "END * count AS step", "END AS step", periods),
    "quarters are counted as months": Plant("period_edges", "/ (count *", "/ (1 *", periods),
    "a week is a day": Plant("period_edges", "interval '7 days'", "interval '1 day'", periods),
    "the edge belongs to what it ends": Plant("period_end", "edge > at", "edge >= at", periods),
    "the edge does not begin": Plant("period_start", "edge <= at", "edge < at", periods),
    "one edge too few before": Plant("period_edges", "near - 1", "near", periods),
    "one edge too few after": Plant("period_edges", "near + 2", "near", periods),
    "local time": Plant(
        "period_edges", "anchor AT TIME ZONE 'UTC'", "anchor AT TIME ZONE 'Asia/Tokyo'", periods
    ),
    "no grace": Plant(
        "billing_deadline",
        "coalesce(grace, ledger.interval_setting('finalisation_grace'))",
        "interval '0'",
        periods,
    ),
    "no margin": Plant(
        "billing_deadline", "- ledger.interval_setting('finalisation_margin')", "", periods
    ),
    "a shared window in the earlier period": Plant(
        "place_entries",
        "THEN e.window_end - interval '1 second'",
        "THEN e.window_start + interval '1 second'",
        shared_window,
    ),
    # Each meter's policy.
    "review carries by itself": Plant(
        "carry_overdue_v1", "WHEN 'review' THEN", "WHEN 'nobody' THEN",
        carrying.test_review_waits_in_the_queue_and_an_approval_carries,
    ),
    "next-period waits": Plant(
        "carry_overdue_v1", "WHEN 'review' THEN", "WHEN 'next-period' THEN", moved("calls")
    ),
    "manual is parked": Plant(
        "carry_overdue_v1", "x.policy <> 'manual'", "true",
        carrying.test_manual_waits_listed_until_a_person_carries_it_once,
    ),
    # Once, and only what is overdue.
    "not yet overdue": Plant(
        "overdue", "(u.deadline_at <= now())", "true", carrying.test_what_is_not_overdue_is_refused
    ),
    "decided twice": Plant(
        "carry_entry", "IF made.entry_id IS NOT NULL THEN", "IF false THEN",
        carrying.test_manual_waits_listed_until_a_person_carries_it_once,
    ),
    "parked again and again": Plant(
        "carry_overdue_v1", "AND x.parked_id IS NULL", "",
        carrying.test_review_waits_in_the_queue_and_an_approval_carries,
    ),
    "one name for all carries of a window": Plant(
        "derived_identity", "e.shard, e.log_id, e.revision", "e.shard, e.log_id",
        carrying.test_a_replay_carries_nothing_again_and_what_comes_later_is_carried_by_itself,
    ),
    "in and out have one name": Plant(
        "derived_identity", "ledger.lp(side)", "ledger.lp('side')", moved("calls")
    ),
    "the closed period keeps it": Plant(
        "carry_out", "e.shard, -e.delta, ledger.derived_identity('carry', 'out', e)",
        "e.shard, e.delta, ledger.derived_identity('carry', 'out', e)", moved("calls"),
    ),
    "the open period does not get it": Plant(
        "carry_out", "IF elsewhere IS NULL THEN", "IF false THEN", moved("calls")
    ),
    "billed elsewhere and here": Plant(
        "carry_out", "IF elsewhere IS NULL THEN", "IF true THEN",
        carrying.test_what_is_billed_elsewhere_keeps_its_reference,
    ),
    # Never into or for a closed period.
    "dated where it was": Plant(
        "carry_out", "date_trunc('second', now())", "o.window_start", moved("calls")
    ),
    "an event dated where it was": Plant(
        "carry_out", "date_trunc('second', now())", "o.window_start", moved("runs")
    ),
    "what surely was not sent stays frozen": Plant(
        "close_overdue_v1", "IF freed IS NOT NULL THEN", "IF false THEN",
        carrying.test_a_waiting_request_that_surely_was_not_executed_is_carried,
    ),
    "what may be there is carried": Plant(
        # Its state says so, too, and so does the function that takes requests back.
        "close_overdue_v1",
        "m.state = 'pending' AND m.deadline_at <= now()\n      AND NOT m.possibly_executed",
        "m.state IN ('pending', 'ambiguous') AND m.deadline_at <= now()",
        in_doubt("the pass"),
    ),
    "what may be there is asked about": Plant(
        "close_overdue_v1", "IF doubtful IS NOT NULL THEN", "IF false THEN", in_doubt("the pass")
    ),
    "a claim does not look at the deadline": Plant(
        "merge_pending_v1", "PERFORM ledger.close_overdue_v1(lanes);", "", in_doubt("a claim")
    ),
    "a lane in flight": Plant(
        "carry_overdue_v1", "(l.claimed_until IS NULL OR l.claimed_until <= now())", "true",
        carrying.test_a_lane_in_flight_is_left_alone_over_its_deadline,
    ),
    # What speaks against it.
    "halted": Plant(
        "carry_overdue_v1", "OR EXISTS (SELECT FROM ledger.halt WHERE lifted_at IS NULL)", "",
        carrying.test_nothing_is_carried_while_the_ledger_is_halted,
    ),
    "another customer pays": Plant(
        "carry_objection", "IF coalesce(payer, o.customer) <> c.customer THEN", "IF false THEN",
        carrying.test_usage_of_one_customer_is_not_carried_to_another_unasked,
    ),
    "below zero": Plant(
        "carry_objection", "IF present + o.delta < 0 THEN", "IF false THEN",
        carrying.test_what_is_taken_back_is_carried_only_as_far_as_there_is_something,
    ),
    "the closed period counts as cover": Plant(
        "carry_objection", "AND b.window_start >= period_from", "",
        carrying.test_what_the_closed_period_holds_is_no_cover_for_the_open_one,
    ),
    "what a later period holds is cover": Plant(
        "carry_objection", "AND b.window_start < period_to", "",
        carrying.test_what_a_later_period_holds_is_no_cover_for_the_open_one,
    ),
    "a forgotten ledger, by itself": Plant(
        "carry_overdue_v1", "NOT x.doubted", "true",
        carrying.test_what_a_forgotten_ledger_may_have_sent_is_not_carried_before_it_was_compared,
    ),
    "a forgotten ledger, by a person": Plant(
        "carry_entry", "IF o.doubted THEN", "IF false THEN",
        carrying.test_what_a_forgotten_ledger_may_have_sent_is_not_carried_before_it_was_compared,
    ),
    "carried again after a restore": Plant(
        "carry_overdue_v1", "IF ledger.may_be_carried(o.deadline_at) THEN", "IF false THEN",
        carrying.test_what_a_lost_ledger_may_have_carried_is_not_carried_again_by_itself,
    ),
    "nothing is something": Plant(
        "carry_overdue_v1", "IF o.delta = 0 THEN", "IF false THEN",
        carrying.test_nothing_is_nothing_to_carry,
    ),
    # Part of an adopted cell is there.
    "the closed period gets the rest": Plant(
        "settle_cell_v1", "IF overdue THEN", "IF false THEN",
        parting.test_what_is_missing_of_a_closed_invoice_is_for_a_person_and_billed_once,
    ),
    "the oldest is missing": Plant(
        "tell_apart", "ORDER BY x.entry_id DESC", "ORDER BY x.entry_id",
        parted([5, 3], 5, 3, [5], [3]),
    ),
    "either sign is missing": Plant(
        "tell_apart", "AND sign(x.delta) = sign(net)", "",
        parted([10, -1], 4, 5, [10, -1, -5], [5]),
    ),
    "no entry is divided": Plant(
        "tell_apart", "IF abs(e.delta) <= abs(rest) THEN", "IF true THEN",
        parted([5, 3], 3, 5, [5, -2], [3, 2]),
    ),
    "the parts change places": Plant(
        "tell_apart", "ORDER BY p.delta = rest", "ORDER BY p.delta <> rest",
        parted([5, 3], 3, 5, [5, -2], [3, 2]),
    ),
    "more is missing than there is": Plant(
        "tell_apart", "IF rest <> 0 OR", "IF",
        parting.test_sums_that_the_entries_do_not_hold_are_refused,
    ),
    "something else is there": Plant(
        "tell_apart", "OR there <> (SELECT", "OR there IS NULL AND 0 <> (SELECT",
        parting.test_sums_that_the_entries_do_not_hold_are_refused,
    ),
    "whoever is logged in told it apart": Plant(
        "tell_apart", "coalesce(who, session_user)", "session_user",
        parting.test_it_says_who_told_it_apart_why_and_of_what,
    ),
    "told apart once and never again": Plant(
        "tell_apart", "ledger.derived_identity(adoption,", "ledger.derived_identity('adoption',",
        parting.test_what_was_told_apart_is_told_apart_again_after_another_restore,
    ),
    "what waits has no deadline": Plant(
        "cells_v1", "least(r.deadline_at, w.deadline_at)", "r.deadline_at",
        parting.test_a_cell_says_when_the_first_invoice_of_what_it_owes_closes,
    ),
    "what is in doubt has no deadline": Plant(
        "cells_v1", "least(r.deadline_at, w.deadline_at)", "w.deadline_at",
        parting.test_a_cell_with_a_lost_answer_says_when_its_invoice_closes,
    ),
    "without a reason": Plant(
        "carry_entry", "IF btrim(coalesce(why, '')) = '' THEN", "IF false THEN",
        carrying.test_what_is_not_overdue_is_refused,
    ),
}  # fmt: skip


@pytest.fixture
async def planted(database: Database, ledger: Ledger) -> Any:
    """As `world`, but nothing is checked at the end: a broken rule may leave anything behind."""
    await ledger.catalogue.append_meters([WINDOWED, EVENTWISE], "tests")
    _, now_us = await ledger.load_catalogue()
    with database.connect() as admin:
        yield World(database, ledger, admin, now_us)


@pytest.mark.parametrize("name", PLANTS)
async def test_a_rule_taken_out_is_noticed(planted: World, name: str) -> None:
    plant = PLANTS[name]
    planted.plant(plant.function, plant.rule, plant.instead)
    refused = (psycopg.Error, LedgerRefusedError, LedgerUnavailableError)
    with pytest.raises((AssertionError, pytest.fail.Exception, *refused)):
        await plant.play(planted)
