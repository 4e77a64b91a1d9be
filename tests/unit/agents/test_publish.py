"""A claimed lane to its settlement: what is claimed, what is sent, and what never is."""

import asyncio
from dataclasses import replace

import pytest

from streams.agents import publish
from streams.agents.publish import Lent
from streams.core.instant import DAY_US, HOUR_US, SECOND_US
from streams.core.observation import Answer
from tests.support.waiting import eventually
from tests.unit.agents.lanes import (
    LIMITS,
    NOW_US,
    Bench,
    claim,
)

# -- looking for work -----------------------------------------------------------------------------


async def test_due_entries_are_cut_and_lanes_claimed_up_to_the_limit(bench: Bench) -> None:
    bench.ledger.due = 7
    bench.ledger.waiting = [claim(n) for n in range(20)]
    assert await bench.look() == 16, "four in flight, and three times as many to go on with"
    assert bench.publisher.figures.cut == 7
    assert bench.publisher.figures.claimed == 16
    assert await bench.look() == 0, "every lane it may hold is lent"
    assert bench.ledger.asked == [16]
    await bench.publish()
    assert await bench.look() == 1
    assert bench.ledger.asked == [16, 1]


@pytest.mark.parametrize(("rate_per_s", "lent_max"), [(1, 6), (3, 10), (6, 16), (1_000, 16)])
def test_no_more_lanes_are_lent_than_their_leases_allow(rate_per_s: int, lent_max: int) -> None:
    """A lane that waits for its token for longer than its lease would be sent by nobody."""
    assert replace(LIMITS, rate_per_s=rate_per_s).lent_max == lent_max


async def test_it_looks_again_as_soon_as_a_lane_has_come_back(bench: Bench) -> None:
    bench.ledger.waiting = [claim(1)]
    await bench.look()
    resting = asyncio.get_running_loop().create_task(bench.publisher.rest(3_600.0))
    await bench.publish()
    async with asyncio.timeout(5):
        await resting


async def test_with_a_backlog_it_claims_for_half_of_its_lanes_at_once(bench: Bench) -> None:
    bench.ledger.waiting = [claim(n) for n in range(40)]
    assert await bench.look() == 16
    resting = asyncio.get_running_loop().create_task(bench.publisher.rest(3_600.0))
    for _ in range(7):
        await bench.publish()
    assert not resting.done()
    await bench.publish()
    async with asyncio.timeout(5):
        await resting
    assert await bench.look() == 8


@pytest.mark.parametrize("lanes", [0, 1, 16])
async def test_it_rests_until_there_is_more_to_send(bench: Bench, lanes: int) -> None:
    bench.ledger.waiting = [claim(n) for n in range(lanes)]
    assert await bench.look() == lanes
    resting = asyncio.get_running_loop().create_task(bench.publisher.rest(3_600.0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not resting.done()
    bench.publisher.wake()
    async with asyncio.timeout(5):
        await resting


async def test_a_lane_that_takes_long_does_not_keep_it_from_looking(bench: Bench) -> None:
    bench.ledger.waiting = [claim(1)]
    await bench.look()
    async with asyncio.timeout(5):
        await bench.publisher.rest(0.001)


async def test_a_lane_whose_publishing_failed_is_no_longer_in_flight(bench: Bench) -> None:
    bench.ledger.waiting = [claim(n) for n in range(16)]
    await bench.look()

    def broken() -> None:
        message = "a bug"
        raise ValueError(message)

    bench.sink.meanwhile = broken
    with pytest.raises(ValueError, match="a bug"):
        await bench.publish()
    bench.ledger.waiting = [claim(9)]
    assert await bench.look() == 1


async def test_no_more_requests_are_in_flight_than_there_may_be(bench: Bench) -> None:
    bench.sink.gate = asyncio.Event()
    bench.ledger.waiting = [claim(n) for n in range(16)]
    await bench.look()
    publishing = [asyncio.ensure_future(bench.publish()) for _ in range(16)]
    await eventually("some are sent", lambda: len(bench.sink.sent) >= LIMITS.lanes)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(bench.sink.sent) == LIMITS.lanes
    bench.sink.gate.set()
    await asyncio.gather(*publishing)
    assert [key for _, key in bench.sink.sent] == [f"m1:{n}.g1" for n in range(16)], "in order"


async def test_while_settlements_are_written_others_are_sent(bench: Bench) -> None:
    bench.ledger.writing = asyncio.Event()
    bench.ledger.waiting = [claim(n) for n in range(16)]
    await bench.look()
    publishing = [asyncio.ensure_future(bench.publish()) for _ in range(16)]
    await eventually("all are sent", lambda: len(bench.sink.sent) == 16)
    assert bench.ledger.settled == []
    bench.ledger.writing.set()
    await asyncio.gather(*publishing)
    assert len(bench.ledger.settled) == 16


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
    bench.ledger.waiting = [claim(n) for n in range(17)]
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


async def test_each_step_is_reached_between_its_effect_and_the_next() -> None:
    """What a drill does at a step it does to the state that the step is named for."""
    seen: list[tuple[str, int, int]] = []
    bench = Bench(
        crash_at=lambda step: seen.append((step, len(bench.sink.sent), len(bench.ledger.settled)))
    )
    assert await bench.look() == 0
    assert seen == [], "nothing was claimed"
    bench.ledger.waiting = [claim(1)]
    await bench.look()
    await bench.publish()
    assert seen == [
        ("lanes_claimed", 0, 0),
        ("before_first_byte", 0, 0),
        ("answer_read", 1, 0),
        ("lane_settled", 1, 1),
    ]


# -- the end --------------------------------------------------------------------------------------


async def test_who_stops_gives_back_what_it_has_not_sent(bench: Bench) -> None:
    """Left to its lease, a lane would stay closed and its attempt count as possibly executed."""
    bench.ledger.waiting = [claim(n) for n in range(3)]
    assert await bench.look() == 3
    draining = asyncio.get_running_loop().create_task(bench.publisher.drain())
    await asyncio.sleep(0)
    for _ in range(3):
        assert not draining.done()
        settlement = await bench.publish()
        assert (settlement.state, settlement.evidence.cause) == ("pending", "this worker stops")
        assert not settlement.possibly_executed
        assert not settlement.attempt_used
    async with asyncio.timeout(5):
        await draining
    assert bench.sink.sent == []
    bench.ledger.waiting = [claim(9)]
    assert await bench.look() == 0, "and claims no more"
    assert bench.ledger.waiting == [claim(9)]


async def test_who_stops_waits_for_the_answer_of_what_it_has_sent(bench: Bench) -> None:
    bench.ledger.waiting = [claim(1)]
    await bench.look()
    bench.sink.gate = asyncio.Event()
    sending = asyncio.get_running_loop().create_task(bench.publish())
    await eventually("the request", lambda: bool(bench.sink.sent))
    draining = asyncio.get_running_loop().create_task(bench.publisher.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    bench.sink.gate.set()
    async with asyncio.timeout(5):
        await draining
        assert (await sending).state == "recorded"


@pytest.mark.parametrize("turns", range(4))
async def test_who_is_stopped_the_moment_a_lane_comes_back_stops(bench: Bench, turns: int) -> None:
    """A loop that forgets its cancellation keeps its worker from ever ending."""
    bench.ledger.waiting = [claim(1)]
    await bench.look()
    resting = asyncio.get_running_loop().create_task(bench.publisher.rest(3_600.0))
    await asyncio.sleep(0)
    await bench.publish()
    for _ in range(turns):
        await asyncio.sleep(0)
    resting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resting


async def test_who_stops_does_not_wait_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "GIVE_BACK_S", -LIMITS.request_s_max)
    bench.ledger.waiting = [claim(1)]
    await bench.look()
    async with asyncio.timeout(5):
        await bench.publisher.drain()
    assert bench.ledger.settled == []
