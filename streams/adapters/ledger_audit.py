"""What audits, status pages and traces read from the ledger, and the seals that audits set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from streams.adapters.ledger_pool import Connection, LedgerPool, Statements
from streams.core.audit import Row, Tally
from streams.ports import AuditNote


class HourSum(NamedTuple):
    """What the ledger holds as recorded at Stripe for one customer, meter and UTC hour."""

    customer: str
    event_name: str
    hour_s: int
    units: int
    meter_events: int


class Amounts(NamedTuple):
    """All windows together: total + decided = settled + pending + held + dead + ambiguous."""

    events: int
    total: int
    decided: int
    settled: int
    pending: int
    held: int
    dead: int
    ambiguous: int


class CanaryAge(NamedTuple):
    """The youngest canary of a partition and its age, microseconds of the ledger's clock."""

    source: str
    partition: int
    received_at_us: int
    age_us: int


@dataclass(frozen=True, slots=True)
class Misplaced:
    """What can only come from a bug: amounts that nobody would ever send."""

    entries: int
    """Entries that are neither covered nor on the work list, or both."""
    levels: int
    """Series whose entries differ from their level though nothing is due."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything the ledger knows of one identity and its window, as rows with column names."""

    parked: list[dict[str, Any]]
    levels: list[dict[str, Any]]
    entries: list[dict[str, Any]]
    meter_events: list[dict[str, Any]]
    attempts: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a tenant's metric that contains an instant."""

    tenant_id: str
    metric: str
    occurred_at_us: int


_PARKED = ("parked_id", "kind", "reason", "state", "decided_by", "why", "partition", "offset",
           "units", "detail")  # fmt: skip
_LEVEL = ("catalogue_version", "window_start_us", "window_end_us", "shard", "partition",
          "birth_offset", "count", "total", "held", "due_at_us")  # fmt: skip
_ENTRY = ("entry_id", "kind", "revision", "delta", "event_id", "actor", "reason", "created_at_us",
          "state", "meter_event_id")  # fmt: skip
_METER_EVENT = ("meter_event_id", "customer", "event_name", "value", "timestamp_s", "identifier",
                "generation", "state", "dead_kind", "superseded_by", "settled_at_us")  # fmt: skip
_ATTEMPT = ("attempt_id", "meter_event_id", "key_generation", "worker", "started_at_us",
            "finished_at_us", "outcome", "http_status", "code", "message", "request_id",
            "cause")  # fmt: skip


class LedgerAudit:
    """Reading the ledger; each method is one transaction and may raise LedgerUnavailableError."""

    def __init__(self, pool: LedgerPool) -> None:
        self._pool = pool
        self._sql = Statements("queries_audit.sql")

    async def cells(self, source: str, from_us: int, to_us: int) -> list[Row]:
        """Verdicts per minute and class, `from_us` inclusive, `to_us` exclusive."""
        span = {"source": source, "from_us": from_us, "to_us": to_us}
        rows = await self._rows("cells", span)
        return [
            Row(minute, name, Tally(count, int(digest))) for minute, name, count, digest in rows
        ]

    async def canaries_arrived(self, source: str, token: str) -> set[int]:
        """The partitions whose canary with this token has settled."""
        rows = await self._rows("canaries_arrived", {"source": source, "token": token})
        return {row[0] for row in rows}

    async def canary_ages(self) -> list[CanaryAge]:
        """How long ago the youngest canary of each partition was recorded."""
        return [CanaryAge(*row) for row in await self._rows("canary_ages")]

    async def sums(self, from_s: int, to_s: int) -> list[HourSum]:
        """Recorded meter events by hour of their timestamp; both bounds on full hours."""
        rows = await self._rows("sums", {"from_s": from_s, "to_s": to_s})
        return [HourSum(c, e, hour, int(units), n) for c, e, hour, units, n in rows]

    async def amounts(self) -> Amounts:
        """The ledger's own equation, over all windows."""
        row = (await self._rows("amounts"))[0]
        return Amounts(*(int(value) for value in row))

    async def misplaced(self) -> Misplaced:
        """Looks for amounts that no list would ever bring up again; reads whole tables."""
        return Misplaced(*(await self._rows("misplaced"))[0])

    async def parked_by_class(self, source: str) -> dict[tuple[str, str], int]:
        """Parked records of a source by (kind, reason), decided or not."""
        rows = await self._rows("parked_by_class", {"source": source})
        return {(kind, reason): count for kind, reason, count in rows}

    async def sealed(self, source: str, from_us: int, to_us: int) -> dict[int, Tally]:
        """Sealed minutes with what was sealed."""
        span = {"source": source, "from_us": from_us, "to_us": to_us}
        rows = await self._rows("sealed", span)
        return {minute: Tally(count, int(digest)) for minute, count, digest in rows}

    async def seal(self, source: str, minutes: Mapping[int, Tally], note: str) -> None:
        """Seals judged minutes and notes the completed audit; `note` is a JSON object text."""
        rows = [
            {"minute_us": minute, "count": tally.count, "digest": str(tally.digest)}
            for minute, tally in sorted(minutes.items())
        ]
        text = msgspec.json.encode(rows).decode()

        async def work(conn: Connection) -> None:
            await self._sql.run(conn, "seal", {"source": source, "rows": text})
            await self._sql.run(conn, "audit_note", {"source": source, "detail": note})
            await self._sql.run(conn, "prune_canaries")

        await self._pool.run(work)

    async def last_audits(self) -> list[AuditNote]:
        """The last audit of each source, with its age and its verdict."""
        return [AuditNote(*row) for row in await self._rows("last_audits")]

    async def findings(self, limit: int) -> list[tuple[int, str, str, str, int]]:
        """Open contradictions: id, kind, subject, detail as JSON text, when (us)."""
        rows = await self._rows("findings", {"limit": limit})
        return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]

    async def status(self) -> dict[str, Any]:
        """Figures for metrics and the status line."""
        text = (await self._rows("status"))[0][0]
        figures: dict[str, Any] = msgspec.json.decode(text)
        return figures

    async def trace(self, event_id: str | None, window: Window | None) -> Trace:
        """What became of an identity (UUID text) and of the window it fell into."""
        which = {
            "event_id": event_id,
            "tenant_id": None if window is None else window.tenant_id,
            "metric": None if window is None else window.metric,
            "occurred_at_us": None if window is None else window.occurred_at_us,
        }

        async def work(conn: Connection) -> Trace:
            parked = await self._sql.rows(conn, "trace_parked", which)
            levels = await self._sql.rows(conn, "trace_level", which)
            entries = await self._sql.rows(conn, "trace_entries", which)
            covering = {"entries": [row[0] for row in entries]}
            events = await self._sql.rows(conn, "trace_meter_events", covering)
            tried = {"events": [row[0] for row in events]}
            attempts = await self._sql.rows(conn, "trace_attempts", tried)
            return Trace(
                _named(_PARKED, parked),
                _named(_LEVEL, levels),
                _named(_ENTRY, entries),
                _named(_METER_EVENT, events),
                _named(_ATTEMPT, attempts),
            )

        return await self._pool.run(work)

    async def _rows(self, name: str, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        return await self._pool.run(lambda conn: self._sql.rows(conn, name, parameters))


def _named(names: tuple[str, ...], rows: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in rows]
