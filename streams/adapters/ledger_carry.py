"""Invoices that close: what the ledger does about entries that missed theirs, and who pays when."""

from streams.adapters.ledger_pool import LedgerPool, Statements
from streams.core.billing import CarryPass, Payer


class LedgerCarry:
    """Billing deadlines, as the ledger keeps them."""

    def __init__(self, pool: LedgerPool) -> None:
        self._pool = pool
        self._sql = Statements("queries_carry.sql")

    async def carry_overdue(self, limit: int) -> CarryPass:
        """Carries or parks at most `limit` entries that missed their invoice, by their meters.

        Nothing while publishing is halted. Repeating it changes nothing.

        Raises:
            LedgerUnavailableError: no answer; what was overdue still is.
        """
        rows = await self._pool.run(
            lambda conn: self._sql.rows(conn, "carry_overdue", {"limit": limit})
        )
        return CarryPass(*rows[0])

    async def payers(self) -> list[Payer]:
        """Customers whose billing cycle is known, now or from a later date on.

        Raises:
            LedgerUnavailableError: no answer.
        """
        return [
            Payer(*row) for row in await self._pool.run(lambda conn: self._sql.rows(conn, "payers"))
        ]
