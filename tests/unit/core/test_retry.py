import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.retry import (
    MICRO,
    RETRY_AFTER_MS_MAX,
    Backoff,
    Breaker,
    BreakerPolicy,
    Bucket,
    Weather,
)

UNIFORM = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("failures", "ceiling_ms"),
    [(1, 500), (2, 1_000), (3, 2_000), (7, 32_000), (8, 60_000), (9, 60_000), (10**9, 60_000)],
)
def test_delays_double_up_to_the_cap(failures: int, ceiling_ms: int) -> None:
    assert Backoff().delay_ms(failures, 0.0) == 0
    assert Backoff().delay_ms(failures, 0.5) == ceiling_ms // 2
    assert Backoff().delay_ms(failures, 0.999_999_9) == ceiling_ms - 1


def test_no_failure_yet_is_like_the_first() -> None:
    assert Backoff().delay_ms(0, 0.5) == 250


def test_the_other_sides_wish_wins_and_is_spread() -> None:
    assert Backoff().delay_ms(9, 0.0, retry_after_ms=1_000) == 1_000
    assert Backoff().delay_ms(1, 0.5, retry_after_ms=90_000) == 90_250
    assert Backoff().delay_ms(1, 0.0, retry_after_ms=10**12) == RETRY_AFTER_MS_MAX


@given(failures=st.integers(0, 10**6), uniform=UNIFORM)
def test_a_delay_never_exceeds_the_cap(failures: int, uniform: float) -> None:
    assert 0 <= Backoff().delay_ms(failures, uniform) < 60_000


POLICY = BreakerPolicy(failures_max=3, open_ms=1_000, open_cap_ms=4_000, probe_ms=500)


def opened(now_ms: int = 0, uniform: float = 0.0) -> Breaker:
    breaker = Breaker(POLICY)
    for _ in range(3):
        breaker = breaker.failed(now_ms, "timeout", uniform)
    return breaker


def test_a_breaker_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(POLICY).failed(0, "timeout", 0.0).failed(0, "timeout", 0.0)
    assert breaker.state == "closed"
    assert breaker.ask(0) == (breaker, True)
    assert breaker.failed(0, "timeout", 0.0).state == "open"
    assert breaker.succeeded().failures == 0


def test_an_open_breaker_lets_nobody_through_until_its_time() -> None:
    breaker = opened()
    assert breaker.reason == "timeout"
    assert breaker.until_ms == 500
    assert breaker.ask(499) == (breaker, False)


def test_exactly_one_probe_goes_when_half_open() -> None:
    probing, allowed = opened().ask(500)
    assert allowed
    assert probing.state == "half_open"
    assert probing.ask(999) == (probing, False)


def test_a_lost_probe_is_replaced() -> None:
    probing, _ = opened().ask(500)
    again, allowed = probing.ask(1_000)
    assert allowed
    assert again.until_ms == 1_500


def test_a_probe_that_was_not_sent_leaves_its_turn_to_another() -> None:
    probing, _ = opened().ask(500)
    again, allowed = probing.unspent(501).ask(501)
    assert allowed
    assert again.state == "half_open"
    for breaker in (opened(), Breaker(POLICY)):
        assert breaker.unspent(10_000) == breaker


def test_a_probe_that_succeeds_closes_and_one_that_fails_opens_for_longer() -> None:
    probing, _ = opened().ask(500)
    assert probing.succeeded() == Breaker(POLICY)
    second = probing.failed(600, "still down", 0.0)
    assert (second.state, second.until_ms, second.reason) == ("open", 1_600, "still down")


def test_failures_of_requests_in_flight_do_not_prolong_an_opening() -> None:
    breaker = opened()
    later = breaker.failed(400, "late", 0.9)
    assert (later.until_ms, later.reason, later.openings) == (500, "timeout", 1)


def test_openings_are_capped_and_honour_the_other_sides_wish() -> None:
    breaker = Breaker(POLICY)
    for _ in range(40):
        breaker = breaker.tripped(0, "401", 0.999_999)
    assert 3_900 < breaker.until_ms < 4_000
    assert Breaker(POLICY).tripped(0, "401", 0.0, retry_after_ms=9_000).until_ms == 9_000
    assert Breaker(POLICY).tripped(0, "401", 0.0, retry_after_ms=10**9).until_ms == (
        RETRY_AFTER_MS_MAX
    )


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = Bucket.full(rate_per_s=10, burst=2, now_us=0)
    for _ in range(2):
        bucket, wait_us = bucket.take(0)
        assert wait_us == 0
    bucket, wait_us = bucket.take(0)
    assert wait_us == 100_000
    bucket, wait_us = bucket.take(99_999)
    assert wait_us == 1
    bucket, wait_us = bucket.take(100_000)
    assert wait_us == 0


def test_a_complaint_halves_the_rate_once_a_second() -> None:
    bucket = Bucket.full(rate_per_s=100, burst=10, now_us=0).slower(0)
    assert (bucket.rate_per_s, bucket.micro_tokens) == (50, 0)
    assert bucket.slower(999_999).rate_per_s == 50
    # A second without a complaint wins one twentieth back before the next halving.
    assert bucket.slower(MICRO).rate_per_s == 27


def test_a_rate_creeps_back_and_never_below_one() -> None:
    bucket = Bucket.full(rate_per_s=100, burst=10, now_us=0).slower(0)
    assert bucket.take(4 * MICRO)[0].rate_per_s == 70
    assert bucket.take(100 * MICRO)[0].rate_per_s == 100
    slowest = Bucket.full(rate_per_s=1, burst=1, now_us=0).slower(0)
    assert slowest.rate_per_s == 1


def test_a_clock_that_goes_backwards_gives_nothing() -> None:
    bucket, _ = Bucket.full(rate_per_s=1, burst=1, now_us=MICRO).take(MICRO)
    behind, wait_us = bucket.take(0)
    assert wait_us == MICRO
    assert behind.updated_us == MICRO


@pytest.mark.parametrize(("rate_per_s", "burst"), [(0, 1), (1, 0)])
def test_an_impossible_bucket_is_refused(rate_per_s: int, burst: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Bucket.full(rate_per_s, burst, 0)


@given(
    rate_per_s=st.integers(1, 1_000),
    burst=st.integers(1, 100),
    gaps_us=st.lists(st.integers(0, 300_000), max_size=200),
)
def test_a_bucket_never_exceeds_burst_plus_rate(
    rate_per_s: int, burst: int, gaps_us: list[int]
) -> None:
    bucket, now_us, taken = Bucket.full(rate_per_s, burst, 0), 0, 0
    for gap_us in gaps_us:
        now_us += gap_us
        bucket, wait_us = bucket.take(now_us)
        taken += wait_us == 0
    assert taken <= burst + now_us * rate_per_s // MICRO


def test_weather_is_fair_while_at_most_a_tenth_of_the_others_failed() -> None:
    weather = Weather()
    assert weather.fair_beside(1)
    for lane in range(2, 11):
        weather = weather.seen(lane, failed=False)
    weather = weather.seen(11, failed=True)
    assert weather.fair_beside(1)
    assert weather.fair_beside(11), "its own failure is not the weather"
    weather = weather.seen(12, failed=True)
    assert not weather.fair_beside(1)


def test_weather_forgets() -> None:
    weather = Weather(answers_max=4).seen(9, failed=True)
    for _ in range(4):
        assert not weather.fair_beside(1)
        weather = weather.seen(2, failed=False)
    assert weather.fair_beside(1)
    assert len(weather.answers) == 4
