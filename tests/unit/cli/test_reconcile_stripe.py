"""Few reads: a day that is equal costs none of its hours, and a spent budget is named."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from decimal import Decimal

import pytest

from streams.cli.reconcile_stripe import (
    DAY_S,
    HOUR_S,
    BudgetSpentError,
    CellKey,
    Grain,
    LedgerSide,
    Observed,
    Pair,
    ReadBudget,
    observe,
)

ACME, GLOBEX = Pair("cus_1", "api_calls"), Pair("cus_2", "api_calls")
SPAN = range(10 * DAY_S, 20 * DAY_S)


def hour(day: int, number: int, pair: Pair = ACME) -> CellKey:
    start_s = day * DAY_S + number * HOUR_S
    return CellKey(*pair, start_s, start_s + HOUR_S)


class Stripe:
    """Sums by cell, and every read."""

    def __init__(self, sums: Mapping[CellKey, int]) -> None:
        self.sums = sums
        self.reads: list[tuple[Pair, int, int, Grain]] = []

    async def ask(self, pair: Pair, from_s: int, to_s: int, grain: Grain) -> dict[int, Decimal]:
        self.reads.append((pair, from_s, to_s, grain))
        width = HOUR_S if grain == "hour" else DAY_S
        found: dict[int, Decimal] = {}
        for cell, units in self.sums.items():
            if cell.pair == pair and from_s <= cell.start_s < to_s:
                start_s = cell.start_s // width * width
                found[start_s] = found.get(start_s, Decimal(0)) + units
        return found


def side(
    recorded: Mapping[CellKey, int], needed: frozenset[CellKey] = frozenset(), cell_s: int = HOUR_S
) -> LedgerSide:
    return LedgerSide(recorded, needed, {"api_calls": cell_s})


async def observed(
    stripe: Stripe, known: LedgerSide, pairs: tuple[Pair, ...] = (ACME,), reads: int = 100
) -> Observed:
    budget = ReadBudget(reads, 1_000, iter(range(1_000_000)).__next__)
    found = await observe(pairs, SPAN, known, stripe.ask, budget)
    assert budget.used == len(stripe.reads)
    return found


async def test_equal_days_cost_one_read_for_all_of_them() -> None:
    recorded = {hour(day, n): 5 for day in range(10, 20) for n in (1, 2)}
    stripe = Stripe(recorded)
    found = await observed(stripe, side(recorded))
    assert (found.sums, found.equal_cells, len(stripe.reads)) == ({}, 20, 1)


async def test_a_day_that_differs_is_looked_at_by_hours() -> None:
    recorded = {hour(12, 3): 5, hour(12, 4): 6, hour(13, 1): 7}
    stripe = Stripe({**recorded, hour(12, 4): 5})
    found = await observed(stripe, side(recorded))
    assert stripe.reads[1:] == [(ACME, 12 * DAY_S, 13 * DAY_S, "hour")]
    assert [int(found.sums[hour(12, n)]) for n in (3, 4)] == [5, 5]
    assert found.sums[hour(12, 9)] == 0
    assert found.equal_cells == 1


async def test_what_is_in_doubt_is_looked_at_though_its_day_is_equal() -> None:
    recorded = {hour(12, 3): 5}
    stripe = Stripe(recorded)
    found = await observed(stripe, side(recorded, frozenset({hour(12, 3)})))
    assert found.sums[hour(12, 3)] == 5


async def test_foreign_usage_on_a_day_the_ledger_does_not_know_is_seen() -> None:
    found = await observed(Stripe({hour(15, 7): 2}), side({}))
    assert found.sums[hour(15, 7)] == 2


async def test_days_in_a_row_share_a_page_of_hours() -> None:
    stripe = Stripe({hour(day, 1): 1 for day in (10, 11, 12, 13, 14, 17)})
    await observed(stripe, side({}))
    assert [(start // DAY_S, end // DAY_S) for _, start, end, _ in stripe.reads[1:]] == [
        (10, 14),
        (14, 15),
        (17, 18),
    ]


async def test_cells_of_a_day_need_no_hours() -> None:
    day = CellKey(*ACME, 12 * DAY_S, 13 * DAY_S)
    stripe = Stripe({hour(12, 3): 4})
    found = await observed(stripe, side({day: 5}, cell_s=DAY_S))
    assert found.sums == {day: Decimal(4)}
    assert len(stripe.reads) == 1


async def test_what_the_budget_does_not_reach_is_named() -> None:
    stripe = Stripe({hour(12, 3): 4})
    found = await observed(stripe, side({}), (ACME, GLOBEX), reads=1)
    assert found.not_asked == [ACME, GLOBEX], "half a look at a pair is none"
    assert found.sums == {}


async def test_reads_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    budget = ReadBudget(8, 2, lambda: now_s)
    for _ in range(8):
        await budget.take()
    assert now_s == pytest.approx(3.0)
    with pytest.raises(BudgetSpentError):
        await budget.take()
