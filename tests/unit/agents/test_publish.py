"""A claimed lane to its settlement: what is sent, when, and what is learnt from the answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from streams.agents.publish import Lent, Publisher, PublishLimits
from streams.core.instant import DAY_US, HOUR_US, SECOND_US
from streams.core.lane import Claim, Settlement
from streams.core.observation import Answer, MaybeSent, NotSent, Observation
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

    async def send(self, meter_event: Claim, idempotency_key: str) -> Observation:
        self.sent.append((meter_event.identifier, idempotency_key))
        if self.meanwhile is not None:
            self.meanwhile()
        return self.answers.pop(0) if self.answers else recorded(meter_event.lane_id)


class Bench:
    """A publisher and its surroundings."""

    def __init__(self, limits: PublishLimits = LIMITS) -> None:
        self.ledger, self.sink, self.clock = Lanes(), Sink(), Clock()
        self.publisher = Publisher(self.ledger, self.sink, self.clock, limits, lambda: 0.5)
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


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> list[float]:
    """Pauses take no time, but the clock moves on by them."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        bench.clock.now_s += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return slept


# -- looking for work -----------------------------------------------------------------------------


async def test_due_entries_are_cut_and_lanes_claimed_up_to_the_limit(bench: Bench) -> None:
    bench.ledger.due = 7
    bench.ledger.waiting = [claim(n) for n in range(6)]
    assert await bench.look() == 4
    assert bench.publisher.figures.cut == 7
    assert bench.publisher.figures.claimed == 4
    assert await bench.look() == 0, "every lane it may hold is in flight"
    assert bench.ledger.asked == [4]
    await bench.publish()
    assert await bench.look() == 1
    assert bench.ledger.asked == [4, 1]


async def test_a_lane_whose_publishing_failed_is_no_longer_in_flight(bench: Bench) -> None:
    bench.ledger.waiting = [claim(n) for n in range(4)]
    await bench.look()

    def broken() -> None:
        message = "a bug"
        raise ValueError(message)

    bench.sink.meanwhile = broken
    with pytest.raises(ValueError, match="a bug"):
        await bench.publish()
    bench.ledger.waiting = [claim(9)]
    assert await bench.look() == 1


@pytest.mark.parametrize("answered", [0, 1], ids=["cutting", "claiming"])
async def test_a_ledger_that_is_away_is_waited_out(bench: Bench, answered: int) -> None:
    bench.ledger.waiting = [claim()]
    if answered:
        cut = bench.ledger.cut_entries

        async def then_gone(limit: int) -> int:
            done = await cut(limit)
            bench.ledger.away = 1
            return done

        bench.ledger.cut_entries = then_gone  # type: ignore[method-assign]  # goes away in between
    else:
        bench.ledger.away = 1
    assert await bench.look() == 0
    assert bench.publisher.figures.ledger_failures == 1


# -- one request ----------------------------------------------------------------------------------


async def test_a_recorded_meter_event_is_settled_under_its_own_keys(bench: Bench) -> None:
    settlement = await bench.publish(claim(3, key_generation=2))
    assert bench.sink.sent == [("m1:3", "m1:3.g2")]
    assert (settlement.state, settlement.evidence.http_status) == ("recorded", 200)
    assert bench.publisher.figures.states == {"recorded": 1}
    assert bench.publisher.figures.attempts == 1


@pytest.mark.parametrize(
    ("left_s", "sent"), [(13.0, 1), (12.999_999, 0), (0.0, 0), (-5.0, 0)], ids=str
)
async def test_a_lease_that_would_not_outlast_a_request_sends_nothing(
    bench: Bench, left_s: float, sent: int
) -> None:
    lease_until_us = NOW_US + round(left_s * SECOND_US)
    settlement = await bench.publish(claim(lease_until_us=lease_until_us))
    assert len(bench.sink.sent) == sent
    if not sent:
        assert settlement.state == "pending"
        assert settlement.possibly_executed is False
        assert settlement.attempt_used is False
        assert settlement.key_generation == 1
        assert settlement.retry_delay_ms is not None
        assert "lease" in (settlement.evidence.cause or "")
        assert bench.publisher.breaker.failures == 0, "nobody asked Stripe"


async def test_the_way_of_the_claim_and_a_sleeping_machine_count_against_the_lease(
    bench: Bench,
) -> None:
    asked_at_s = bench.clock.now_s
    bench.clock.now_s += 48
    await bench.publisher.publish(Lent(claim(), asked_at_s))
    assert bench.sink.sent == []
    assert Lent(claim(), 100.0).ledger_now_us(101.5) == NOW_US + 1_500_000


async def test_doubt_older_than_the_fence_is_never_sent_again(bench: Bench) -> None:
    old = claim(possibly_executed=True, first_attempt_at_us=NOW_US - 23 * HOUR_US)
    settlement = await bench.publish(old)
    assert bench.sink.sent == []
    assert (settlement.state, settlement.dead_kind) == ("dead", "ambiguous")
    young = replace(old, first_attempt_at_us=old.first_attempt_at_us + 1)
    await bench.publish(young)
    assert len(bench.sink.sent) == 1


async def test_the_fence_counts_the_time_the_claim_lay_here(bench: Bench) -> None:
    young = claim(possibly_executed=True, first_attempt_at_us=NOW_US - 23 * HOUR_US + SECOND_US)
    asked_at_s = bench.clock.now_s
    bench.clock.now_s += 1
    await bench.publisher.publish(Lent(young, asked_at_s))
    assert bench.sink.sent == []


async def test_dates_that_stripe_would_refuse_are_not_sent(bench: Bench) -> None:
    past = await bench.publish(claim(timestamp_s=(NOW_US - 34 * DAY_US) // SECOND_US - 1))
    assert (past.state, past.dead_kind) == ("dead", "refused")
    future = await bench.publish(claim(timestamp_s=NOW_US // SECOND_US + 241))
    assert (future.state, future.retry_delay_ms) == ("pending", 241_000)
    assert bench.sink.sent == []


async def test_a_settlement_is_kept_until_the_ledger_has_it(
    bench: Bench, pauses: list[float]
) -> None:
    bench.ledger.away = 7
    settlement = await bench.publish(claim())
    assert settlement.state == "recorded"
    assert len(bench.sink.sent) == 1, "sent once, however often the ledger is asked"
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert bench.publisher.figures.ledger_failures == 7
    assert len(bench.ledger.settled) == 1


async def test_while_a_settlement_waits_its_lane_counts_as_in_flight(bench: Bench) -> None:
    bench.ledger.waiting = [claim(n) for n in range(5)]
    await bench.look()
    bench.ledger.away = 1
    waiting = asyncio.get_running_loop().create_task(bench.publish())
    async with asyncio.timeout(5):
        await bench.ledger.refused.wait()
    assert await bench.look() == 0
    async with asyncio.timeout(5):
        await waiting
    assert await bench.look() == 1


async def test_a_dead_meter_event_is_counted_as_such(bench: Bench) -> None:
    bench.sink.answers = [Answer(400, parsed=True, error_code="parameter_missing")]
    settlement = await bench.publish(claim())
    assert (settlement.state, settlement.dead_kind) == ("dead", "refused")
    assert bench.publisher.figures.states == {"dead": 1}


# -- the sink for all -----------------------------------------------------------------------------


async def test_five_failures_in_a_row_open_the_breaker_and_nothing_is_claimed(
    bench: Bench,
) -> None:
    await bench.fails(4)
    assert bench.sink_state() == "closed"
    await bench.fails(1)
    assert bench.sink_state() == "open"
    assert bench.publisher.breaker.reason == "HTTP 500"
    bench.ledger.waiting = [claim()]
    assert await bench.look() == 0
    assert bench.ledger.asked == []


async def test_entries_are_cut_even_while_the_sink_is_down(bench: Bench) -> None:
    await bench.fails(5)
    bench.ledger.due = 3
    await bench.look()
    assert bench.publisher.figures.cut == 3


async def test_what_was_claimed_before_the_breaker_opened_is_not_sent(bench: Bench) -> None:
    bench.ledger.waiting = [claim(n) for n in range(3)]
    await bench.look()
    await bench.fails(5)
    before = len(bench.sink.sent)
    settlement = await bench.publish()
    assert len(bench.sink.sent) == before
    assert (settlement.state, settlement.attempt_used) == ("pending", False)
    assert settlement.evidence.cause == "the sink is down for all"


async def test_one_lane_probes_whether_it_is_over(bench: Bench) -> None:
    await bench.fails(5)
    bench.clock.now_s += 1
    bench.ledger.waiting = [claim(n) for n in range(3)]
    assert await bench.look() == 1
    assert bench.ledger.asked == [1]
    assert bench.sink_state() == "half_open"
    assert await bench.look() == 0, "one probe at a time"
    settlement = await bench.publish()
    assert settlement.state == "recorded"
    assert bench.sink_state() == "closed"
    assert await bench.look() == 2


async def test_a_probe_that_fails_opens_for_longer(bench: Bench) -> None:
    await bench.fails(5)
    bench.clock.now_s += 1
    bench.ledger.waiting = [claim(0), claim(1)]
    await bench.look()
    bench.sink.answers = [MaybeSent("ReadTimeout")]
    await bench.publish()
    assert bench.sink_state() == "open"
    assert bench.publisher.breaker.openings == 2
    bench.clock.now_s += 1
    assert await bench.look() == 0


async def test_a_probe_is_spent_only_when_there_is_something_to_probe_with(
    bench: Bench,
) -> None:
    await bench.fails(5)
    bench.clock.now_s += 1
    assert await bench.look() == 0
    assert bench.sink_state() == "open"
    bench.ledger.waiting = [claim()]
    assert await bench.look() == 1, "an empty look must not cost thirty seconds"


@pytest.mark.parametrize("seen", [REFUSED_KEY, Answer(403, parsed=True)], ids=["401", "403"])
async def test_refused_credentials_stop_all_at_once_and_use_nothing_up(
    bench: Bench, seen: Answer
) -> None:
    bench.sink.answers = [seen]
    settlement = await bench.publish(claim(attempts_used=11))
    assert (settlement.state, settlement.attempt_used) == ("pending", False)
    assert bench.sink_state() == "open"
    assert f"HTTP {seen.status}" in (bench.publisher.breaker.reason or "")


async def test_a_trip_during_a_claim_is_not_forgotten(bench: Bench) -> None:
    """The claim waits for the ledger; meanwhile another lane hears that the key is refused."""
    bench.ledger.waiting = [claim(1)]
    bench.sink.answers = [REFUSED_KEY]
    bench.ledger.meanwhile = lambda: bench.publish(claim(2))
    assert await bench.look() == 1
    assert bench.sink_state() == "open"
    await bench.publish()
    assert len(bench.sink.sent) == 1


async def test_a_recovery_during_a_probes_claim_is_not_forgotten(bench: Bench) -> None:
    await bench.fails(5)
    bench.clock.now_s += 1
    bench.ledger.waiting = [claim(1)]
    in_flight = claim(2)
    bench.sink.answers = [recorded(2)]

    async def answered() -> None:
        # It was sent before the breaker opened and is answered only now.
        bench.publisher.breaker = bench.publisher.breaker.succeeded()
        await bench.publish(in_flight)

    bench.ledger.meanwhile = answered
    assert await bench.look() == 1
    assert bench.sink_state() == "closed"


async def test_failures_counted_during_a_claim_stay_counted(bench: Bench) -> None:
    bench.ledger.waiting = [claim(1)]
    bench.ledger.meanwhile = lambda: bench.fails(3)
    await bench.look()
    assert bench.publisher.breaker.failures == 3


async def test_a_failure_is_its_own_only_while_others_are_served(bench: Bench) -> None:
    """The first failure is charged: as far as anyone knows the sink is up. The next are not."""
    charged = []
    for _ in range(3):
        bench.sink.answers = [MaybeSent("ReadTimeout")]
        charged.append((await bench.publish(claim())).attempt_used)
    assert charged == [True, False, False]
    await bench.publish(claim())
    bench.sink.answers = [MaybeSent("ReadTimeout")]
    assert (await bench.publish(claim())).attempt_used


async def test_a_healthy_answer_closes_the_count(bench: Bench) -> None:
    await bench.fails(4)
    await bench.publish(claim())
    await bench.fails(4)
    assert bench.sink_state() == "closed"


async def test_a_lock_or_a_limit_says_nothing_about_the_sink(bench: Bench) -> None:
    await bench.fails(4)
    await bench.fails(3, Answer(409, parsed=True, error_code="too_many_concurrent_requests"))
    await bench.fails(1, THROTTLED)
    assert bench.publisher.breaker.failures == 4


async def test_no_connection_counts_for_the_breaker_and_charges_nobody(bench: Bench) -> None:
    bench.sink.answers = [NotSent("ConnectError")]
    settlement = await bench.publish(claim())
    assert (settlement.state, settlement.attempt_used) == ("pending", False)
    assert bench.publisher.breaker.failures == 1
    await bench.fails(4, NotSent("ConnectError"))
    assert bench.publisher.breaker.reason == "ConnectError"


# -- pace -----------------------------------------------------------------------------------------


async def test_the_bucket_paces_all_lanes_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(replace(LIMITS, rate_per_s=8))

    async def sleep(seconds: float) -> None:
        bench.clock.now_s += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    started_s = bench.clock.now_s
    for _ in range(2):
        await bench.publish(claim())
    assert bench.clock.now_s == started_s, "a quarter of a second's worth may go at once"
    for _ in range(16):
        await bench.publish(claim())
    assert bench.clock.now_s - started_s == pytest.approx(2.0, abs=0.01)


async def test_a_throttled_request_halves_the_pace_of_all(
    bench: Bench, pauses: list[float]
) -> None:
    bench.sink.answers = [THROTTLED]
    settlement = await bench.publish(claim())
    assert (settlement.state, settlement.attempt_used) == ("pending", False)
    assert bench.sink_state() == "closed"
    await bench.publish(claim())
    assert pauses == [pytest.approx(1 / 500)]


async def test_time_spent_waiting_for_a_token_counts_against_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(replace(LIMITS, rate_per_s=1))

    async def sleep(_seconds: float) -> None:
        bench.clock.now_s += 50

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await bench.publish(claim(1))
    settlement = await bench.publish(claim(2))
    assert [identifier for identifier, _ in bench.sink.sent] == ["m1:1"]
    assert "lease" in (settlement.evidence.cause or "")
