"""Stripe's sums lag and requests are in doubt: only what stands still is judged."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from streams.cli import audit_stripe
from streams.cli.audit_report import StripePart
from streams.cli.audit_stripe import Cells, Hour, Limits, Settled, Sums, judge_cell

CELL = Hour("cus_1", "api_calls", 3600)
OTHER = Hour("cus_2", "api_calls", 7200)
SPAN = range(10_800)


@pytest.mark.parametrize(
    ("before", "observed", "after", "verdict"),
    [
        (Settled(5, 0), 5, Settled(5, 0), "equal"),
        (Settled(5, 1), 5, Settled(5, 1), "equal"),
        (Settled(5, 0), 4, Settled(5, 0), "short"),
        (Settled(5, 0), 6, Settled(5, 0), "over"),
        (Settled(5, 1), 6, Settled(5, 1), "open"),
        (Settled(5, 0), 7, Settled(7, 0), "open"),
        (Settled(0, 0), 3, Settled(0, 0), "over"),
    ],
)
def test_a_cell_is_judged_only_when_it_stood_still(
    before: Settled, observed: int, after: Settled, verdict: str
) -> None:
    assert judge_cell(before, Decimal(observed), after) == verdict


class Stripe:
    """Answers each round with the next of its sums, the last one for ever."""

    def __init__(self, *rounds: Sums) -> None:
        self.rounds: Iterator[Sums] = iter(rounds)
        self.current: Sums = {}
        self.asked: list[tuple[str, str, int, int]] = []

    async def ask(self, customer: str, event_name: str, from_s: int, to_s: int) -> Sums:
        self.current = next(self.rounds, self.current)
        self.asked.append((customer, event_name, from_s, to_s))
        return {cell: s for cell, s in self.current.items() if cell[:2] == (customer, event_name)}


async def compared(
    stripe: Stripe, cells: Cells, limits: Limits, meters: frozenset[str] = frozenset({"api_calls"})
) -> StripePart:
    ticks = iter(range(1_000))
    return await audit_stripe._rounds(
        lambda: cells, stripe.ask, set(meters), SPAN, limits, lambda: float(next(ticks))
    )


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_stripe, "PAUSE_S", 0.0)


async def test_a_sum_that_lags_is_asked_again_until_it_has_followed() -> None:
    stripe = Stripe({CELL: Decimal(3)}, {CELL: Decimal(4)}, {CELL: Decimal(5)})
    part = await compared(stripe, {CELL: Settled(5, 0)}, Limits(patience_s=50))
    assert (part.equal, part.findings) == (1, [])
    assert stripe.asked == [("cus_1", "api_calls", 0, 10_800)] * 3


async def test_a_sum_that_stays_short_is_lost_and_one_above_is_double() -> None:
    sums = {CELL: Decimal(4), OTHER: Decimal(9)}
    stripe = Stripe(sums)
    part = await compared(stripe, {CELL: Settled(5, 0), OTHER: Settled(8, 0)}, Limits(patience_s=4))
    assert [(f.lost, f.double) for f in part.findings] == [(1, 0), (0, 1)]
    assert "settled 5, Stripe says 4" in part.findings[0].text


async def test_an_hour_that_only_stripe_knows_is_double() -> None:
    foreign = Hour("cus_1", "api_calls", 0)
    stripe = Stripe({CELL: Decimal(5), foreign: Decimal(1)})
    part = await compared(stripe, {CELL: Settled(5, 0)}, Limits(patience_s=2))
    assert [(f.lost, f.double) for f in part.findings] == [(0, 1)]


async def test_what_is_in_doubt_is_open_and_no_finding() -> None:
    part = await compared(Stripe({CELL: Decimal(9)}), {CELL: Settled(5, 1)}, Limits())
    assert (part.open, part.findings) == (1, [])


async def test_a_meter_that_stripe_does_not_have_is_named() -> None:
    part = await compared(Stripe({}), {CELL: Settled(5, 0)}, Limits(), frozenset())
    assert [f.subject for f in part.findings] == ["cus_1 api_calls"]
    assert "no active meter" in part.findings[0].text


async def test_what_a_missing_meter_refused_is_owed_and_not_lost() -> None:
    part = await compared(Stripe({}), {CELL: Settled(0, 2)}, Limits(), frozenset())
    assert (part.open, part.findings) == (1, [])


async def test_a_cell_beyond_the_span_is_asked_for_too() -> None:
    late = Hour("cus_1", "api_calls", 14_400)
    stripe = Stripe({late: Decimal(5)})
    await compared(stripe, {late: Settled(5, 0)}, Limits())
    assert stripe.asked == [("cus_1", "api_calls", 0, 18_000)]


async def test_a_budget_asks_the_latest_first_and_says_what_was_not_asked() -> None:
    stripe = Stripe({OTHER: Decimal(8)})
    cells = {CELL: Settled(5, 0), OTHER: Settled(8, 0)}
    part = await compared(stripe, cells, Limits(pairs_max=1))
    assert (part.equal, part.skipped, part.findings) == (1, 1, [])
    assert [asked[0] for asked in stripe.asked] == ["cus_2"]


async def test_nothing_settled_asks_nothing() -> None:
    stripe = Stripe({})
    part = await compared(stripe, {}, Limits())
    assert (part.equal, part.open, stripe.asked) == (0, 0, [])
