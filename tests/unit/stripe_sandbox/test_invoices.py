from datetime import UTC, datetime
from decimal import Decimal

import pytest

from sandbox.stripe_sandbox.fact import Interval, Subscription
from sandbox.stripe_sandbox.invoices import Line, boundary, lines
from tests.unit.stripe_sandbox.driver import Memory

HOUR_S = 3_600


def second(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


NOVEMBER_S, DECEMBER_S = second("2026-11-01"), second("2026-12-01")
SUBSCRIPTION = Subscription("sub_1", "cus_1", ["api_calls"], NOVEMBER_S)


class Month:
    """A customer whose November ends."""

    def __init__(self) -> None:
        self.memory = Memory(now_us=NOVEMBER_S * 10**6)
        self.memory.engine.remember([SUBSCRIPTION])
        self.number = 0

    def use(self, value: str, at: str, received: str) -> str:
        self.number += 1
        form = {
            "event_name": "api_calls",
            "identifier": f"id-{self.number}",
            "timestamp": str(second(at)),
            "payload[stripe_customer_id]": "cus_1",
            "payload[value]": value,
        }
        path = "/v1/billing/meter_events"
        assert self.memory.post(path, form, second(received) * 10**6).status == 200
        return form["identifier"]

    def lines(self, now: str) -> list[Line]:
        return list(lines(self.memory.state, SUBSCRIPTION, second(now) * 10**6))


def test_late_usage_for_a_final_invoice_is_billed_by_nobody() -> None:
    month = Month()
    month.use("7", "2026-11-30T23:00", "2026-12-01T00:59:59")
    month.use("10", "2026-11-30T23:50", "2026-12-01T01:00")
    (line,) = month.lines("2026-12-02")
    assert (line.quantity, line.unbilled, line.final) == (Decimal(7), Decimal(10), True)
    # The summaries show all of it: equality with them proves nothing about the invoice.
    query = {"customer": "cus_1", "start_time": str(NOVEMBER_S), "end_time": str(DECEMBER_S)}
    body = month.memory.get("/v1/billing/meters/mtr_test_1/event_summaries", query, 10**18).body
    rows = body["data"]
    assert isinstance(rows, list)
    assert rows[0]["aggregated_value"] == 17.0


def test_an_invoice_is_open_until_its_grace_is_over() -> None:
    month = Month()
    month.use("7", "2026-11-30T23:00", "2026-11-30T23:30")
    assert not month.lines("2026-12-01T00:59:59")[0].final
    assert month.lines("2026-12-01T01:00")[0].final


def test_each_period_has_its_own_line_and_edges_belong_to_the_later_one() -> None:
    month = Month()
    month.use("1", "2026-11-30T23:59:59", "2026-12-01T00:30")
    month.use("2", "2026-12-01T00:00", "2026-12-01T00:30")
    assert [(line.period.start_s, line.quantity) for line in month.lines("2026-12-02")] == [
        (NOVEMBER_S, Decimal(1)),
        (DECEMBER_S, Decimal(2)),
    ]


def test_a_negative_period_is_invoiced_as_nothing() -> None:
    month = Month()
    month.use("5", "2026-11-30T10:00", "2026-11-30T11:00")
    month.use("-8", "2026-11-30T10:00", "2026-11-30T11:00")
    (line,) = month.lines("2026-12-02")
    assert (line.quantity, line.usage) == (Decimal(0), Decimal(-3))


@pytest.mark.parametrize(
    ("cancelled_at", "quantity"), [("2026-12-01T00:30", 0), ("2026-12-01T02:00", 5)]
)
def test_a_cancellation_helps_only_before_the_invoice_is_final(
    cancelled_at: str, quantity: int
) -> None:
    month = Month()
    identifier = month.use("5", "2026-11-30T10:00", "2026-11-30T11:00")
    form = {"event_name": "api_calls", "type": "cancel", "cancel[identifier]": identifier}
    path = "/v1/billing/meter_event_adjustments"
    assert month.memory.post(path, form, second(cancelled_at) * 10**6).status == 200
    (line,) = month.lines("2026-12-02")
    assert line.quantity == quantity


@pytest.mark.parametrize(
    ("interval", "number", "expected"),
    [
        ("hour", 2, "2026-01-31T16:37:21"),
        ("day", 1, "2026-02-01T14:37:21"),
        ("week", 1, "2026-02-07T14:37:21"),
        ("month", 1, "2026-02-28T14:37:21"),
        ("month", 2, "2026-03-31T14:37:21"),
        ("month", 11, "2026-12-31T14:37:21"),
        ("month", 25, "2028-02-29T14:37:21"),
    ],
)
def test_periods_follow_the_anchor(interval: Interval, number: int, expected: str) -> None:
    anchor_s = second("2026-01-31T14:37:21")
    subscription = Subscription("sub_2", "cus_1", [], anchor_s, interval)
    assert boundary(subscription, number) == second(expected)


def test_a_quarter_is_three_months() -> None:
    anchor_s = second("2026-11-30T14:37:21")
    quarterly = Subscription("sub_2", "cus_1", [], anchor_s, "month", interval_count=3)
    assert boundary(quarterly, 1) == second("2027-02-28T14:37:21")
    assert boundary(quarterly, 2) == second("2027-05-30T14:37:21")


def test_what_is_not_metered_has_no_lines() -> None:
    month = Month()
    assert month.lines("2026-12-02") == []
    stranger = Subscription("sub_3", "cus_1", ["nobody"], NOVEMBER_S)
    assert list(lines(month.memory.state, stranger, 10**18)) == []


def test_the_api_shows_anchor_and_current_period() -> None:
    month = Month()
    at_us = (DECEMBER_S + HOUR_S) * 10**6
    body = month.memory.get("/v1/subscriptions", {"customer": "cus_1"}, at_us).body
    rows = body["data"]
    assert isinstance(rows, list)
    (item,) = rows[0]["items"]["data"]
    assert rows[0]["billing_cycle_anchor"] == NOVEMBER_S
    assert item["current_period_start"] == DECEMBER_S
    assert item["current_period_end"] == second("2027-01-01")
    assert month.memory.get("/v1/subscriptions", {"customer": "cus_2"}, at_us).body["data"] == []
