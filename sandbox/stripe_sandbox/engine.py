"""The stand-in's rules without a socket: requests and a time → answers and facts.

In: an `ApiRequest` and the time. `begin` is everything that Stripe decides before execution (key,
limiter, stored answers, lanes); `finish` executes. Between the two a request is *in flight*, which
is when another one under the same key or lane is refused, and when a fault may strike.
Out: a `Reply`; facts go to the journal before the reply is handed out.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from sandbox.stripe_sandbox import errors, reports
from sandbox.stripe_sandbox.errors import RefusedError, Reply
from sandbox.stripe_sandbox.fact import Fact, Recorded, StoredAnswer
from sandbox.stripe_sandbox.settings import US_PER_S, Settings
from sandbox.stripe_sandbox.state import State
from streams.core.retry import Bucket


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to Stripe's API."""

    method: str
    path: str
    form: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    authorization: str | None = None
    idempotency_key: str | None = None
    json: object = None
    """Body of a request to the newer API; None where it was not JSON."""

    @property
    def newer(self) -> bool:
        """Whether it goes to the newer API, which has rules of its own."""
        return self.path.startswith("/v2/")

    def fingerprint(self) -> str:
        """Equal for equal method, path and parameters."""
        parts = (self.method, self.path, sorted(self.form.items()), self.json)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

    def lane(self) -> tuple[str, str] | None:
        """What only one request at a time may touch: a customer on a meter."""
        if self.path not in LANE_PATHS or self.method != "POST":
            return None
        if self.newer:
            return lane_of(self.json)
        return self.form.get("payload[stripe_customer_id]", ""), self.form.get("event_name", "")


LANE_PATHS: Final = frozenset({"/v1/billing/meter_events", "/v2/billing/meter_events"})
STREAM_PATH: Final = "/v2/billing/meter_event_stream"
NEWER_KEY_WINDOW_S: Final = 30 * 86_400
"""How long the newer API keeps a key."""


def lane_of(body: object) -> tuple[str, str] | None:
    """Customer and event name of a meter event in JSON, where it has them."""
    payload = body.get("payload") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(payload, dict):
        return None
    return str(payload.get("stripe_customer_id", "")), str(body.get("event_name", ""))


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
        self.reads = 0
        """Requests that changed nothing, against the read allowance."""
        self._keys_in_flight: set[str] = set()
        self._lanes_in_flight: set[tuple[str, str]] = set()

    def handle(self, request: ApiRequest, now_us: int) -> Reply:
        """Begins and finishes at once."""
        begun = self.begin(request, now_us)
        return self.finish(begun, now_us) if isinstance(begun, Execution) else begun

    def begin(self, request: ApiRequest, now_us: int) -> Execution | Reply:
        """The gates, in Stripe's order. An `Execution` must be finished or abandoned."""
        self.advance(now_us)
        refused = self._at_the_door(request, now_us)
        if refused is not None:
            return refused
        key = request.idempotency_key if request.method == "POST" else None
        if key is not None:
            known = self._known(key, request, now_us)
            if known is not None:
                return known
        lane = request.lane()
        if lane is not None and lane in self._lanes_in_flight:
            reply = errors.lane_busy() if request.newer else errors.lock_timeout()
            self.remember(self._answer(request, reply, now_us))
            return reply
        if key is not None:
            self._keys_in_flight.add(key)
        if lane is not None:
            self._lanes_in_flight.add(lane)
        return Execution(request)

    def finish(self, execution: Execution, now_us: int, refused: str | None = None) -> Reply:
        """Executes, remembers, and only then answers.

        Args:
            execution: What passed the gates.
            now_us: The time.
            refused: Code with which what is accepted now is refused afterwards.
        """
        try:
            reply, facts = self._execute(execution.request, now_us)
            if refused is not None:
                facts = [_refused(fact, refused) for fact in facts]
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

    def advance(self, now_us: int) -> None:
        """What happens by itself in time: reports are made of what was refused afterwards."""
        if self.state.unreported:
            self.remember(reports.due(self.state, self.settings, now_us))

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

    def _at_the_door(self, request: ApiRequest, now_us: int) -> Reply | None:
        """Who asks, and how often; None: it may come in."""
        if request.path == STREAM_PATH:
            # A door of its own: a token in place of the key, and no limit that we could reach.
            token = (request.authorization or "").removeprefix("Bearer ")
            expires_us = self.state.sessions.get(token)
            return None if expires_us and now_us < expires_us else errors.session_expired()
        if not _authorized(request.authorization):
            return errors.unauthorized()
        if not self._within_limit(now_us):
            return errors.rate_limited("global-rate")
        if request.method == "GET":
            self.reads += 1
            if 0 < self.settings.read_allowance < self.reads:
                return errors.rate_limited("read-allowance")
        return None

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
        window_s = NEWER_KEY_WINDOW_S if request.newer else self.settings.key_window_s
        if stored is None or now_us - stored.at_us >= window_s * US_PER_S:
            # Pruned: Stripe no longer knows the key, and executes the request anew.
            return None
        if stored.fingerprint != request.fingerprint():
            return errors.key_reused(key)
        body = msgspec.json.decode(stored.body, type=dict[str, object])
        return Reply(stored.status, body, {"Idempotent-Replayed": "true"}, stored=False)

    def _answer(self, request: ApiRequest, reply: Reply, now_us: int) -> list[Fact]:
        if request.method != "POST" or request.idempotency_key is None:
            return []
        if request.newer and reply.status >= 300:
            # What failed there is executed anew under the same key.
            return []
        if not reply.stored and not (self.settings.store_validation_errors and reply.status == 400):
            return []
        body = msgspec.Raw(msgspec.json.encode(reply.body))
        key = request.idempotency_key
        return [StoredAnswer(key, request.fingerprint(), reply.status, body, now_us)]


def _refused(fact: Fact, code: str) -> Fact:
    if isinstance(fact, Recorded) and fact.refused is None:
        return msgspec.structs.replace(fact, refused=code)
    return fact


def _authorized(authorization: str | None) -> bool:
    """Any test key will do; a live key has no business here."""
    scheme, _, key = (authorization or "").partition(" ")
    return scheme == "Bearer" and key.startswith(("sk_test_", "rk_test_"))
