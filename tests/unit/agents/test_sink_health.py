"""What one answer means for all lanes: breaker, blame and pace."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from streams.core.instant import HOUR_US, SECOND_US
from streams.core.observation import Answer, MaybeSent, NotSent
from tests.unit.agents.lanes import (
    DOWN,
    LIMITS,
    NOW_US,
    REFUSED_KEY,
    THROTTLED,
    Bench,
    claim,
    recorded,
)

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


@pytest.mark.parametrize(
    "unsendable",
    [
        {"possibly_executed": True, "first_attempt_at_us": NOW_US - 23 * HOUR_US},
        {"timestamp_s": NOW_US // SECOND_US + 3_600},
        {"timestamp_s": NOW_US // SECOND_US - 34 * 86_400 - 1},
        {"lease_until_us": NOW_US + 2 * SECOND_US},
    ],
    ids=["in doubt for too long", "dated ahead", "too old", "lease too short"],
)
async def test_a_probe_that_may_not_be_sent_is_not_spent(
    bench: Bench, unsendable: dict[str, Any]
) -> None:
    """After a long outage many lanes are in doubt for too long: none may cost thirty seconds."""
    await bench.fails(5)
    bench.clock.now_s += 1
    bench.ledger.waiting = [claim(1, **unsendable), claim(2)]
    before = len(bench.sink.sent)
    assert await bench.look() == 1
    await bench.publish()
    assert len(bench.sink.sent) == before
    assert await bench.look() == 1
    assert (await bench.publish()).state == "recorded"
    assert bench.sink_state() == "closed"


@pytest.mark.parametrize(
    "seen", [THROTTLED, Answer(409, parsed=True, error_code="idempotency_key_in_use")]
)
async def test_a_probe_whose_answer_tells_nothing_is_not_spent(bench: Bench, seen: Answer) -> None:
    """A sink that comes back throttled would else be asked once in thirty seconds."""
    await bench.fails(5)
    bench.clock.now_s += 1
    bench.ledger.waiting = [claim(1), claim(2)]
    await bench.look()
    bench.sink.answers = [seen]
    await bench.publish()
    assert bench.sink_state() == "open"
    bench.clock.now_s += 1
    assert await bench.look() == 1
    await bench.publish()
    assert bench.sink_state() == "closed"


async def test_what_was_claimed_before_the_probe_does_not_give_it_back(bench: Bench) -> None:
    bench.ledger.waiting = [claim(1, timestamp_s=NOW_US // SECOND_US + 3_600)]
    await bench.look()
    await bench.fails(5)
    bench.clock.now_s += 1
    bench.ledger.waiting = [claim(2), claim(3)]
    assert await bench.look() == 1
    await bench.publish()
    assert bench.sink_state() == "half_open"
    assert await bench.look() == 0, "the probe is still on its way"


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


async def test_a_sink_that_fails_every_other_request_uses_nothing_up(bench: Bench) -> None:
    """The breaker never opens, so nobody is told; yet no failure is one lane's own."""
    charged = 0
    for number in range(40):
        bench.sink.answers = [DOWN, recorded(number)]
        charged += (await bench.publish(claim(number))).attempt_used
        await bench.publish(claim(1_000 + number))
        assert bench.sink_state() == "closed"
    assert charged == 1, "only the first, before anybody else had failed"


async def test_among_healthy_lanes_the_failing_one_is_charged_each_time(bench: Bench) -> None:
    for number in range(20):
        bench.sink.answers = [DOWN]
        assert (await bench.publish(claim(7))).attempt_used
        await bench.publish(claim(1_000 + number))


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
    assert pauses == [pytest.approx(1 / 500, abs=2e-6)]


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
