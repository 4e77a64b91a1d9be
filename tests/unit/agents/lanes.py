"""Publishing's surroundings: the ledger's lanes, Stripe, a clock that is told when to move."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from streams.agents.publish import Lent, Publisher
from streams.agents.publish_limits import PublishLimits
from streams.core.instant import HOUR_US, SECOND_US
from streams.core.lane import Claim, Settlement
from streams.core.observation import Answer, Observation
from streams.crash_points import CrashAt, never
from streams.ports import LedgerUnavailableError
from tests.support.events import T0_US

LIMITS: Final = PublishLimits(
    worker="w1", lanes=4, lease_s=60, request_s_max=13.0, rate_per_s=1_000
)
NOW_US: Final = T0_US + HOUR_US


def claim(number: int = 1, **changes: Any) -> Claim:
    plain = Claim(
        lane_id=number,
        meter_event_id=number,
        attempt_id=number,
        customer="cus_1",
        event_name="api_calls",
        value="5",
        timestamp_s=T0_US // SECOND_US,
        identifier=f"m1:{number}",
        payload_hash="",
        key_generation=1,
        attempts_used=0,
        previous_attempts=0,
        first_attempt_at_us=NOW_US,
        possibly_executed=False,
        now_us=NOW_US,
        lease_until_us=NOW_US + 60 * SECOND_US,
    )
    return replace(plain, **changes)


def recorded(number: int = 1) -> Answer:
    return Answer(200, parsed=True, identifier=f"m1:{number}")


REFUSED_KEY: Final = Answer(401, parsed=True, error_type="invalid_request_error")
DOWN: Final = Answer(500, parsed=True)
THROTTLED: Final = Answer(429, parsed=True, rate_limited_reason="global-rate")


class Clock:
    """Stands still unless moved."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def now_us(self) -> int:
        return NOW_US

    def elapsed_s(self) -> float:
        return self.now_s


@dataclass
class Lanes:
    """The ledger's side of publishing."""

    waiting: list[Claim] = field(default_factory=list)
    due: int = 0
    away: int = 0
    """How many calls from now on are not answered."""
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[int] = field(default_factory=list)
    settled: list[Settlement] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[object]] | None = None
    """Runs while a claim is on its way back."""
    writing: asyncio.Event | None = None
    """Settlements are not written before it is set."""

    async def cut_entries(self, limit: int) -> int:
        self._check()
        cut, self.due = min(limit, self.due), 0
        return cut

    async def claim(self, worker: str, limit: int, lease_s: int) -> Sequence[Claim]:
        self._check()
        assert (worker, lease_s) == ("w1", 60)
        self.asked.append(limit)
        claims, self.waiting = self.waiting[:limit], self.waiting[limit:]
        if self.meanwhile is not None:
            await self.meanwhile()
        return claims

    async def settle(self, settlement: Settlement) -> None:
        self._check()
        if self.writing is not None:
            await self.writing.wait()
        self.settled.append(settlement)

    def _check(self) -> None:
        if self.away:
            self.away -= 1
            self.refused.set()
            message = "connection refused"
            raise LedgerUnavailableError(message)


@dataclass
class Sink:
    """Stripe's side: answers as told, by default with a success."""

    answers: list[Observation] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None
    gate: asyncio.Event | None = None
    """Nothing is answered before it is set."""

    async def send(self, meter_event: Claim, idempotency_key: str) -> Observation:
        self.sent.append((meter_event.identifier, idempotency_key))
        if self.meanwhile is not None:
            self.meanwhile()
        if self.gate is not None:
            await self.gate.wait()
        return self.answers.pop(0) if self.answers else recorded(meter_event.lane_id)


class Bench:
    """A publisher and its surroundings."""

    def __init__(self, limits: PublishLimits = LIMITS, crash_at: CrashAt = never) -> None:
        self.ledger, self.sink, self.clock = Lanes(), Sink(), Clock()
        self.publisher = Publisher(
            self.ledger, self.sink, self.clock, limits, lambda: 0.5, crash_at
        )
        self.lent: list[Lent] = []

    def sink_state(self) -> str:
        return self.publisher.breaker.state

    async def look(self) -> int:
        async def put(lent: Lent) -> None:
            self.lent.append(lent)

        return await self.publisher.look(put)

    async def publish(self, one: Claim | None = None) -> Settlement:
        lent = self.lent.pop(0) if one is None else Lent(one, self.clock.now_s)
        await self.publisher.publish(lent)
        return self.ledger.settled[-1]

    async def fails(self, times: int, seen: Observation = DOWN) -> None:
        for _ in range(times):
            self.sink.answers.append(seen)
            await self.publish(claim())
