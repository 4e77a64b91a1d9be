"""A ledger with two meters, and short ways to tell it things and to look at it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import psycopg

from streams.adapters.ledger import Ledger
from streams.adapters.ledger_catalogue import Mapping
from streams.core.catalogue import MeterVersion
from streams.core.fact import (
    CorrectionFact,
    EventFact,
    FactBatch,
    LedgerAnswer,
    LevelFact,
    ParkedFact,
    Series,
)
from streams.core.lane import Claim, DeadKind, Evidence, MeterEventState, Settlement
from tests.support.postgres import Database
from tests.support.waiting import eventually

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
LOG = "11111111-2222-3333-4444-555555555555"
OTHER_LOG = "99999999-2222-3333-4444-555555555555"
TOPIC = "usage.events"
PARTITIONS = 12

WINDOWED = MeterVersion(
    metric="api_calls", version=1, event_name="api_calls", window_us=MINUTE_US, publish="window",
    scale=0, skew_max_us=DAY_US, close_delay_us=0, carry="review", aggregation="sum", rules=1,
    effective_from_us=0,
)  # fmt: skip
EVENTWISE = WINDOWED._replace(metric="jobs", event_name="jobs", publish="event")


def event_id(name: str) -> bytes:
    return sha256(name.encode()).digest()[:16]


def uuid_of(name: str) -> str:
    return str(UUID(bytes=event_id(name)))


@dataclass
class World:
    """`now_us` is when the ledger was filled: windows are numbered back from it."""

    database: Database
    ledger: Ledger
    admin: psycopg.Connection
    now_us: int
    position: int = -1
    acknowledged: int = -1
    partition: int = 3
    levels: dict[Series, LevelFact] = field(default_factory=dict)

    def series(self, tenant: str = "acme", *, back: int = 5, metric: str = "api_calls") -> Series:
        start_us = self.now_us // MINUTE_US * MINUTE_US - back * MINUTE_US
        return Series(tenant, metric, 1, start_us, start_us + MINUTE_US, 0)

    def level(self, series: Series, count: int, total: int, *, birth: int = 7) -> LevelFact:
        return LevelFact(series, count, total, total * 1_000_003 + count, birth)

    def event(self, name: str, units: int, tenant: str = "acme", *, back: int = 5) -> EventFact:
        series = self.series(tenant, back=back, metric="jobs")
        return EventFact(
            event_id(name), units + 1, series, series.window_start_us + 1_500_000, units, 1
        )

    def correction(self, name: str, units: int, series: Series) -> CorrectionFact:
        return CorrectionFact(
            event_id=event_id(name), content=units % 2**128, series=series,
            occurred_at_us=series.window_start_us, delta_units=units, correction_key=name,
            target_event_id=event_id("target"), reason="measured twice", authorized_by="ops",
            offset=2,
        )  # fmt: skip

    def parked(self, name: str | None, **changes: Any) -> ParkedFact:
        series = self.series()
        fact = ParkedFact(
            kind="review", reason="late", offset=11, event_id=event_id(name) if name else None,
            content=5 if name else None, source="sandbox", tenant_id="acme", metric="api_calls",
            units=4, series=series, occurred_at_us=series.window_start_us,
            received_at_us=self.now_us, detail='{"rule": "late"}', record=b"{}",
        )  # fmt: skip
        return replace(fact, **changes)

    def batch(self, **facts: Any) -> FactBatch:
        self.position += 1
        return FactBatch(
            TOPIC, LOG, self.partition, PARTITIONS, self.acknowledged, self.position, "00" * 16,
            **facts,
        )  # fmt: skip

    async def tell(self, **facts: Any) -> LedgerAnswer:
        """One new batch of facts."""
        return await self.ledger.apply_facts(self.batch(**facts))

    async def map(self, tenant: str = "acme", customer: str = "cus_1", **how: Any) -> int:
        return await self.ledger.catalogue.map_customer(Mapping(tenant, customer, **how), "tests")

    async def claim(self, limit: int = 16, lease_s: int = 60) -> list[Claim]:
        return await self.ledger.claim("worker-1", limit, lease_s)

    async def only_claim(self) -> Claim:
        (claim,) = await self.claim()
        return claim

    async def settle(
        self,
        claim: Claim,
        state: MeterEventState = "recorded",
        *,
        dead: DeadKind | None = None,
        delay_ms: int | None = None,
        executed: bool = False,
        evidence: Evidence | None = None,
    ) -> None:
        await self.ledger.settle(
            Settlement(
                claim=claim, state=state, dead_kind=dead, key_generation=claim.key_generation,
                possibly_executed=executed, attempt_used=state != "recorded",
                retry_delay_ms=delay_ms, evidence=evidence or Evidence(state, request_id="req_1"),
            )
        )  # fmt: skip

    async def drain(self) -> list[Claim]:
        """Cuts and records until nothing is due; what was sent, in order."""
        sent: list[Claim] = []
        await self.ledger.cut_entries(10_000)
        while claims := await self.claim() or await self._claim_of_first_second():
            for claim in claims:
                await self.settle(claim)
            sent.extend(claims)
        return sent

    async def _claim_of_first_second(self) -> list[Claim]:
        """What a window got in its first second is due a second after it began, not at once."""
        soon = (
            "SELECT count(*) FROM ledger.lane WHERE next_due_at > now() AND NOT paused"
            " AND next_due_at = date_trunc('minute', now()) + interval '1 second'"
        )
        if not self.value(soon):
            return []
        await eventually("the window's first second is over", lambda: not self.value(soon))
        return await self.claim()

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.admin.execute(query.encode(), parameters).fetchall()

    def value(self, query: str, *parameters: Any) -> Any:
        return self.rows(query, *parameters)[0][0]

    def plant(self, function: str, rule: str, instead: str) -> None:
        """Writes another rule, or none, into one of the database's functions or views."""
        ((text,),) = self.rows(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = %s"
            " AND pronamespace = 'ledger'::regnamespace UNION ALL SELECT 'CREATE OR REPLACE VIEW"
            " ledger.' || relname || ' AS ' || pg_get_viewdef(oid) FROM pg_class WHERE relname = %s"
            " AND relnamespace = 'ledger'::regnamespace LIMIT 1",
            function,
            function,
        )
        assert rule in text, f"{function} does not say {rule!r}"
        self.admin.execute(text.replace(rule, instead).encode())

    def expire_leases(self) -> None:
        """What waiting for the end of every lease would do."""
        self.admin.execute(
            "UPDATE ledger.lane SET claimed_until = now(), next_due_at = now()"
            " WHERE claimed_until IS NOT NULL"
        )
        self.due_now()

    def due_now(self) -> None:
        """What waiting for every retry would do."""
        self.admin.execute(
            "UPDATE ledger.meter_event SET next_attempt_at = now()"
            " WHERE next_attempt_at IS NOT NULL"
        )
        self.admin.execute(
            "UPDATE ledger.lane SET next_due_at = now()"
            " WHERE lane_id IN (SELECT lane_id FROM ledger.meter_event"
            "                   WHERE next_attempt_at IS NOT NULL)"
        )

    def check(self) -> None:
        """What must hold after every step."""
        broken = self.rows(
            "SELECT * FROM ledger.balance WHERE total + decided"
            " <> settled + pending + held + dead + ambiguous"
        )
        assert broken == []
        assert self.rows(
            "SELECT entry_id FROM ledger.meter_event_entry WHERE live"
            " GROUP BY 1 HAVING count(*) > 1"
        ) == []  # fmt: skip
        assert self.rows(
            "SELECT m.meter_event_id FROM ledger.meter_event m"
            " JOIN ledger.meter_event_entry x ON x.meter_event_id = m.meter_event_id AND x.live"
            " JOIN ledger.meter_log e ON e.entry_id = x.entry_id GROUP BY m.meter_event_id"
            " HAVING sum(e.delta) <> m.units OR m.value <> m.units::text"
        ) == []  # fmt: skip
        late = self.rows(
            "SELECT lane_id FROM ledger.lane l WHERE NOT paused AND claimed_until IS NULL"
            " AND next_due_at IS NULL AND EXISTS (SELECT FROM ledger.meter_event m"
            " WHERE m.lane_id = l.lane_id AND m.next_attempt_at IS NOT NULL)"
        )
        assert late == []

    def balance(self, column: str, tenant: str = "acme") -> int:
        return int(
            self.value(
                f"SELECT coalesce(sum({column}), 0) FROM ledger.balance WHERE tenant_id = %s",
                tenant,
            )
        )


def values(claims: Iterable[Claim]) -> list[int]:
    return [int(claim.value) for claim in claims]
