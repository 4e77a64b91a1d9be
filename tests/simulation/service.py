"""The service's database: a key registry and an outbox, transactions that end either way.

What was committed stands in `Service.committed`, apart from what was written for the pipeline: the
oracle reads only that. Identity and content are those that the outbox's rules give, written without
the product: the stream computes them again and counts no record that they do not fit.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from tests.simulation.timeline import Timeline
from tests.simulation.turns import Bell
from tests.support.outbox import content as content_of
from tests.support.outbox import identity as identity_of

SOURCE = "shop"
CANARY = "tailrace.canary"
LONG_US = 60_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Kind = Literal["usage", "correction", "conflict", "canary"]


@dataclass(frozen=True, slots=True)
class Use:
    """One call of `record_usage` or `record_correction`."""

    tenant_id: str
    metric: str
    quantity: str
    event_key: str
    occurred_us: int | None = None
    kind: Literal["usage", "correction", "canary"] = "usage"
    target: str | None = None
    partition: int = -1
    """Which partition a canary proves to be alive."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the outbox, committed or about to be."""

    kind: Kind
    use: Use
    event_id: str
    content: str
    occurred_us: int
    received_us: int
    first: "Row | None" = None
    """For a conflict: the row of the first recording."""
    review: bool = False
    """Whether a correction is more than the service decides by itself."""
    shard: int = 0
    """0: its tenant is not sharded; else counted from 1, for ever that of the first recording."""


@dataclass(slots=True)
class Transaction:
    """Open until it ends; its keys are locked meanwhile."""

    rows: list[Row] = field(default_factory=list)
    began_us: int = 0


class Service:
    """Registry, outbox, and what is true."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.clock_ahead_us = 0
        self.registry: dict[tuple[str, str, str], Row] = {}
        self.conflicts: set[tuple[str, str]] = set()
        self.locked: dict[tuple[str, str, str], Transaction] = {}
        self.running: list[Transaction] = []
        """Transactions that have not ended."""
        self.outbox: list[Row] = []
        """In the order of commits, which is the order in which Debezium reads."""
        self.written = Bell(timeline)
        """Rings when there is more in the outbox."""
        self.committed: list[Row] = []
        """Each row once, re-emissions left out."""
        self.rolled_back: list[Row] = []
        self.limit = Decimal(3)
        """What a correction may come to without a person's word."""
        self.shards = {"acme": 3}
        """Tenants too busy for one partition; holds for identities recorded from then on."""
        self._shard_of: dict[str, int] = {}
        """Of each event id that was committed."""

    def now_us(self) -> int:
        return self.timeline.now_us() + self.clock_ahead_us

    def begin(self) -> Transaction:
        transaction = Transaction(began_us=self.now_us())
        self.running.append(transaction)
        return transaction

    def record(self, transaction: Transaction, use: Use) -> str:
        """recorded, duplicate, conflict, or locked: another transaction has the key just now."""
        key = use.kind, use.tenant_id, use.event_key
        if self.locked.setdefault(key, transaction) is not transaction:
            return "locked"
        now_us = self.now_us()
        event_id, content = _digests(use)
        occurred_us = now_us if use.occurred_us is None else use.occurred_us
        first = self._first(transaction, key)
        if first is None:
            row = Row(use.kind, use, event_id, content, occurred_us, now_us)
            review = use.kind == "correction" and abs(Decimal(use.quantity)) > self.limit
            transaction.rows.append(replace(row, review=review, shard=self._shard(use, event_id)))
            return "recorded"
        if first.content == content:
            self.timeline.strike("usage recorded twice")
            return "duplicate"
        known = {(r.event_id, r.content) for r in transaction.rows} | self.conflicts
        if (event_id, content) not in known:
            row = Row("conflict", use, event_id, content, occurred_us, now_us, first)
            transaction.rows.append(replace(row, shard=first.shard))
        return "conflict"

    def _shard(self, use: Use, event_id: str) -> int:
        """A function of identity alone; a correction goes where its target went."""
        if use.target is not None:
            return self._shard_of[use.target]
        shards = self.shards.get(use.tenant_id)
        return 0 if shards is None else 1 + UUID(event_id).int % shards

    def _first(self, transaction: Transaction, key: tuple[str, str, str]) -> Row | None:
        for row in transaction.rows:
            if (row.kind, row.use.tenant_id, row.use.event_key) == key:
                return row
        return self.registry.get(key)

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Commits or rolls back; all of it, at one instant."""
        self.running = [one for one in self.running if one is not transaction]
        self.locked = {k: t for k, t in self.locked.items() if t is not transaction}
        if not commit:
            self.rolled_back += transaction.rows
            if transaction.rows:
                self.timeline.strike("transaction rolled back")
            self.timeline.note("rolled back", len(transaction.rows))
            return
        if transaction.rows and self.now_us() - transaction.began_us > LONG_US:
            self.timeline.strike("transaction open for minutes")
        for row in transaction.rows:
            if row.kind == "conflict":
                self.conflicts.add((row.event_id, row.content))
            else:
                self.registry[row.kind, row.use.tenant_id, row.use.event_key] = row
                self._shard_of[row.event_id] = row.shard
            self.committed.append(row)
            self.outbox.append(row)
            self.timeline.note("committed", row.kind, row.event_id, row.use.quantity)
        self.written.ring()

    def open_since_us(self) -> int:
        """No transaction that may still commit began before this."""
        return min((t.began_us for t in self.running), default=self.now_us())

    def emit_canaries(self, tenants: Sequence[str]) -> list[Row]:
        """One row per partition, under a tenant that is at home there."""
        transaction, number = self.begin(), len(self.committed)
        for partition, tenant_id in enumerate(tenants):
            key = f"{partition}:{number}"
            self.record(
                transaction, Use(tenant_id, CANARY, "0", key, kind="canary", partition=partition)
            )
        self.end(transaction, commit=True)
        return transaction.rows

    def emit_again(self, from_us: int, to_us: int) -> int:
        """Rows received in a span go out once more, as an operator repairs a hole."""
        again = [
            row
            for row in self.committed
            if from_us <= row.received_us < to_us and row.kind != "canary"
        ]
        self.outbox += again
        self.written.ring()
        self.timeline.note("emitted again", len(again))
        return len(again)


def wire_of(row: Row) -> tuple[bytes, bytes]:
    """Key and value of the record that Debezium makes of a row."""
    use = row.use
    kafka_key = f"{use.tenant_id}#{row.shard}" if row.shard else use.tenant_id
    wire: dict[str, Any] = {
        "v": 1, "type": row.kind, "source": SOURCE, "event_id": row.event_id,
        "tenant_id": use.tenant_id, "event_key": use.event_key, "kafka_key": kafka_key,
        "shard": row.shard, "metric": use.metric, "occurred_at": _text(row.occurred_us),
        "received_at": _text(row.received_us), "content": row.content, "content_version": 1,
        "attributes": {},
    }  # fmt: skip
    wire["delta" if use.kind == "correction" else "quantity"] = use.quantity
    if use.kind == "canary":
        wire |= {"partition": use.partition, "token": row.event_id}
    if use.kind == "correction":
        wire |= {"reason": "wrong", "authorized_by": "ops", "review": row.review}
        wire["target_event_id"] = use.target or ""
    if row.first is not None:
        wire["first_content"] = row.first.content
        wire["first_received_at"] = _text(row.first.received_us)
    return kafka_key.encode(), json.dumps(wire).encode()


def other_content(use: Use, quantity: str) -> Use:
    """The same key, telling something else."""
    return replace(use, quantity=quantity)


def _digests(use: Use) -> tuple[str, str]:
    """Event id as uuid text, content as hex digits."""
    named = SOURCE, use.tenant_id, use.event_key
    identity = identity_of(*named) if use.kind != "correction" else identity_of(use.kind, *named)
    given = "" if use.occurred_us is None else _text(use.occurred_us)
    rest = (use.target or "") if use.kind == "correction" else given
    content = content_of(identity, use.metric, use.quantity, rest)
    return str(UUID(bytes=identity)), content.hex()


def _text(at_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=at_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
