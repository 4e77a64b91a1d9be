"""The stand-in's engine in memory, and a publisher that obeys the publishing rules against it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sandbox.stripe_sandbox import errors
from sandbox.stripe_sandbox.engine import ApiRequest, Engine, Execution
from sandbox.stripe_sandbox.errors import Reply
from sandbox.stripe_sandbox.fact import Fact, Meter
from sandbox.stripe_sandbox.routes import Routes
from sandbox.stripe_sandbox.settings import Settings
from sandbox.stripe_sandbox.state import State
from streams.core.lane import Claim
from streams.core.meter_event import Cell, MeterEvent, Origin, freeze_window
from streams.core.observation import Answer, MaybeSent, NotSent, Observation
from streams.core.retry import Backoff
from streams.core.settlement import (
    PublishPolicy,
    Send,
    may_send,
    settle,
    settle_unsent,
)

START_US = 1_795_975_200_000_000
HOUR_US = 3_600_000_000
KEY = "Bearer sk_test_memory"
ORIGIN = Origin("acct_sandbox", livemode=False, ledger_id="ledger-a")

Fault = Literal[
    "none",
    "not_sent",
    "drop_before",
    "drop_after",
    "http_500",
    "http_500_recorded",
    "http_500_cached",
    "http_500_cached_recorded",
    "html_502",
    "html_502_recorded",
    "limiter",
    "limiter_stored",
    "lock_timeout",
    "credentials",
    "lane_busy",
    "key_in_use",
    "validation",
    "crash_before",
    "crash_after",
]


class Memory:
    """An engine whose journal is a list."""

    def __init__(self, settings: Settings | None = None, now_us: int = START_US) -> None:
        self.facts: list[Fact] = []
        self.settings = settings or Settings(rate_limit=10**6)
        self.state = State()
        self.engine = Engine(
            self.state,
            self.settings,
            Routes(self.state, self.settings),
            self.facts.extend,
            now_us,
        )
        self.state.apply(Meter("mtr_test_1", "api_calls", "API calls", now_us // 10**6))

    def counted(self) -> Counter[str]:
        return Counter(event.identifier for event in self.state.recorded)

    def post(
        self, path: str, form: Mapping[str, str], now_us: int = START_US, key: str | None = None
    ) -> Reply:
        request = ApiRequest("POST", path, form, authorization=KEY, idempotency_key=key)
        return self.engine.handle(request, now_us)

    def get(self, path: str, query: Mapping[str, str], now_us: int = START_US) -> Reply:
        return self.engine.handle(ApiRequest("GET", path, {}, query, KEY), now_us)


def request_of(event: MeterEvent, key_generation: int) -> ApiRequest:
    return ApiRequest(
        method="POST",
        path="/v1/billing/meter_events",
        form={
            "event_name": event.event_name,
            "identifier": event.identifier,
            "timestamp": str(event.timestamp_s),
            **{f"payload[{name}]": value for name, value in event.payload().items()},
        },
        authorization=KEY,
        idempotency_key=event.idempotency_key(key_generation),
    )


def observe(reply: Reply) -> Answer:
    detail = reply.body.get("error")
    said = detail if isinstance(detail, dict) else {}
    identifier = reply.body.get("identifier")
    return Answer(
        status=reply.status,
        parsed=True,
        identifier=identifier if isinstance(identifier, str) else None,
        error_type=said.get("type"),
        error_code=said.get("code"),
        error_message=said.get("message"),
        replayed=reply.headers.get("Idempotent-Replayed") == "true",
        rate_limited_reason=reply.headers.get("Stripe-Rate-Limited-Reason"),
    )


@dataclass
class Publisher:
    """One meter event's life: claims, attempts and settlements, as the ledger would keep them."""

    memory: Memory
    event: MeterEvent
    now_us: int = START_US
    policy: PublishPolicy = field(
        default_factory=lambda: PublishPolicy(backoff=Backoff(1_000, 60_000))
    )
    state: str = "pending"
    dead_kind: str | None = None
    key_generation: int = 0
    attempts_used: int = 0
    previous_attempts: int = 0
    first_attempt_at_us: int | None = None
    possibly_executed: bool = False
    codes: list[str | None] = field(default_factory=list)

    @property
    def open(self) -> bool:
        return self.state in {"pending", "ambiguous"}

    def attempt(self, fault: Fault, *, sink_up: bool) -> None:
        """One claim, sent or not, and its settlement, unless the publisher dies of it."""
        claim = self._claim()
        permission = may_send(claim, self.policy, self.now_us)
        if not isinstance(permission, Send):
            settlement = settle_unsent(claim, permission, self.policy)
        else:
            observation = self._send(claim, fault)
            if observation is None:
                # Its attempt row has no outcome: the next claim must assume the worst.
                self.possibly_executed = True
                self.previous_attempts += 1
                return
            settlement = settle(claim, observation, self.policy, 0.5, sink_up=sink_up)
        self.previous_attempts += 1
        self.state = settlement.state
        self.dead_kind = settlement.dead_kind
        self.key_generation = settlement.key_generation
        self.possibly_executed = settlement.possibly_executed
        self.attempts_used += settlement.attempt_used
        self.codes.append(settlement.evidence.code)
        self.now_us += (settlement.retry_delay_ms or 0) * 1_000

    def _claim(self) -> Claim:
        if self.first_attempt_at_us is None:
            self.first_attempt_at_us = self.now_us
        return Claim(
            lane_id=1,
            meter_event_id=1,
            attempt_id=self.previous_attempts + 1,
            customer=self.event.customer,
            event_name=self.event.event_name,
            value=str(self.event.value),
            timestamp_s=self.event.timestamp_s,
            identifier=self.event.identifier,
            payload_hash=self.event.payload_hash,
            key_generation=self.key_generation,
            attempts_used=self.attempts_used,
            previous_attempts=self.previous_attempts,
            first_attempt_at_us=self.first_attempt_at_us,
            possibly_executed=self.possibly_executed,
            now_us=self.now_us,
            lease_until_us=self.now_us + 60_000_000,
        )

    def _send(self, claim: Claim, fault: Fault) -> Observation | None:
        early = _before(fault)
        if early is not None:
            return early
        if fault == "crash_before":
            return None
        engine = self.memory.engine
        begun = engine.begin(request_of(self.event, claim.key_generation), self.now_us)
        reply = begun if isinstance(begun, Reply) else self._execute(begun, fault)
        if fault == "crash_after":
            return None
        if fault == "drop_after":
            return MaybeSent("ServerDisconnectedError")
        if fault in {"html_502", "html_502_recorded"}:
            return Answer(502, parsed=False)
        return observe(reply)

    def _execute(self, execution: Execution, fault: Fault) -> Reply:
        engine, now_us = self.memory.engine, self.now_us
        if fault == "html_502":
            engine.abandon(execution)
            return errors.server_error(502, stored=False)
        forced = _forced(fault)
        if forced is None:
            return engine.finish(execution, now_us)
        return engine.fail(execution, forced, now_us, recorded=fault.endswith("_recorded"))


def _before(fault: Fault) -> Observation | None:
    """What ends an attempt before Stripe's gates."""
    match fault:
        case "not_sent":
            return NotSent("ClientConnectorError")
        case "drop_before":
            return MaybeSent("ServerDisconnectedError")
        case "limiter":
            return observe(errors.rate_limited("global-rate"))
        case "credentials":
            return observe(errors.unauthorized())
        case "lane_busy":
            return Answer(409, parsed=True, error_code="too_many_concurrent_requests")
        case "key_in_use":
            return observe(errors.key_in_use())
        case _:
            return None


def _forced(fault: Fault) -> Reply | None:
    """What Stripe answers instead of the execution's own answer."""
    match fault:
        case "http_500" | "http_500_recorded":
            return errors.server_error(500, stored=False)
        case "http_500_cached" | "http_500_cached_recorded":
            return errors.server_error(500, stored=True)
        case "lock_timeout":
            return errors.lock_timeout()
        case "limiter_stored":
            return replace(errors.rate_limited("resource-specific"), stored=True)
        case "validation":
            return errors.no_meter("api_calls")
        case _:
            return None


def frozen(number: int = 1, value: int = 5, now_us: int = START_US + 1_000_000) -> MeterEvent:
    cell = Cell("cus_1", "api_calls", START_US, START_US + HOUR_US)
    return freeze_window(ORIGIN, cell, value, number, 1, now_us)


def form_of(event: MeterEvent, **changes: str) -> dict[str, str]:
    return {**request_of(event, 0).form, **changes}


def texts(rows: Sequence[Fact]) -> list[str]:
    return [type(row).__name__ for row in rows]
