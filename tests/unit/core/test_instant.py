"""Durations for people lose nothing."""

import pytest

from streams.core.instant import DAY_US, HOUR_US, span_text


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
