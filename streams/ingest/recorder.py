"""Events of one call → one transaction of the outbox, committed before this returns.

Rules are asked where they stand, in SQL: all events are recorded at once, and where the database
refuses some it says which, and the others are recorded without them.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from schemas.queries import load_queries
from streams.ingest.outcome import (
    AGAIN,
    RETRY_AFTER,
    Asked,
    CallRefusedError,
    Contents,
    Outcome,
    Refused,
    Stored,
)

Connection = AsyncConnection[TupleRow]
Result = TypeVar("Result")

ROUNDS_MAX: Final = 3
"""A meter that is pushed or withdrawn between two looks changes what is refused."""
WAITING_PER_CONNECTION: Final = 8
ASKED_S_MAX: Final = 2.0
"""Whoever asks whether we are ready wants to hear it soon."""
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_BUSY: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)
_AWAY: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
    PoolTimeout,
    PoolClosed,
    TooManyRequests,
)
_NOT_INSTALLED: Final = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedFunction,
)
log = structlog.get_logger("ingest")


class Recorder:
    """The way into one outbox."""

    def __init__(self, dsn: str, *, connections_max: int, timeout_s: float) -> None:
        """Does not connect yet.

        Args:
            dsn: of a member of metering_writer.
            connections_max: calls that are recorded at a time; others wait.
            timeout_s: for how long a call may take, waiting included.
        """
        self._queries = load_queries("outbox", "queries_ingest.sql")
        self._timeout_s = timeout_s
        self._late: set[asyncio.Task[Any]] = set()
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            dsn,
            min_size=1,
            max_size=connections_max,
            max_waiting=connections_max * WAITING_PER_CONNECTION,
            timeout=timeout_s,
            open=False,
            # A pooled connection may have died with its server while it lay idle.
            check=AsyncConnectionPool.check_connection,
            configure=self._configure,
            kwargs={
                "autocommit": True,
                "application_name": "tailrace-ingest",
                # A server that is gone without a word is found out, and its connection given up.
                "keepalives_idle": 5,
                "keepalives_interval": 5,
                "keepalives_count": 2,
                "tcp_user_timeout": int(timeout_s * 1000),
                # Ours, whatever the role or the database has: a retry decides here, not a snapshot.
                "options": "-c timezone=UTC -c default_transaction_isolation=read\\ committed"
                f" -c statement_timeout={int(timeout_s * 1000)}"
                f" -c idle_in_transaction_session_timeout={int(timeout_s * 1000)}",
            },
        )

    async def open(self) -> None:
        """Starts connecting; does not wait, so the process starts while the database is away."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Gives all connections back."""
        await self._pool.close()

    async def trouble(self) -> str | None:
        """Why nothing can be recorded now; None when it can."""
        try:
            able = await self._in_time(ASKED_S_MAX, self._may_record())
        except CallRefusedError as error:
            return error.what
        return None if able else "this login may not record here, or the server is a standby"

    async def record(self, events: Sequence[Asked], traceparent: str | None) -> list[Outcome]:
        """What became of each event, in their order; all that is stored is committed.

        Args:
            events: as they were asked for.
            traceparent: the caller's trace, carried in the rows.

        Raises:
            CallRefusedError: 503, and nothing is told: some may be recorded, and repeating is safe.
        """
        return await self._in_time(self._timeout_s, self._recorded(events, traceparent))

    async def _in_time(self, timeout_s: float, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of some work, or none after a time: cancelling may take its own time.

        Where the network is cut, ending a statement waits for an answer too. The producer does not.
        """
        task = asyncio.create_task(work)
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if done:
            return task.result()
        self._late.add(task)
        task.add_done_callback(self._forget)
        task.cancel()
        raise CallRefusedError(503, "the outbox did not answer in time", AGAIN, RETRY_AFTER, "late")

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.info("call_ended_late", error=str(task.exception()))

    async def _may_record(self) -> bool:
        async with self._reached() as conn:
            ((able,),) = await self._rows(conn, "may_record", {})
        return bool(able)

    async def _recorded(self, events: Sequence[Asked], traceparent: str | None) -> list[Outcome]:
        refused: dict[int, Refused] = {}
        async with self._reached() as conn:
            for _ in range(ROUNDS_MAX):
                kept = [index for index in range(len(events)) if index not in refused]
                items = _ENCODER.encode([events[index].item for index in kept]).decode()
                try:
                    stored = await self._committed(conn, items, traceparent) if kept else []
                except psycopg.errors.InvalidParameterValue:
                    for index, *problem in await self._rows(
                        conn, "event_problems", {"items": items}
                    ):
                        event = events[kept[index]]
                        refused[kept[index]] = Refused(event.problem(*problem))
                else:
                    found: dict[int, Outcome] = {**refused, **dict(zip(kept, stored, strict=True))}
                    return [found[index] for index in range(len(events))]
        raise CallRefusedError(
            503, "the catalogue changes just now", AGAIN, RETRY_AFTER, "catalogue"
        )

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[Connection]:
        """A connection for a while; whatever fails there becomes an answer.

        A commit whose answer did not come may have happened. That is an error like the others: the
        producer repeats, and the keys tell.
        """
        try:
            async with self._pool.connection() as conn:
                yield conn
        except _NOT_INSTALLED as error:
            log.error("outbox_not_whole", error=str(error))
            what = "the outbox is not installed, or this service may not record in it"
            raise CallRefusedError(503, what, AGAIN, {"Retry-After": "30"}, "not_whole") from error
        except _BUSY as error:
            what = "another transaction holds one of these keys"
            raise CallRefusedError(503, what, AGAIN, RETRY_AFTER, "held") from error
        except psycopg.DataError as error:
            # The reader let something through that PostgreSQL does not take.
            log.error("event_not_taken", error=str(error))
            what = f"the database takes none of it: {error.diag.message_primary or error}"
            raise CallRefusedError(
                400, what, "send events one by one to find the one", why="data"
            ) from error
        except _AWAY as error:
            log.warning("outbox_away", error=str(error) or type(error).__name__)
            raise CallRefusedError(
                503, "the outbox did not answer", AGAIN, RETRY_AFTER, "away"
            ) from error

    async def _committed(
        self, conn: Connection, items: str, traceparent: str | None
    ) -> list[Stored]:
        async with conn.transaction():
            if traceparent is not None:
                await conn.execute(
                    "SELECT set_config('metering.traceparent', %s, true)", (traceparent,)
                )
            rows = await self._rows(conn, "record_events", {"items": items})
            asked = [
                (index, received_at)
                for index, _, status, received_at in rows
                if status == "conflict"
            ]
            contents = await self._contents(conn, items, asked) if asked else {}
        return [
            Stored(status, event_id, received_at, contents.get(index))
            for index, event_id, status, received_at in rows
        ]

    async def _contents(
        self, conn: Connection, items: str, asked: Sequence[tuple[int, Any]]
    ) -> dict[int, Contents]:
        values = {
            "items": items,
            "indexes": [index for index, _ in asked],
            "received": [received_at for _, received_at in asked],
        }
        rows = await self._rows(conn, "conflict_contents", values)
        return {
            index: Contents(offered.hex(), first.hex(), received_at, metric, quantity, occurred_at)
            for index, offered, first, received_at, metric, quantity, occurred_at in rows
        }

    async def _rows(
        self, conn: Connection, name: str, values: Mapping[str, object]
    ) -> list[TupleRow]:
        cursor = await conn.execute(self._queries[name].statement, values)
        return await cursor.fetchall()

    async def _configure(self, conn: Connection) -> None:
        await conn.execute(self._queries["lasting_commits"].statement)
