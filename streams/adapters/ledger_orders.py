"""What operators ordered in the ledger, and which records workers are held at."""

from collections import defaultdict

from streams.adapters.ledger_pool import Connection, LedgerPool, Statements
from streams.core.orders import HeldRecord, Orders, Skip


class LedgerOrders:
    """Skips and pauses to read, held records to report."""

    def __init__(self, pool: LedgerPool) -> None:
        self._pool = pool
        self._sql = Statements("queries_pauses.sql")

    async def orders(self) -> Orders:
        """Everything that stands ordered.

        Raises:
            LedgerUnavailableError: no answer; what was ordered before stands.
        """
        return await self._pool.run(self._orders)

    async def report_held(self, held: HeldRecord, worker: str) -> None:
        """Says that a record holds its partition; again and again while it does.

        Raises:
            LedgerUnavailableError: no answer; say it again later.
        """
        parameters = {
            "log_id": held.log_id,
            "partition": held.partition,
            "offset": held.offset,
            "fingerprint": held.fingerprint,
            "reason": held.reason,
            "record_bytes": held.record_bytes,
            "worker": worker,
        }
        await self._pool.run(lambda conn: self._sql.run(conn, "report_held", parameters))

    async def _orders(self, conn: Connection) -> Orders:
        skips: dict[tuple[str, int], dict[int, Skip]] = defaultdict(dict)
        for log_id, partition, *rest in await self._sql.rows(conn, "skips"):
            skip = Skip(*rest)
            skips[log_id, partition][skip.offset] = skip
        pauses: dict[str, int] = dict(await self._sql.rows(conn, "pauses_active"))
        return Orders(dict(skips), pauses)
