"""Durations for people lose nothing."""

import pytest

from streams.core.instant import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    age_text,
    over_text,
    span_text,
)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 s"),
        (1, "1 us"),
        (777_600_046_355, "9 d 46 ms 355 us"),
        (DAY_US + HOUR_US + 61_000_000, "1 d 1 h 1 min 1 s"),
    ],
)
def test_a_duration_is_text_to_the_microsecond(us: int, text: str) -> None:
    assert span_text(us) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7_199, "120 min"),
        (7_200, "2.0 h"),
        (172_799, "48.0 h"),
        (172_800, "2.0 d"),
    ],
)
def test_an_age_is_short_text_with_the_unit_that_people_use(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (30 * HOUR_US + 674_490, "more than 1 d 6 h"),
        (DAY_US + 500, "more than 1 d"),
        (DAY_US, "1 d"),
        (HOUR_US + 61 * SECOND_US, "more than 1 h 1 min"),
        (5 * MINUTE_US + 3 * SECOND_US + 1, "more than 5 min 3 s"),
        (2 * SECOND_US + 1_500, "more than 2 s 1 ms"),
        (999, "999 us"),
        (0, "0 s"),
    ],
)
def test_a_measured_duration_is_told_without_noise_and_never_too_long(us: int, text: str) -> None:
    assert over_text(us) == text
