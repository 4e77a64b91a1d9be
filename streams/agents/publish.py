"""Hop 8: a due lane in the ledger → one request to Stripe → its settlement in the ledger.

First attempts and retries take this one path. A lane is lent until a deadline of the ledger's
clock; right before the first byte the lease is checked on a clock that also runs while the machine
sleeps, because a publisher that wakes up after its lease may no longer be the only one.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, assert_never

import structlog

from streams.adapters.clock import Clock
from streams.agents.pace import Pace
from streams.agents.publish_limits import PublishLimits
from streams.core.lane import Claim, Settlement
from streams.core.observation import Answer, KeptBack, NotSent, Observation, cause_of
from streams.core.retry import Breaker, Weather
from streams.core.settlement import (
    Fenced,
    PublishPolicy,
    Send,
    TooOld,
    Wait,
    health,
    may_send,
    settle,
    settle_unsent,
)
from streams.crash_points import CrashAt, never
from streams.ports import LaneLedger, LedgerUnavailableError, Sink

CUT_LIMIT: Final = 5_000
GATHER_S: Final = 0.01
GIVE_BACK_S: Final = 5.0
_SYSTEMIC_STATUS: Final = frozenset({401, 403})
log = structlog.get_logger("publish")


@dataclass(frozen=True, slots=True)
class Lent:
    """A claim and where the suspension-proof clock stood just before it was asked for."""

    claim: Claim
    asked_at_s: float
    probe: bool = False
    """Whether its answer tells all lanes if the sink is back."""

    def ledger_now_us(self, elapsed_s: float) -> int:
        """The ledger's time now, never too early: the way back of the claim counts as passed."""
        return self.claim.now_us + int((elapsed_s - self.asked_at_s) * 1_000_000)


@dataclass(slots=True)
class PublishFigures:
    """Counts since the start, for metrics and the status line."""

    cut: int = 0
    claimed: int = 0
    attempts: int = 0
    states: dict[str, int] = field(default_factory=dict)
    ledger_failures: int = 0


class Publisher:
    """One worker's share of publishing; every lane it holds is in flight at most once."""

    def __init__(
        self,
        ledger: LaneLedger,
        sink: Sink,
        clock: Clock,
        limits: PublishLimits,
        uniform: Callable[[], float],
        crash_at: CrashAt = never,
    ) -> None:
        self._ledger = ledger
        self._sink = sink
        self._clock = clock
        self._limits = limits
        self._uniform = uniform
        self._crash_at = crash_at
        self._policy = PublishPolicy()
        self._lent = 0
        self._looking = asyncio.Lock()
        self._draining = False
        self._finished, self._half_back = asyncio.Event(), asyncio.Event()
        self._backlog = False
        self.breaker = Breaker()
        self._weather = Weather()
        self._pace = Pace(clock, limits.rate_per_s)
        self._in_flight = asyncio.Semaphore(limits.lanes)
        self.figures = PublishFigures()

    async def look(self, put: Callable[[Lent], Awaitable[object]]) -> int:
        """Cuts due entries and hands claimed lanes to `put`; the number of lanes claimed.

        While the sink is down for all nothing is claimed, so an outage uses up no attempts; one
        lane at a time probes whether it is over.
        """
        async with self._looking:
            return 0 if self._draining else await self._look(put)

    async def drain(self) -> None:
        """Sends nothing more and gives every lane back; blocks for a request's time at the most.

        Answers that are under way are settled. What was claimed and never sent is given back as
        such: left to its lease it would keep its lane closed and count as possibly executed.
        """
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.request_s_max + GIVE_BACK_S), self._looking:
                while self._lent:
                    self._finished.clear()
                    await self._finished.wait()

    async def _look(self, put: Callable[[Lent], Awaitable[object]]) -> int:
        self._finished.clear()
        self._half_back.clear()
        try:
            self.figures.cut += await self._ledger.cut_entries(CUT_LIMIT)
            room = self._limits.lent_max - self._lent
            self._backlog = room <= 0
            if room <= 0:
                return 0
            asked, allowed = self.breaker.ask(self._elapsed_ms())
            if not allowed:
                return 0
            if asked.state != "closed":
                room = 1
            asked_at_s = self._clock.elapsed_s()
            claims = await self._ledger.claim(self._limits.worker, room, self._limits.lease_s)
        except LedgerUnavailableError as error:
            self.figures.ledger_failures += 1
            log.warning("ledger_unavailable", doing="claim", error=str(error))
            return 0
        if claims and asked.state != "closed":
            # A probe is only spent when there is something to probe with. Asked anew, because
            # answers that arrived during the claim have moved the breaker on.
            self.breaker, _ = self.breaker.ask(self._elapsed_ms())
        if claims:
            self._crash_at("lanes_claimed")
        self._backlog = len(claims) == room
        self._lent += len(claims)
        self.figures.claimed += len(claims)
        for claim in claims:
            await put(Lent(claim, asked_at_s, probe=self.breaker.state == "half_open"))
        return len(claims)

    async def rest(self, pause_s: float) -> None:
        """Until it is worth looking again.

        That is when a lane that is lent has come back; with a backlog when half of them have, so
        that one claim serves many. Or when there is more to send.
        """
        back = self._half_back if self._backlog else self._finished
        # Not `wait_for`: Python 3.11's forgets a cancellation that meets what it waited for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await back.wait()
        # A moment for others to come back too: one claim for many lanes.
        await asyncio.sleep(GATHER_S)

    def wake(self) -> None:
        """There are new entries in the ledger: a rest ends now."""
        self._finished.set()
        self._half_back.set()

    async def publish(self, lent: Lent) -> None:
        """One claimed lane to its settlement; keeps the settlement until the ledger has it.

        To be called for every lane that is lent at once: while one waits for its settlement to be
        written, another sends.
        """
        try:
            async with self._in_flight:
                settlement = await self._attempt(lent)
            await self._record(settlement)
        finally:
            self._lent -= 1
            self._finished.set()
            if self._lent <= self._limits.lent_max // 2:
                self._half_back.set()

    async def _attempt(self, lent: Lent) -> Settlement:
        claim = lent.claim
        if not self._draining:
            await self._pace.turn()
        now_us = lent.ledger_now_us(self._clock.elapsed_s())
        permission = may_send(claim, self._policy, now_us)
        match permission:
            case Wait() | Fenced() | TooOld():
                self._return_probe(lent)
                return settle_unsent(claim, permission, self._policy)
            case Send():
                pass
            case _ as unreachable:
                assert_never(unreachable)
        if (reason := self._unsent(claim, now_us)) is not None:
            self._return_probe(lent)
            return self._settle(claim, NotSent(reason))
        self.figures.attempts += 1
        self._crash_at("before_first_byte")
        observation = await self._sink.send(claim, claim.idempotency_key)
        self._crash_at("answer_read")
        settlement = self._settle(claim, observation, sent=True)
        if health(observation) == "neutral":
            self._return_probe(lent)
        return settlement

    def _unsent(self, claim: Claim, now_us: int) -> str | None:
        """Why the request stays here although it could be sent; asked right before it would be."""
        remaining_us = claim.lease_until_us - now_us
        if remaining_us < self._limits.request_s_max * 1_000_000:
            return KeptBack.LEASE
        if self._draining:
            return KeptBack.STOPPING
        if self.breaker.state == "open":
            # Claimed before it opened. Sent now it would most likely only become a doubt.
            return KeptBack.SINK_DOWN
        return None

    def _return_probe(self, lent: Lent) -> None:
        if lent.probe:
            self.breaker = self.breaker.unspent(self._elapsed_ms())

    def _settle(self, claim: Claim, observation: Observation, *, sent: bool = False) -> Settlement:
        # As others found it: this attempt's own failure says nothing about whether it is alone.
        sink_up = (
            self.breaker.state == "closed"
            and self.breaker.failures == 0
            and self._weather.fair_beside(claim.lane_id)
        )
        if sent:
            failed = health(observation) == "down"
            self._weather = self._weather.seen(claim.lane_id, failed=failed)
            self._learn(observation)
        return settle(claim, observation, self._policy, self._uniform(), sink_up=sink_up)

    def _learn(self, observation: Observation) -> None:
        """What one answer says for all lanes: breaker and pace."""
        now_ms = self._elapsed_ms()
        before = self.breaker.state
        if isinstance(observation, Answer) and observation.status in _SYSTEMIC_STATUS:
            why = f"Stripe refuses the credentials (HTTP {observation.status})"
            self.breaker = self.breaker.tripped(now_ms, why, self._uniform())
        else:
            match health(observation):
                case "up":
                    self.breaker = self.breaker.succeeded()
                case "down":
                    why = cause_of(observation)
                    self.breaker = self.breaker.failed(now_ms, why, self._uniform())
                case "neutral":
                    if isinstance(observation, Answer) and observation.status == 429:
                        self._pace.slower()
                case _ as unreachable:
                    assert_never(unreachable)
        if self.breaker.state != before:
            log.warning("sink", state=self.breaker.state, reason=self.breaker.reason)

    async def _record(self, settlement: Settlement) -> None:
        """Writes the settlement, for as long as the ledger takes to come back.

        If this process dies before, the lane's lease runs out and the attempt counts as possibly
        executed: the next publisher asks Stripe again under the same identifier.
        """
        pause_s = 0.2
        while True:
            try:
                await self._ledger.settle(settlement)
            except LedgerUnavailableError as error:
                self.figures.ledger_failures += 1
                log.warning("ledger_unavailable", doing="settle", error=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(5.0, pause_s * 2)
            else:
                break
        self._crash_at("lane_settled")
        states = self.figures.states
        states[settlement.state] = states.get(settlement.state, 0) + 1
        if settlement.state == "dead":
            log.error(
                "meter_event_dead",
                meter_event=settlement.claim.meter_event_id,
                identifier=settlement.claim.identifier,
                kind=settlement.dead_kind,
                outcome=settlement.evidence.outcome,
                code=settlement.evidence.code,
            )

    def _elapsed_ms(self) -> int:
        return int(self._clock.elapsed_s() * 1_000)
