"""The ledger: one pool of connections, and what each part of the journey does with it.

`Ledger` is what agents and commands hold; it is both their `FactsLedger` and their `AttemptLedger`.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from streams.adapters.ledger_audit import LedgerAudit
from streams.adapters.ledger_carry import LedgerCarry
from streams.adapters.ledger_catalogue import LedgerCatalogue
from streams.adapters.ledger_facts import LedgerFacts
from streams.adapters.ledger_orders import LedgerOrders
from streams.adapters.ledger_pool import LedgerPool, LedgerRefusedError
from streams.adapters.ledger_publishing import LedgerPublishing
from streams.adapters.ledger_rejections import LedgerRejections
from streams.core.catalogue import MeterVersion
from streams.core.fact import FactBatch, LedgerAnswer, Remembered, WentBack
from streams.core.growth import Life
from streams.core.lane import Claim, LastAttempt, Settlement, Standing
from streams.core.orders import HeldRecord, Orders
from streams.crash_points import CrashAt, never

__all__ = ["Ledger", "LedgerRefusedError", "open_ledger"]


class Ledger:
    """One ledger database, by the parts of the journey that use it."""

    def __init__(
        self, pool: LedgerPool, *, account: str, livemode: bool, crash_at: CrashAt = never
    ) -> None:
        self.facts = LedgerFacts(pool)
        self.publishing = LedgerPublishing(pool, account, livemode=livemode, crash_at=crash_at)
        self.catalogue = LedgerCatalogue(pool)
        self.carry = LedgerCarry(pool)
        self.audit = LedgerAudit(pool)
        self.rejections = LedgerRejections(pool)
        self.operators = LedgerOrders(pool)

    async def apply_facts(self, batch: FactBatch) -> LedgerAnswer:
        """See `LedgerFacts.apply_facts`."""
        return await self.facts.apply_facts(batch)

    async def behind(self, known: Sequence[Remembered]) -> list[tuple[Remembered, WentBack]]:
        """See `LedgerFacts.behind`."""
        return await self.facts.behind(known)

    async def position(self, log_id: str, partition: int) -> int:
        """See `LedgerFacts.position`."""
        return await self.facts.position(log_id, partition)

    async def lives(self, root: str, partitions: int) -> tuple[Life, ...]:
        """See `LedgerFacts.lives`."""
        return await self.facts.lives(root, partitions)

    async def load_catalogue(self) -> tuple[list[MeterVersion], int]:
        """See `LedgerCatalogue.load_catalogue`."""
        return await self.catalogue.load_catalogue()

    async def notice_us(self) -> int:
        """See `LedgerCatalogue.notice_us`."""
        return await self.catalogue.notice_us()

    async def orders(self) -> Orders:
        """See `LedgerOrders.orders`."""
        return await self.operators.orders()

    async def report_held(self, held: HeldRecord, worker: str) -> None:
        """See `LedgerOrders.report_held`."""
        await self.operators.report_held(held, worker)

    async def cut_entries(self, limit: int) -> int:
        """See `LedgerPublishing.cut_entries`."""
        return await self.publishing.cut_entries(limit)

    async def claim(
        self,
        worker: str,
        limit: int,
        lease_s: int,
        last: LastAttempt | None = None,
        in_touch: Callable[[], bool] | None = None,
    ) -> list[Claim]:
        """See `LedgerPublishing.claim`."""
        return await self.publishing.claim(worker, limit, lease_s, last, in_touch)

    async def attempt_stands(self, last: LastAttempt | None) -> Standing:
        """See `LedgerPublishing.attempt_stands`."""
        return await self.publishing.attempt_stands(last)

    async def settle(self, settlement: Settlement) -> None:
        """See `LedgerPublishing.settle`."""
        await self.publishing.settle(settlement)


@asynccontextmanager
async def open_ledger(
    dsn: str, *, account: str = "default", livemode: bool = False, connections_max: int = 8
) -> AsyncIterator[Ledger]:
    """A ledger for as long as the block lasts; connects in the background, so it opens at once.

    Args:
        dsn: PostgreSQL address with a login of role ledger_service.
        account: name of the Stripe account; part of every identifier.
        livemode: whether the Stripe key writes real invoices.
        connections_max: pool size; publishing uses one per settlement in flight.
    """
    pool = LedgerPool(dsn, connections_max=connections_max)
    await pool.open()
    try:
        yield Ledger(pool, account=account, livemode=livemode)
    finally:
        await pool.close()
