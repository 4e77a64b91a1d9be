"""Billing periods keep their anchor, deadlines their grace, slow meters are named."""

import calendar
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.billing import (
    BillingCycle,
    Offered,
    Payer,
    agreed_cycle,
    cycle_problem,
    deadline_us,
    lead_us,
    period_of,
    straddle_us,
    unpunctual,
)
from streams.core.catalogue import Catalogue
from streams.core.instant import DAY_US, HOUR_US, LAST_US, MINUTE_US, SECOND_US, from_us, to_us
from tests.support.events import meter
from tests.support.intervals import INTERVALS

NOVEMBER_US = to_us(datetime(2026, 11, 1, tzinfo=UTC))
instants = st.integers(0, LAST_US - 1)
anchors = st.integers(0, LAST_US // SECOND_US - 1).map(lambda s: s * SECOND_US)


@given(anchors, st.sampled_from(INTERVALS), instants)
def test_a_period_holds_its_instant_and_touches_its_neighbours(
    anchor_us: int, interval: str, at_us: int
) -> None:
    start_us, end_us = period_of(anchor_us, interval, at_us)
    assert start_us <= at_us < end_us
    assert start_us % DAY_US == end_us % DAY_US == anchor_us % DAY_US
    if end_us < LAST_US:
        assert period_of(anchor_us, interval, end_us - 1) == (start_us, end_us)
        assert period_of(anchor_us, interval, end_us).start_us == end_us


@given(anchors, instants)
def test_a_month_begins_on_the_anchors_day_or_the_last_one(anchor_us: int, at_us: int) -> None:
    start = from_us(period_of(anchor_us, "month", at_us).start_us)
    last = calendar.monthrange(start.year, start.month)[1]
    assert start.day == min(from_us(anchor_us).day, last)


@given(anchors)
def test_the_anchor_itself_begins_a_period(anchor_us: int) -> None:
    assert all(period_of(anchor_us, each, anchor_us).start_us == anchor_us for each in INTERVALS)


def test_the_last_period_ends_beyond_the_last_year() -> None:
    start_us, end_us = period_of(NOVEMBER_US, "month", LAST_US - 1)
    assert from_us(start_us) == datetime(9999, 12, 1, tzinfo=UTC)
    assert end_us - start_us == 31 * DAY_US


def test_the_deadline_is_the_end_with_grace_less_the_margin() -> None:
    cycle = BillingCycle(NOVEMBER_US, "month", HOUR_US)
    margin_us = 15 * MINUTE_US
    before = to_us(datetime(2026, 11, 30, 23, 59, 59, 999999, tzinfo=UTC))
    assert from_us(deadline_us(cycle, before, margin_us)) == datetime(
        2026, 12, 1, 0, 45, tzinfo=UTC
    )
    assert from_us(deadline_us(cycle, before + 1, margin_us)) == datetime(
        2027, 1, 1, 0, 45, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("cycle", "rule"),
    [
        (BillingCycle(NOVEMBER_US, "month"), None),
        (BillingCycle(0, "day", DAY_US - 1), None),
        (BillingCycle(0, "week", 72 * HOUR_US), None),
        (BillingCycle(0, "day", DAY_US), "grace: must be shorter than the billing period"),
        (BillingCycle(0, "month", 72 * HOUR_US + 1), "grace: Stripe allows at most 72 hours"),
        (BillingCycle(0, "month", -1), "grace: Stripe allows at most 72 hours"),
        (BillingCycle(-SECOND_US, "month"), "anchor: Stripe's anchors are whole seconds"),
        (BillingCycle(1, "month"), "anchor: Stripe's anchors are whole seconds"),
    ],
)
def test_a_cycle_is_one_that_stripe_can_have(cycle: BillingCycle, rule: str | None) -> None:
    problem = cycle_problem(cycle)
    assert problem is None if rule is None else (problem or "").startswith(rule)


def test_a_window_that_two_periods_share_is_bounded_by_what_lies_before_the_anchor() -> None:
    anchor_us = NOVEMBER_US + to_us(datetime(1970, 1, 1, 14, 37, 21, tzinfo=UTC))
    hourly, daily = meter("a"), meter("b", window_us=DAY_US)
    assert straddle_us(anchor_us, hourly) == 37 * MINUTE_US + 21 * SECOND_US
    assert straddle_us(anchor_us, daily) == timedelta(hours=14, minutes=37, seconds=21) // (
        timedelta(microseconds=1)
    )
    assert straddle_us(anchor_us, meter("c", publish="event")) == 0
    assert straddle_us(NOVEMBER_US, daily) == 0


def test_a_meters_lead_is_what_it_lets_usage_wait() -> None:
    assert lead_us(meter("a", close_delay_us=MINUTE_US)) == DAY_US + 2 * MINUTE_US
    assert lead_us(meter("a", close_delay_us=MINUTE_US, publish="event")) == DAY_US


def test_meters_that_cannot_make_the_shortest_grace_are_named_with_the_way_out() -> None:
    slow = meter("slow", skew_max_us=HOUR_US, close_delay_us=30 * SECOND_US)
    exact = meter("exact", skew_max_us=45 * MINUTE_US, close_delay_us=0)
    late = meter("late", skew_max_us=45 * MINUTE_US + 1, publish="event")
    payers = [
        Payer(*p, 15 * MINUTE_US) for p in (("globex", "cus_2", DAY_US), ("acme", "cus_1", HOUR_US))
    ]
    found = unpunctual([slow, exact, late], payers)
    assert [(one.metric, one.payer.tenant_id) for one in found] == [
        ("slow", "acme"),
        ("late", "acme"),
    ]
    assert found[0].needs_us == HOUR_US + 16 * MINUTE_US
    assert str(found[0]) == (
        "meter slow: usage may be 1 h 16 min on its way to an invoice (skew_max, close_delay and "
        "15 min of margin), but Stripe closes those of cus_1 (tenant acme) after 1 h of grace; "
        "raise the grace in Stripe and give it with `tailrace customers map --grace`, or lower the "
        "meter's skew_max or close_delay"
    )


def test_the_margin_is_the_ledgers_own() -> None:
    exact = meter("exact", skew_max_us=45 * MINUTE_US, close_delay_us=0)
    assert unpunctual([exact], [Payer("acme", "cus_1", HOUR_US, 15 * MINUTE_US)]) == ()
    (found,) = unpunctual([exact], [Payer("acme", "cus_1", HOUR_US, 20 * MINUTE_US)])
    assert "20 min of margin" in found.rule


def test_without_a_known_billing_cycle_no_meter_is_too_slow() -> None:
    assert unpunctual([meter("a")], []) == ()


def test_a_customer_without_grace_is_said_to_have_none() -> None:
    (found,) = unpunctual([meter("a")], [Payer("acme", "cus_1", 0, 0)])
    assert "after 0 s of grace" in found.rule


def test_only_versions_that_judge_from_now_on_are_asked() -> None:
    old, now, next_ = (
        meter("a", version=n + 1, effective_from_us=at) for n, at in enumerate((0, 10, 30))
    )
    other = meter("b", effective_from_us=90)
    catalogue = Catalogue((old, now, next_, other), read_at_us=10)
    assert set(catalogue.from_now_on()) == {now, next_, other}


MONTHLY = Offered(NOVEMBER_US, "month", 1)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ([MONTHLY], BillingCycle(NOVEMBER_US, "month")),
        ([MONTHLY, Offered(0, "month", 1)], BillingCycle(NOVEMBER_US, "month")),
        ([], "it has no subscription that recurs by days, weeks, months or years"),
        ([Offered(0, None, 1)], "it has no subscription that recurs"),
        ([Offered(0, "hour", 1)], "it has no subscription that recurs"),
        ([Offered(0, "month", 37)], "it has no subscription that recurs"),
        ([Offered(0, "month", 0)], "it has no subscription that recurs"),
        ([Offered(0, "month", 3)], BillingCycle(0, "3 months")),
        ([Offered(0, "month", 3), Offered(0, "month", 3)], BillingCycle(0, "3 months")),
        # Quarters that begin in different months.
        ([Offered(0, "month", 3), MONTHLY._replace(interval_count=3)], "its 2 subscriptions have"),
        # The same twelve months; thirty days are a month only in a month of thirty days.
        ([Offered(0, "year", 1), Offered(0, "month", 12)], BillingCycle(0, "year")),
        ([MONTHLY, Offered(NOVEMBER_US, "day", 30)], "its 2 subscriptions have different"),
        ([MONTHLY, Offered(DAY_US, "month", 1)], "its 2 subscriptions have different"),
        ([MONTHLY, Offered(NOVEMBER_US, "year", 1)], "its 2 subscriptions have different"),
        ([MONTHLY, Offered(NOVEMBER_US, "month", 3)], "its 2 subscriptions have different"),
    ],
)
def test_a_customers_cycle_is_the_one_that_all_its_subscriptions_share(
    offered: list[Offered], expected: BillingCycle | str
) -> None:
    found = agreed_cycle(offered, NOVEMBER_US + 5)
    if isinstance(expected, str):
        assert isinstance(found, str)
        assert found.startswith(expected)
    else:
        assert found == expected
