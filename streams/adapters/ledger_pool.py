"""The way into the ledger's database: one pool, whole transactions, named statements.

A connection problem becomes `LedgerUnavailableError`, which callers wait out: everything said to
the ledger may be said again. What the ledger refuses for good becomes `LedgerRefusedError`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import psycopg
import structlog
from psycopg import AsyncConnection, AsyncCursor
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from schemas.queries import Query, load_queries
from streams.adapters.clock import Clock, SystemClock
from streams.core.instant import wire_text
from streams.ports import LedgerUnavailableError

Row = TupleRow
Connection = AsyncConnection[Row]
Result = TypeVar("Result")

TOLD_EVERY_S: Final = 30.0
log = structlog.get_logger("ledger")

REPEATS_MAX: Final = 5
"""Deadlocks and lost races are repeated at once, this often; then the caller waits."""
_REPEATED: Final = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_UNAVAILABLE: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    PoolTimeout,
    PoolClosed,
    TooManyRequests,
    asyncio.TimeoutError,
)
_NOT_WHOLE: Final = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedFunction,
)
"""What a ledger says while a backup is put back into it, or before it is upgraded: a restore gives
the grants last, so nobody meets a half of its rows. It passes, or a person mends it."""
_REFUSED: Final = (psycopg.IntegrityError, psycopg.DataError, psycopg.errors.RaiseException)


class LedgerRefusedError(Exception):
    """The ledger refuses what it was told, and would again: a person has to look.

    Operator: the text names the field and the rule. Nothing of the transaction was kept.
    """


IDLE_MS_MAX: Final = 5_000
"""A worker that is suspended in the middle of a transaction holds the locks of its lanes: after so
long without a word the server ends it, and the lanes are others' again. Less than any lease."""


class LedgerPool:
    """Connections to one ledger; every use is one transaction."""

    def __init__(
        self,
        dsn: str,
        *,
        connections_max: int = 8,
        timeout_s: float = 10.0,
        idle_ms_max: int = IDLE_MS_MAX,
        clock: Clock | None = None,
    ) -> None:
        clock = SystemClock() if clock is None else clock
        self._away = _Trouble(dsn, clock, begins="ledger_unreachable", ends="ledger_reachable")
        self._broken = _Trouble(dsn, clock, begins="ledger_not_whole", ends="ledger_whole")
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            dsn,
            min_size=1,
            max_size=connections_max,
            timeout=timeout_s,
            open=False,
            # A pooled connection may have died with its server while it lay idle.
            check=AsyncConnectionPool.check_connection,
            kwargs={
                "application_name": "tailrace",
                "options": f"-c timezone=UTC -c idle_in_transaction_session_timeout={idle_ms_max}",
            },
        )

    async def open(self) -> None:
        """Starts connecting; does not wait, so a worker starts while the ledger is away."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Gives all connections back to the server."""
        await self._pool.close()

    async def run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """One transaction around `work`, repeated after deadlocks and lost races.

        Raises:
            LedgerUnavailableError: no answer, or none now; say it again later.
            LedgerRefusedError: the ledger refuses the content.
        """
        for repeat in range(1, REPEATS_MAX + 1):
            try:
                async with self._pool.connection() as conn:
                    self._away.over()
                    result = await work(conn)
                self._broken.over()
                return result
            except _REPEATED as error:
                if repeat == REPEATS_MAX:
                    raise LedgerUnavailableError(f"ledger: {error}") from error
            except psycopg.errors.ObjectNotInPrerequisiteState as error:
                # Before the others: psycopg counts it among those that may pass by themselves.
                raise LedgerRefusedError(refusal(error)) from error
            except (*_NOT_WHOLE, *_UNAVAILABLE) as error:
                raise self._unavailable(error) from error
            except _REFUSED as error:
                raise LedgerRefusedError(refusal(error)) from error
        raise LedgerUnavailableError("ledger: too many repetitions")

    def _unavailable(self, error: BaseException) -> LedgerUnavailableError:
        if isinstance(error, _NOT_WHOLE):
            self._broken.note(error)
            return LedgerUnavailableError(f"ledger: {error}; see `tailrace schema check`")
        # No connection, or a lost one; what a server answers is not its absence.
        if not isinstance(error, psycopg.Error) or error.sqlstate is None:
            self._away.note(error)
        return LedgerUnavailableError(f"ledger: {error}")


class _Trouble:
    """Since when it lasts: one line at the beginning, one now and then, one at the end."""

    def __init__(self, dsn: str, clock: Clock, *, begins: str, ends: str) -> None:
        self._begins, self._ends = begins, ends
        known = conninfo_to_dict(dsn)
        self._server = f"{known.get('host', 'local socket')}:{known.get('port', 5432)}"
        self._clock = clock
        self._since_us: int | None = None
        self._told_s = 0.0

    def note(self, error: BaseException) -> None:
        """A transaction met it."""
        now_s = self._clock.elapsed_s()
        if self._since_us is None:
            self._since_us = self._clock.now_us()
        elif now_s - self._told_s < TOLD_EVERY_S:
            return
        self._told_s = now_s
        since = wire_text(self._since_us)
        log.error(self._begins, server=self._server, since=since, error=str(error))

    def over(self) -> None:
        """It is over, if it was there."""
        if self._since_us is not None:
            log.warning(self._ends, server=self._server, since=wire_text(self._since_us))
            self._since_us = None


class Statements:
    """The named statements of one file of `schemas/ledger`."""

    def __init__(self, file: str) -> None:
        self._queries: Mapping[str, Query] = load_queries("ledger", file)

    async def run(
        self, conn: Connection, name: str, parameters: Mapping[str, Any] | None = None
    ) -> AsyncCursor[Row]:
        """Executes a statement by its name."""
        return await conn.execute(self._queries[name].statement, parameters)

    async def value(
        self, conn: Connection, name: str, parameters: Mapping[str, Any] | None = None
    ) -> Any:
        """The first column of the first row; None where there is no row."""
        cursor = await self.run(conn, name, parameters)
        row = await cursor.fetchone()
        return None if row is None else row[0]

    async def rows(
        self, conn: Connection, name: str, parameters: Mapping[str, Any] | None = None
    ) -> list[Row]:
        """All rows."""
        cursor = await self.run(conn, name, parameters)
        return await cursor.fetchall()


def refusal(error: psycopg.Error) -> str:
    """The database's own words with its hint: they name the field, the rule and the way out."""
    parts = [error.diag.message_primary or str(error)]
    parts.extend(p for p in (error.diag.message_detail, error.diag.message_hint) if p)
    return "; ".join(parts)
