"""The stand-in's rules without a socket: requests and a time → answers and facts.

In: an `ApiRequest` and the time. `begin` is everything that Stripe decides before execution (key,
limiter, stored answers, lanes); `finish` executes. Between the two a request is *in flight*, which
is when another one under the same key or lane is refused, and when a fault may strike.
Out: a `Reply`; facts go to the journal before the reply is handed out.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from sandbox.stripe_sandbox import errors
from sandbox.stripe_sandbox.errors import RefusedError, Reply
from sandbox.stripe_sandbox.fact import Fact, StoredAnswer
from sandbox.stripe_sandbox.state import State
from streams.core.retry import Bucket

US_PER_S = 1_000_000


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """What Stripe leaves open, or what a test wants otherwise. All can be changed while it runs."""

    identifier_window_s: int = 86_400
    """How long an identifier is held. Stripe promises *at least* 24 hours."""
    key_window_s: int = 86_400
    """How long an idempotency key keeps its answer."""
    rate_limit: int = 1_000
    """Calls per second before the limiter refuses; 25 is Stripe's own sandbox."""
    summary_lag_s: int = 0
    """How long a recorded event stays invisible in the summaries."""
    unknown_customer_prefix: str = "cus_unknown_"
    """Such customers do not exist: their events are answered with success and never counted."""
    store_validation_errors: bool = False
    """Whether refusals of parameters are kept under the key, too."""
    auto_create_meters: bool = False
    """Whether a name nobody listens to gets a sum meter instead of a refusal."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to Stripe's API."""

    method: str
    path: str
    form: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    authorization: str | None = None
    idempotency_key: str | None = None

    def fingerprint(self) -> str:
        """Equal for equal method, path and parameters."""
        parts = (self.method, self.path, sorted(self.form.items()))
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

    def lane(self) -> tuple[str, str] | None:
        """What only one request at a time may touch: a customer on a meter."""
        if self.path != "/v1/billing/meter_events" or self.method != "POST":
            return None
        return self.form.get("payload[stripe_customer_id]", ""), self.form.get("event_name", "")


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """A request that passed every gate and is in flight."""

    request: ApiRequest


Route = Callable[[ApiRequest, int], tuple[Reply, Sequence[Fact]]]
"""Executes a request at a time (microseconds): the answer, and what is to be remembered."""


class Engine:
    """Stripe's gates around the routes. One thread; no IO, no clock of its own."""

    def __init__(
        self,
        state: State,
        settings: Settings,
        route: Route,
        journal: Callable[[Sequence[Fact]], None],
        now_us: int,
    ) -> None:
        self.state = state
        self.settings = settings
        self._route = route
        self._journal = journal
        self._bucket = Bucket.full(settings.rate_limit, settings.rate_limit, now_us)
        self._keys_in_flight: set[str] = set()
        self._lanes_in_flight: set[tuple[str, str]] = set()

    def handle(self, request: ApiRequest, now_us: int) -> Reply:
        """Begins and finishes at once."""
        begun = self.begin(request, now_us)
        return self.finish(begun, now_us) if isinstance(begun, Execution) else begun

    def begin(self, request: ApiRequest, now_us: int) -> Execution | Reply:
        """The gates, in Stripe's order. An `Execution` must be finished or abandoned."""
        if not _authorized(request.authorization):
            return errors.unauthorized()
        if not self._within_limit(now_us):
            return errors.rate_limited("global-rate")
        key = request.idempotency_key if request.method == "POST" else None
        if key is not None:
            known = self._known(key, request, now_us)
            if known is not None:
                return known
        lane = request.lane()
        if lane is not None and lane in self._lanes_in_flight:
            reply = errors.lock_timeout()
            self.remember(self._answer(request, reply, now_us))
            return reply
        if key is not None:
            self._keys_in_flight.add(key)
        if lane is not None:
            self._lanes_in_flight.add(lane)
        return Execution(request)

    def finish(self, execution: Execution, now_us: int) -> Reply:
        """Executes, remembers, and only then answers."""
        try:
            reply, facts = self._execute(execution.request, now_us)
            self.remember([*facts, *self._answer(execution.request, reply, now_us)])
        finally:
            self.abandon(execution)
        return reply

    def fail(self, execution: Execution, reply: Reply, now_us: int, *, recorded: bool) -> Reply:
        """Answers otherwise than the execution would have, which may or may not have happened."""
        try:
            facts = self._execute(execution.request, now_us)[1] if recorded else ()
            self.remember([*facts, *self._answer(execution.request, reply, now_us)])
        finally:
            self.abandon(execution)
        return reply

    def abandon(self, execution: Execution) -> None:
        """It is no longer in flight."""
        self._keys_in_flight.discard(execution.request.idempotency_key or "")
        lane = execution.request.lane()
        if lane is not None:
            self._lanes_in_flight.discard(lane)

    def remember(self, facts: Sequence[Fact]) -> None:
        """Writes facts to the journal, then folds them in."""
        if facts:
            self._journal(facts)
        for fact in facts:
            self.state.apply(fact)

    def _execute(self, request: ApiRequest, now_us: int) -> tuple[Reply, Sequence[Fact]]:
        try:
            return self._route(request, now_us)
        except RefusedError as error:
            return error.reply, ()

    def _within_limit(self, now_us: int) -> bool:
        if self._bucket.rate_per_s_max != self.settings.rate_limit:
            self._bucket = Bucket.full(self.settings.rate_limit, self.settings.rate_limit, now_us)
        self._bucket, wait_us = self._bucket.take(now_us)
        return wait_us == 0

    def _known(self, key: str, request: ApiRequest, now_us: int) -> Reply | None:
        if not 1 <= len(key) <= 255:
            message = "Idempotency keys must be between 1 and 255 characters"
            return errors.invalid(message)
        if key in self._keys_in_flight:
            return errors.key_in_use()
        stored = self.state.answers.get(key)
        if stored is None or now_us - stored.at_us >= self.settings.key_window_s * US_PER_S:
            # Pruned: Stripe no longer knows the key, and executes the request anew.
            return None
        if stored.fingerprint != request.fingerprint():
            return errors.key_reused(key)
        body = msgspec.json.decode(stored.body, type=dict[str, object])
        return Reply(stored.status, body, {"Idempotent-Replayed": "true"}, stored=False)

    def _answer(self, request: ApiRequest, reply: Reply, now_us: int) -> list[Fact]:
        if request.method != "POST" or request.idempotency_key is None:
            return []
        if not reply.stored and not (self.settings.store_validation_errors and reply.status == 400):
            return []
        body = msgspec.Raw(msgspec.json.encode(reply.body))
        key = request.idempotency_key
        return [StoredAnswer(key, request.fingerprint(), reply.status, body, now_us)]


def _authorized(authorization: str | None) -> bool:
    """Any test key will do; a live key has no business here."""
    scheme, _, key = (authorization or "").partition(" ")
    return scheme == "Bearer" and key.startswith(("sk_test_", "rk_test_"))
