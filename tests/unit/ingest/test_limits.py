"""A bucket of events for each key."""

from streams.ingest.limits import EVENTS_MAX, Rates
from tests.unit.ingest.producer import HandClock


def test_a_key_that_waits_as_long_as_it_is_told_may_go_on() -> None:
    clock = HandClock()
    rates = Rates(200, clock)
    assert rates.take("a", EVENTS_MAX) == 0
    for _ in range(5):
        wait_s = rates.take("a", EVENTS_MAX)
        assert wait_s == 5
        clock.now_s += wait_s
        assert rates.take("a", EVENTS_MAX) == 0


def test_one_key_takes_nothing_from_another() -> None:
    rates = Rates(10, HandClock())
    assert rates.take("a", EVENTS_MAX) == 0
    assert rates.take("a", 1) > 0
    assert rates.take("b", EVENTS_MAX) == 0


def test_what_is_refused_takes_nothing() -> None:
    rates = Rates(1_000, HandClock())
    assert rates.take("a", 600) == 0
    assert rates.take("a", 600) > 0
    assert rates.take("a", 400) == 0


def test_a_rest_is_saved_up_to_one_second_of_the_rate() -> None:
    clock = HandClock()
    rates = Rates(2_000, clock)
    rates.take("a", 1_000)
    clock.now_s += 3_600
    assert [rates.take("a", 1_000) for _ in range(3)] == [0, 0, 0.5]
