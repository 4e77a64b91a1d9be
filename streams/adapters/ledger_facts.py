"""Facts of a partition → one ledger transaction → applied, or the news that the ledger went back.

Repeatable any number of times and by two owners at once: the position row puts them in order,
readings keep the greatest count, everything else has an identity that is unique.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from streams.adapters import ledger_rows
from streams.adapters.ledger_pool import Connection, LedgerPool, LedgerRefusedError, Statements
from streams.core.fact import Applied, FactBatch, LedgerAnswer, Remembered, WentBack
from streams.core.growth import Life, lives_of

NOTHING_STORED: Final = -1

Where = dict[str, str | int]
Told = tuple[str, int, Callable[[], str]]


class LedgerFacts:
    """Where partitions put their facts."""

    def __init__(self, pool: LedgerPool) -> None:
        self._pool = pool
        self._sql = Statements("queries_facts.sql")

    async def apply_facts(self, batch: FactBatch) -> LedgerAnswer:
        """Everything of the batch and the position, in one transaction.

        Raises:
            LedgerUnavailableError: nothing is known to be kept; send the batch again.
            LedgerRefusedError: the log is not registered, a meter version is unknown here, or a
                value breaks a rule of the ledger.
        """
        answer = await self._pool.run(lambda conn: self._apply(conn, batch))
        if isinstance(answer, WentBack):
            mine = Remembered(batch.log_topic, batch.log_id, batch.partition, batch.acknowledged)
            return await self._pool.run(lambda conn: self._note(conn, mine, answer.stored))
        return answer

    async def behind(self, known: Sequence[Remembered]) -> list[tuple[Remembered, WentBack]]:
        """Of what workers remember: what this ledger does not hold.

        Each is noted, and publishing is halted for all unless a person has adopted all of them.

        Raises:
            LedgerUnavailableError: no answer.
        """
        return await self._pool.run(lambda conn: self._behind(conn, known))

    async def position(self, log_id: str, partition: int) -> int:
        """The offset up to which the ledger holds a partition's facts; -1 for none.

        Raises:
            LedgerUnavailableError: no answer.
        """
        parameters = {"log_id": log_id, "partition": partition}
        stored = await self._pool.run(
            lambda conn: self._sql.value(conn, "position_read", parameters)
        )
        return NOTHING_STORED if stored is None else int(stored)

    async def lives(self, root: str, partitions: int) -> tuple[Life, ...]:
        """The lives of a topic up to one of them, the first life first; empty where it is unknown.

        Args:
            root: the log that the last of them began with.
            partitions: what it has now, for lives of which no count was noted.

        Raises:
            LedgerUnavailableError: no answer.
        """
        found = await self._pool.run(lambda conn: self._sql.rows(conn, "log_lives", {"root": root}))
        return lives_of(found, partitions)

    async def _apply(self, conn: Connection, batch: FactBatch) -> LedgerAnswer:
        await self._register(conn, batch)
        where: Where = {"log_id": batch.log_id, "partition": batch.partition}
        head = {**where, "log_topic": batch.log_topic, "catalogue_hash": batch.catalogue_hash}
        stored = int(await self._sql.value(conn, "position_lock", head))
        if stored < batch.acknowledged:
            await conn.rollback()
            return WentBack(stored, batch.acknowledged)
        findings = await self._write(conn, batch, where)
        tail = {**head, "position": batch.position}
        position = int(await self._sql.value(conn, "position_advance", tail))
        return Applied(position, findings)

    async def _write(self, conn: Connection, batch: FactBatch, where: Where) -> int:
        told: tuple[Told, ...] = (
            ("levels", len(batch.levels), lambda: ledger_rows.levels(batch.levels)),
            (
                "entries",
                len(batch.events) + len(batch.corrections),
                lambda: ledger_rows.entries(batch.events, batch.corrections),
            ),
            ("parked", len(batch.parked), lambda: ledger_rows.parked(batch.parked)),
            ("cells", len(batch.cells), lambda: ledger_rows.cells(batch.cells)),
            ("canaries", len(batch.canaries), lambda: ledger_rows.canaries(batch.canaries)),
        )
        findings = 0
        for kind, count, rows in told:
            if count == 0:
                continue
            parameters = {**where, "rows": rows()}
            cursor = await self._sql.run(conn, f"apply_{kind}", parameters)
            # What was not taken is an old reading or a copy, or it contradicts: then it is noted.
            if cursor.rowcount < count and kind in {"levels", "entries", "cells"}:
                findings += int(await self._sql.value(conn, f"find_{kind}", parameters))
        return findings

    async def _register(self, conn: Connection, batch: FactBatch) -> None:
        names = {"log_id": batch.log_id, "log_topic": batch.log_topic}
        begun_with = batch.begun_with
        known = await self._sql.rows(conn, "log_known", names)
        if not known and begun_with is not None:
            await self._sql.run(conn, "log_register_first", names)
            known = await self._sql.rows(conn, "log_known", names)
        if not known:
            raise LedgerRefusedError(
                f"log_id: {batch.log_topic} has the topic id {batch.log_id}, but this ledger "
                "follows another log: the topic was recreated, or this is another cluster. A "
                "second log could count everything again: `tailrace topics adopt` opens it, and "
                "workers that are started after that remember what was counted before"
                if begun_with is not None
                else f"log_id: partition {batch.partition} of {batch.log_topic} came when the "
                "topic grew, of which this ledger does not know: it was restored from before "
                "that. `tailrace topics grow` makes it known again"
            )
        ((_, is_noted),) = known
        if not is_noted and begun_with is not None:
            await self._sql.run(conn, "log_note_span", {**names, "partitions": begun_with})

    async def _behind(
        self, conn: Connection, known: Sequence[Remembered]
    ) -> list[tuple[Remembered, WentBack]]:
        rows = msgspec.json.encode(
            [
                {
                    "n": n,
                    "log_id": r.log_id,
                    "partition": r.partition,
                    "acknowledged": r.acknowledged,
                }
                for n, r in enumerate(known)
            ]
        ).decode()
        found = await self._sql.rows(conn, "positions_behind", {"rows": rows})
        return [(known[n], await self._note(conn, known[n], stored)) for n, stored in found]

    async def _note(self, conn: Connection, mine: Remembered, stored: int) -> WentBack:
        """Notes the difference; halts publishing unless it was adopted as it is."""
        where = {
            "log_id": mine.log_id,
            "partition": mine.partition,
            "acknowledged": mine.acknowledged,
            "stored": stored,
        }
        detail = msgspec.json.encode({"topic": mine.log_topic, **where}).decode()
        row = {**where, "detail": detail}
        adopted = bool(await self._sql.value(conn, "note_went_back", row))
        return WentBack(stored, mine.acknowledged, adopted)
