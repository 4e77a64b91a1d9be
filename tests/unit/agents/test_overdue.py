"""Closed invoices: what one pass counts, and meters by which no worker starts."""

import asyncio

import pytest

from streams.agents.catalogue_book import CatalogueBook
from streams.agents.overdue import (
    LIMIT,
    PAUSE_S,
    OverduePass,
    UnpunctualMetersError,
    overdue_samples,
)
from streams.core.billing import CarryPass, Payer
from streams.core.catalogue import Catalogue
from streams.core.instant import DAY_US, HOUR_US
from streams.ports import LedgerUnavailableError
from tests.support.events import meter
from tests.unit.agents.outside import Clock
from tests.unit.agents.outside import Ledger as Catalogues
from tests.unit.agents.parts import StoppedError

BOOK = Catalogue((meter("api_calls"),), read_at_us=DAY_US)


class Ledger:
    def __init__(self) -> None:
        self.away = False
        self.found = CarryPass(0, 0, 0)
        self.customers = [Payer("acme", "cus_1", 72 * HOUR_US, HOUR_US // 4)]
        self.asked: list[int] = []

    async def carry_overdue(self, limit: int) -> CarryPass:
        self._answer()
        self.asked.append(limit)
        return self.found

    async def payers(self) -> list[Payer]:
        self._answer()
        return self.customers

    def _answer(self) -> None:
        if self.away:
            message = "connection refused"
            raise LedgerUnavailableError(message)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.mark.parametrize(
    ("found", "more"),
    [
        (CarryPass(0, 0, 0), False),
        (CarryPass(3, 2, 1), False),
        (CarryPass(LIMIT - 1, 1, 0), True),
    ],
)
async def test_a_pass_counts_what_it_did_and_says_whether_there_is_more(
    ledger: Ledger, found: CarryPass, more: bool
) -> None:
    ledger.found = found
    overdue = OverduePass(ledger)
    assert await overdue.look() is more
    figures = overdue.figures
    assert (figures.carried, figures.parked, figures.doubts) == found
    assert ledger.asked == [LIMIT]


async def test_a_ledger_that_is_away_is_asked_again_later(ledger: Ledger) -> None:
    ledger.away = True
    overdue = OverduePass(ledger)
    assert not await overdue.look()
    assert not await overdue.check(BOOK)
    assert overdue.figures.ledger_failures == 2
    assert not overdue.checked
    ledger.away = False
    assert await overdue.check(BOOK)
    assert overdue.checked


async def test_meters_that_cannot_make_an_invoice_are_refused_by_name(ledger: Ledger) -> None:
    ledger.customers = [Payer("acme", "cus_1", HOUR_US, HOUR_US // 4)]
    overdue = OverduePass(ledger)
    with pytest.raises(UnpunctualMetersError, match=r"meter api_calls: .* cus_1 .* 1 h of grace"):
        await overdue.check(BOOK)
    assert not overdue.checked


async def test_meters_are_compared_as_soon_as_the_ledger_answers_and_then_it_looks_for_ever(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        ledger.away = False
        if len(pauses) == 3:
            raise StoppedError
        ledger.found = CarryPass(LIMIT if len(pauses) == 1 else 0, 0, 0)

    async def may() -> bool:
        return len(pauses) != 2

    monkeypatch.setattr(asyncio, "sleep", sleep)
    book = CatalogueBook(Catalogues(), Clock())
    await book.refresh()
    ledger.away = True
    overdue = OverduePass(ledger)
    with pytest.raises(StoppedError):
        await overdue.keep_looking(book, may)
    assert pauses == [1.0, 0.01, PAUSE_S]
    assert overdue.checked
    assert ledger.asked == [LIMIT], "a ledger that went back is not asked"
    assert [value for _, _, value in overdue_samples(overdue.figures)] == [LIMIT, 0, 0]
