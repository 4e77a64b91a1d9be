"""Hop 9: entries that missed their invoice → carried, or parked for a person, by their meter.

Runs beside publishing and does not need Stripe: while it is down at a month's end, amounts move
into the open period instead of waiting to be sent for a closed one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

import structlog

from streams.adapters.metrics import Sample
from streams.agents.catalogue_book import CatalogueBook
from streams.core.billing import unpunctual
from streams.core.catalogue import Catalogue
from streams.ports import LedgerUnavailableError, OverdueLedger

LIMIT: Final = 500
"""Entries of one pass: a transaction of moderate length, whatever has piled up."""
PAUSE_S: Final = 5.0
"""Far below the margin of a deadline, so that nothing waits for its decision for long."""
log = structlog.get_logger("overdue")


class UnpunctualMetersError(Exception):
    """Usage may be on time for its meter and too late for its customer's invoice.

    Such usage would be carried or parked every month, so the worker does not start by these meters.
    The text names each meter, the customer, and what to change.
    """


@dataclass(slots=True)
class OverdueFigures:
    """Counts since the start."""

    carried: int = 0
    parked: int = 0
    doubts: int = 0
    ledger_failures: int = 0


def overdue_samples(figures: OverdueFigures) -> Iterator[Sample]:
    """The figures of closed invoices, behind /metrics."""
    yield "usage_missed_invoice_total", "carried", figures.carried
    yield "usage_missed_invoice_total", "parked", figures.parked
    yield "usage_missed_invoice_total", "ambiguous", figures.doubts


class OverduePass:
    """One worker's share; several at a time share the lanes."""

    def __init__(self, ledger: OverdueLedger) -> None:
        self._ledger = ledger
        self.checked = False
        """Whether meters and customers were compared: nothing is published before."""
        self.figures = OverdueFigures()

    async def check(self, catalogue: Catalogue) -> bool:
        """Compares meters with the customers' grace, once at start; whether the ledger answered.

        Raises:
            UnpunctualMetersError: with every meter that cannot make an invoice.
        """
        try:
            payers = await self._ledger.payers()
        except LedgerUnavailableError as error:
            self.figures.ledger_failures += 1
            log.warning("ledger_unavailable", doing="payers", error=str(error))
            return False
        found = unpunctual(catalogue.from_now_on(), payers)
        if found:
            raise UnpunctualMetersError("; ".join(str(one) for one in found))
        self.checked = True
        return True

    async def look(self) -> bool:
        """One pass; whether there may be more to do at once."""
        try:
            found = await self._ledger.carry_overdue(LIMIT)
        except LedgerUnavailableError as error:
            self.figures.ledger_failures += 1
            log.warning("ledger_unavailable", doing="carry", error=str(error))
            return False
        self.figures.carried += found.carried
        self.figures.parked += found.parked
        self.figures.doubts += found.doubts
        if any(found):
            log.warning(
                "missed_invoice", carried=found.carried, parked=found.parked, doubts=found.doubts
            )
        return found.carried + found.parked >= LIMIT

    async def keep_looking(self, book: CatalogueBook, may: Callable[[], Awaitable[bool]]) -> None:
        """Compares meters and customers once, then looks for ever, at once while there is more.

        Args:
            book: the meter catalogue, waited for.
            may: asked before each look: a ledger that went back knows nothing of what was sent, and
                would carry what is on an invoice already.

        Raises:
            UnpunctualMetersError: with every meter that cannot make an invoice.
        """
        while not self.checked:
            catalogue = await book.younger_than(float("-inf"), PAUSE_S)
            if catalogue is None or not await self.check(catalogue):
                await asyncio.sleep(1.0)
        while True:
            more = await may() and await self.look()
            await asyncio.sleep(0.01 if more else PAUSE_S)
