"""Stripe: the stand-in's engine behind a network that may lose requests and answers.

A request that has left is executed whoever dies meanwhile. `received` is what an observer in
front of Stripe would have seen, in order: the oracle reads it and the recorded multiset.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Final, Literal, cast

import msgspec

from sandbox.stripe_sandbox import errors
from sandbox.stripe_sandbox.engine import ApiRequest, Execution
from sandbox.stripe_sandbox.errors import Reply
from sandbox.stripe_sandbox.fact import Meter
from sandbox.stripe_sandbox.settings import Settings
from streams.adapters.stripe import StripeUnreadableError
from streams.core.instant import wire_text
from streams.core.lane import Claim
from streams.core.observation import Answer, MaybeSent, NotSent, Observation
from streams.core.rejection import REPORT_TYPES
from streams.ports import Told
from tests.simulation.ledger.database import Database
from tests.simulation.timeline import Process, Timeline
from tests.unit.stripe_sandbox.driver import KEY, Memory, observe

REFUSED: Final = "meter_event_customer_not_found"
REQUEST_S: Final = 13.0
"""After this long a client gives up; what it sent may be executed all the same."""

Weather = Literal[
    "fine", "refused", "swallowed", "answer_lost", "error", "error_kept", "error_after",
    "throttled", "unauthorized", "slow", "proxy",
]  # fmt: skip
SPORADIC: Final[tuple[Weather, ...]] = (
    "refused", "swallowed", "answer_lost", "error", "error_kept", "error_after", "throttled",
    "slow", "proxy",
)  # fmt: skip
"""What a single request may meet while all others are well."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request at Stripe's door."""

    at_us: int
    identifier: str
    key: str
    attempt_id: int
    recorded: bool


class Stripe:
    """Meters, weather, and what was seen."""

    def __init__(
        self, timeline: Timeline, event_names: Sequence[str], rng: Random,
        delay_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self.timeline, self.rng, self.delay_s = timeline, rng, delay_s
        self.memory = Memory(Settings(rate_limit=10**6), timeline.now_us())
        for name in event_names:
            self.memory.state.apply(Meter(f"mtr_{name}", name, name, 0))
        self.weather: Weather = "fine"
        self.rejecting = 0.0
        """Chance that what is accepted is refused afterwards."""
        self.was_sporadic = False
        self.sporadic = 0.0
        """Chance that a single request meets bad weather of its own."""
        self.received: list[Received] = []
        self.left: list[tuple[int, int, int]] = []
        """(restores, attempt, instant) of each decision to send."""

    def sum(self, cell: tuple[str, str, int]) -> Decimal:
        """Its own sum of a customer's hour on a meter."""
        customer, event_name, start_us = cell
        start_s = start_us // 1_000_000
        return sum(
            (
                Decimal(event.value)
                for event in self.memory.state.counted(customer, event_name)
                if start_s <= event.timestamp_s < start_s + 3_600
            ),
            Decimal(0),
        )

    def _now(self) -> Weather:
        if self.weather == "fine" and self.rng.random() < self.sporadic:
            return self.rng.choice(SPORADIC)
        return self.weather

    async def send(self, claim: Claim, key: str) -> Observation:
        """One request on its way and, with luck, its answer on the way back."""
        weather = self._now()
        if weather != "fine":
            fault = "stripe_sporadic" if self.weather == "fine" else "stripe_down"
            self.timeline.strike(f"{fault}: {weather}")
        if weather == "refused":
            await asyncio.sleep(self.delay_s())
            return NotSent("ClientConnectorError")
        if weather == "swallowed":
            await asyncio.sleep(REQUEST_S)
            return MaybeSent("ServerTimeoutError")
        answer: asyncio.Future[Observation] = self.timeline.create_future()
        delay_s = self.delay_s() + (self.rng.random() * 40 if weather == "slow" else 0)
        self.timeline.outside(delay_s, lambda: self._arrive(claim, key, weather, answer))
        try:
            return await asyncio.wait_for(answer, REQUEST_S)
        except TimeoutError:
            return MaybeSent("ServerTimeoutError")

    def _arrive(
        self, claim: Claim, key: str, weather: Weather, answer: "asyncio.Future[Observation]"
    ) -> None:
        if weather == "unauthorized":
            self._answer(observe(errors.unauthorized()), answer)
            return
        if weather == "throttled":
            self._answer(observe(errors.rate_limited("global-rate")), answer)
            return
        now_us = self.timeline.now_us()
        begun = self.memory.engine.begin(request_of(claim, key), now_us)

        def finish() -> None:
            known = len(self.memory.state.recorded)
            reply = self._execute(begun, weather) if isinstance(begun, Execution) else begun
            recorded = len(self.memory.state.recorded) > known
            self.received.append(
                Received(now_us, claim.identifier, key, claim.attempt_id, recorded)
            )
            self.timeline.note("stripe", claim.identifier, claim.value, reply.status, recorded)
            if weather == "proxy":
                self._answer(Answer(502, parsed=False), answer)
            elif weather != "answer_lost":
                self._answer(observe(reply), answer)

        # Under way for a moment: whoever asks for the same key or lane meanwhile is refused.
        self.timeline.outside(self.delay_s(), finish)

    def _execute(self, execution: Execution, weather: Weather) -> Reply:
        engine, now_us = self.memory.engine, self.timeline.now_us()
        match weather:
            case "error":
                reply = errors.server_error(500, stored=False)
            case "error_kept" | "error_after":
                reply = errors.server_error(500, stored=True)
            case _:
                late = self.rng.random() < self.rejecting
                if late:
                    self.timeline.strike("rejected_afterwards")
                return engine.finish(execution, now_us, REFUSED if late else None)
        return engine.fail(execution, reply, now_us, recorded=weather == "error_after")

    def _answer(self, seen: Observation, answer: "asyncio.Future[Observation]") -> None:
        def arrive() -> None:
            if not answer.done():
                answer.set_result(seen)

        self.timeline.outside(self.delay_s(), arrive)


@dataclass(frozen=True, slots=True)
class Reports:
    """One worker's way to Stripe's list of events."""

    stripe: Stripe
    process: Process

    async def event(self, event_id: str) -> bytes:
        return msgspec.json.encode(await self._get(f"/v2/core/events/{event_id}", {}))

    async def reports_since(self, since_us: int) -> list[Told]:
        query = {"created[gte]": wire_text(since_us), "limit": "100"}
        body = await self._get("/v2/core/events", query)
        listed = cast("list[dict[str, str]]", body["data"])
        return [Told(one["id"], one["type"]) for one in listed if one["type"] in REPORT_TYPES]

    async def meter_event_name(self, meter_id: str) -> str | None:
        return meter_id.removeprefix("mtr_")

    async def names_taken_since(self, since_us: int) -> frozenset[str]:  # noqa: ARG002 - all meters are older
        return frozenset(meter.event_name for meter in self.stripe.memory.state.meters.values())

    async def _get(self, path: str, query: dict[str, str]) -> dict[str, object]:
        await asyncio.sleep(self.stripe.delay_s())
        self.process.check()
        if self.stripe.weather != "fine":
            raise StripeUnreadableError(path, NotSent("ClientConnectorError"))
        reply = self.stripe.memory.get(path, query, self.stripe.timeline.now_us())
        if reply.status != 200:
            raise StripeUnreadableError(path, observe(reply))
        return reply.body


@dataclass(frozen=True, slots=True)
class Sink:
    """One worker's way to Stripe."""

    stripe: Stripe
    process: Process
    database: Database

    async def send(self, meter_event: Claim, idempotency_key: str) -> Observation:
        restores, now_us = self.database.restores, self.stripe.timeline.now_us()
        self.stripe.left.append((restores, meter_event.attempt_id, now_us))
        self.process.step("sending")
        await asyncio.sleep(0)
        seen = await self.stripe.send(meter_event, idempotency_key)
        self.process.step("answered")
        return seen


def request_of(claim: Claim, key: str) -> ApiRequest:
    return ApiRequest(
        method="POST",
        path="/v1/billing/meter_events",
        form={
            "event_name": claim.event_name,
            "identifier": claim.identifier,
            "timestamp": str(claim.timestamp_s),
            "payload[stripe_customer_id]": claim.customer,
            "payload[value]": claim.value,
        },
        authorization=KEY,
        idempotency_key=key,
    )
