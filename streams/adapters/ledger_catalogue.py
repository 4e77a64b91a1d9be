"""What the ledger is told beforehand: meters, customers, and the clusters behind sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from psycopg import Connection as SyncConnection

from connectors.source_registry import SourceIdentity
from schemas.queries import load_queries
from streams.adapters.ledger_pool import Connection, LedgerPool, Statements
from streams.core.catalogue import EARLY_MAX_US, MeterVersion
from streams.core.live_meter import MeterFinding


@dataclass(frozen=True, slots=True)
class Mapping:
    """Which Stripe customer pays for a tenant's windows that start at an instant or later."""

    tenant_id: str
    customer: str
    effective_from_us: int | None = None
    """On a boundary of all windows; None: from the beginning for a first mapping, else next."""
    anchor_us: int | None = None
    """Start of any of the customer's billing periods; None: no billing deadline is kept."""
    billing_interval: str | None = None
    """day, week, month or year; there exactly when the anchor is."""
    grace_us: int | None = None
    """Stripe's finalisation grace for this customer; None: the ledger's setting."""


class LedgerCatalogue:
    """Meters and customers, append-only and dated."""

    def __init__(self, pool: LedgerPool) -> None:
        self._pool = pool
        self._sql = Statements("queries_catalogue.sql")

    async def load_catalogue(self) -> tuple[list[MeterVersion], int]:
        """All meter versions and the ledger's time in microseconds, of one moment.

        Raises:
            LedgerUnavailableError: no answer; judge on with the last reading while it lasts.
        """
        return await self._pool.run(self._load)

    async def notice_us(self) -> int:
        """How far ahead of its start a changed meter must be announced, microseconds."""
        return int(await self._pool.run(lambda conn: self._sql.value(conn, "notice_us")))

    async def append_meters(
        self, versions: Sequence[MeterVersion], actor: str, reason: str | None = None
    ) -> None:
        """Adds meter versions, all or none.

        Raises:
            LedgerRefusedError: too little notice, off a window's boundary, backwards, not the next
                version, or a new metric whose usage was already dead-lettered as unknown.
            LedgerUnavailableError: no answer; look at the catalogue before you say it again.
        """
        rows = [version._asdict() for version in versions]
        parameters = {
            "rows": msgspec.json.encode(rows).decode(),
            "actor": actor,
            "reason": reason,
            "early_max_us": EARLY_MAX_US,
        }
        await self._pool.run(lambda conn: self._sql.run(conn, "append_meters", parameters))

    async def map_customer(self, mapping: Mapping, actor: str) -> int:
        """Maps a tenant; entries that waited for it can be sent at once. From when on, in us.

        Raises:
            LedgerRefusedError: off a window's boundary, or in a past that is billed already.
            LedgerUnavailableError: no answer; list the mappings before you say it again.
        """
        parameters = {
            "tenant_id": mapping.tenant_id,
            "customer": mapping.customer,
            "effective_from_us": mapping.effective_from_us,
            "anchor_us": mapping.anchor_us,
            "billing_interval": mapping.billing_interval,
            "grace_us": mapping.grace_us,
            "actor": actor,
            "reason": None,
        }
        return int(
            await self._pool.run(lambda conn: self._sql.value(conn, "map_customer", parameters))
        )

    async def customers(self) -> list[tuple[Mapping, str]]:
        """All mappings with the actor of each, by tenant and date."""
        rows = await self._pool.run(lambda conn: self._sql.rows(conn, "customers"))
        return [(Mapping(*row[:6]), row[6]) for row in rows]

    async def unmapped(self) -> dict[str, int]:
        """Tenants whose entries wait for a customer → how many entries."""
        return dict(await self._pool.run(lambda conn: self._sql.rows(conn, "unmapped")))

    async def claim_meters(self, pause_s: float) -> int | None:
        """The name of a look at Stripe's meters; None where any worker looked within `pause_s`.

        Raises:
            LedgerUnavailableError: no answer.
        """
        parameters = {"pause_ms": int(pause_s * 1_000)}
        look: int | None = await self._pool.run(
            lambda conn: self._sql.value(conn, "claim_meters", parameters)
        )
        return look

    async def note_meters(self, look: int, found: Sequence[MeterFinding]) -> bool:
        """Notes what a look found, and clears what it did not find again.

        False, and nothing done, where another look has begun since.

        Raises:
            LedgerUnavailableError: no answer; look again.
        """
        rows = [{"kind": one.kind, "event_name": one.event_name, "rule": one.rule} for one in found]
        parameters = {"look": look, "found": msgspec.json.encode(rows).decode()}
        return bool(
            await self._pool.run(lambda conn: self._sql.value(conn, "note_meters", parameters))
        )

    async def ledger_id(self) -> str:
        """The ledger's own identity, part of every identifier it sends to Stripe."""
        return str(await self._pool.run(lambda conn: self._sql.value(conn, "ledger_id")))

    async def _load(self, conn: Connection) -> tuple[list[MeterVersion], int]:
        # Whatever is added after this lock is dated by a later clock than the time read here, so
        # the reading is complete for everything before that time plus the notice.
        await self._sql.run(conn, "meters_settle")
        now_us = int(await self._sql.value(conn, "now_us"))
        rows = await self._sql.rows(conn, "meters")
        return [MeterVersion(*row) for row in rows], now_us


class LedgerSources:
    """Registered sources, over a plain connection: capture commands are not asynchronous."""

    def __init__(self, connection: SyncConnection[Any]) -> None:
        self._connection = connection
        self._queries = load_queries("ledger", "queries_catalogue.sql")

    def find(self, source: str) -> SourceIdentity | None:
        """The registered identity, or None."""
        row = self._run("source_find", {"source": source}).fetchone()
        return None if row is None else SourceIdentity(source, str(row[0]), int(row[1]))

    def add(self, identity: SourceIdentity) -> None:
        """Remembers an identity; leaves an existing one of that name as it is."""
        self._run("source_add", _columns(identity))

    def replace(self, old: SourceIdentity, new: SourceIdentity) -> bool:
        """Puts `new` in the place of `old`; False, and nothing done, when `old` is not there."""
        parameters = {
            **_columns(new),
            "old_system_identifier": old.system_identifier,
            "old_timeline": old.timeline,
        }
        return bool(self._run("source_replace", parameters).rowcount == 1)

    def _run(self, name: str, parameters: dict[str, str | int]) -> Any:
        with self._connection.transaction():
            return self._connection.execute(self._queries[name].statement, parameters)


def _columns(identity: SourceIdentity) -> dict[str, str | int]:
    return {
        "source": identity.source,
        "system_identifier": identity.system_identifier,
        "timeline": identity.timeline,
    }
