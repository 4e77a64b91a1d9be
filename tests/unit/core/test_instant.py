"""Durations for people lose nothing."""

import pytest

from streams.core.instant import DAY_US, HOUR_US, age_text, span_text


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
