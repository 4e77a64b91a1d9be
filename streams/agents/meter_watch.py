"""Hop 9: Stripe's meters against the catalogue → findings in the ledger, for status and alerts.

A wrong meter shows in no answer of Stripe's: it takes every request, and the invoice is wrong. So
it is looked for at a worker's start, when the catalogue names other meters, and every hour, by one
worker for all. While Stripe is away nothing is noted and nothing is cleared.
"""

import asyncio
from typing import Final

import structlog

from streams.adapters.clock import Clock
from streams.adapters.ledger_pool import LedgerRefusedError
from streams.adapters.stripe import StripeUnreadableError
from streams.agents.catalogue_book import CatalogueBook
from streams.core.live_meter import check_meters
from streams.ports import LedgerUnavailableError, MeterLedger, MeterSource

EVERY_S: Final = 3_600.0
"""Nobody changes a meter every minute, and Stripe counts what is read of it."""
AGAIN_S: Final = 300.0
"""After a look that did not come to its end."""
TICK_S: Final = 2.0
log = structlog.get_logger("meters")


class MeterWatch:
    """One worker's turn at looking."""

    def __init__(
        self,
        book: CatalogueBook,
        ledger: MeterLedger,
        source: MeterSource,
        clock: Clock,
        *,
        livemode: bool,
    ) -> None:
        self._book = book
        self._ledger = ledger
        self._source = source
        self._clock = clock
        self._livemode = livemode
        self._tried: frozenset[str] | None = None
        self._compared: frozenset[str] | None = None
        """Names that the last look compared; None where it did not come to its end."""
        self._next_s = 0.0

    async def look(self) -> bool:
        """Looks if it is time to; whether it noted what it saw."""
        catalogue = self._book.catalogue
        if catalogue is None:
            return False
        names = frozenset(meter.event_name for meter in catalogue.from_now_on())
        now_s = self._clock.elapsed_s()
        if names == self._tried and now_s < self._next_s:
            return False
        # Whoever comes first looks for all; what nobody has compared yet waits for nobody.
        pause_s = EVERY_S / 2 if names == self._compared else 0.0
        self._tried, self._compared, self._next_s = names, None, now_s + AGAIN_S
        try:
            noted = await self._look(names, pause_s)
        except (LedgerUnavailableError, LedgerRefusedError, StripeUnreadableError) as error:
            log.warning("meters_not_compared", error=str(error))
            return False
        self._compared, self._next_s = names, now_s + EVERY_S
        return noted

    async def keep_looking(self) -> None:
        """Looks for as long as it runs."""
        while True:
            await self.look()
            await asyncio.sleep(TICK_S)

    async def _look(self, names: frozenset[str], pause_s: float) -> bool:
        look = await self._ledger.claim_meters(pause_s)
        if look is None:
            return False
        there = await self._source.meters()
        found = check_meters(names, there, livemode=self._livemode)
        for one in found:
            log.error("meter_wrong", event_name=one.event_name, rule=one.rule)
        return await self._ledger.note_meters(look, found)
