"""The catalogue as this worker has it: read from the ledger again and again, never guessed."""

import asyncio
import contextlib
from typing import Final

import structlog

from streams.adapters.clock import Clock
from streams.core.catalogue import Catalogue, is_prefix
from streams.core.instant import DAY_US, HOUR_US
from streams.core.orders import Orders
from streams.ports import CatalogueLedger, LedgerUnavailableError

DEFAULT_HORIZON_US: Final = 7 * DAY_US
log = structlog.get_logger("catalogue")


class CatalogueContradictionError(Exception):
    """A line of the rule book is gone or changed: this is another ledger, or somebody edited it.

    Verdicts given so far rest on the old lines, so the worker stops instead of going on by others.
    """


class HorizonTooShortError(Exception):
    """A meter lets usage be later than twice what this worker's horizon covers.

    Between a late event and its copies there would be time enough for the first to be forgotten.
    Raise TAILRACE_HORIZON_H, or lower the meter's skew_max.
    """


class CatalogueBook:
    """The newest reading, and a way to ask for one that is younger than some moment."""

    def __init__(
        self, ledger: CatalogueLedger, clock: Clock, horizon_us: int = DEFAULT_HORIZON_US
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._horizon_us = horizon_us
        self._catalogue: Catalogue | None = None
        self.orders = Orders()
        """What operators ordered, of the same reading: there before anything is judged."""
        self._asked_at_s = float("-inf")
        self._changed = asyncio.Condition()
        self._wanted = asyncio.Event()

    @property
    def catalogue(self) -> Catalogue | None:
        """The newest reading, None before the first."""
        return self._catalogue

    def age_s(self) -> float:
        """Seconds since the newest reading was asked for."""
        return self._clock.elapsed_s() - self._asked_at_s

    async def refresh(self) -> bool:
        """Reads once; whether the ledger answered.

        Raises:
            CatalogueContradictionError: the new reading does not contain the old one.
            HorizonTooShortError: a meter accepts usage later than this worker can vouch for.
        """
        asked_at_s = self._clock.elapsed_s()
        try:
            # The ledger enforces the notice, so the ledger says how long a reading is good for.
            notice_us = await self._ledger.notice_us()
            versions, now_us = await self._ledger.load_catalogue()
            orders = await self._ledger.orders()
        except LedgerUnavailableError as error:
            log.warning("ledger_unavailable", doing="catalogue", error=str(error))
            return False
        catalogue = Catalogue(tuple(versions), now_us, notice_us)
        self._refuse_long_skews(catalogue)
        before = self._catalogue
        if before is not None and not is_prefix(before.versions, catalogue.versions):
            message = "the ledger's meter catalogue lost or changed lines that verdicts rest on"
            raise CatalogueContradictionError(message)
        if before is None or before.hash != catalogue.hash:
            log.info("catalogue", lines=len(catalogue.versions), hash=catalogue.hash.hex())
        self._catalogue, self._asked_at_s, self.orders = catalogue, asked_at_s, orders
        async with self._changed:
            self._changed.notify_all()
        return True

    def _refuse_long_skews(self, catalogue: Catalogue) -> None:
        for meter in catalogue.versions:
            if 2 * meter.skew_max_us > self._horizon_us:
                message = (
                    f"meter {meter.metric}: skew_max is {meter.skew_max_us // HOUR_US} h, more "
                    f"than half of the horizon of {self._horizon_us // HOUR_US} h: raise "
                    "TAILRACE_HORIZON_H on every worker, or lower the meter's skew_max"
                )
                raise HorizonTooShortError(message)

    async def keep_fresh(self, pause_s: float) -> None:
        """Reads for ever: every `pause_s` seconds, at once when somebody waits for a reading."""
        while True:
            answered = await self.refresh()
            wait_s = pause_s if answered else min(1.0, pause_s)
            self._wanted.clear()
            # Not `wait_for`: Python 3.11's forgets a cancellation that meets what it waited for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()

    async def younger_than(self, moment_s: float, deadline_s: float) -> Catalogue | None:
        """A reading asked for after `moment_s` of the elapsed clock; None past the deadline."""
        async with self._changed:
            try:
                async with asyncio.timeout(deadline_s):
                    await self._wait_for(moment_s)
            except TimeoutError:
                return None
        return self._catalogue

    def is_younger_than(self, moment_s: float) -> bool:
        """Whether the newest reading was asked for after that moment."""
        return self._asked_at_s > moment_s

    async def _wait_for(self, moment_s: float) -> None:
        while not self.is_younger_than(moment_s):
            self._wanted.set()
            await self._changed.wait()
