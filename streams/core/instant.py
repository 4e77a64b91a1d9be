"""Instants: UTC microseconds since 1970 as int, and their one form on the wire.

The wire form always has six digits and a Z (`2026-11-29T15:01:09.817658Z`), so text order is time
order and two writers never spell the same instant differently.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
FIRST_US: Final = -62_135_596_800 * SECOND_US
"""0001-01-01T00:00Z: nothing before it has a wire form."""
LAST_US: Final = 253_402_214_400 * SECOND_US
"""9999-12-31T00:00Z, exclusive for events: the end of the last day window has a wire form too."""
_MICROSECOND: Final = timedelta(microseconds=1)


def to_us(instant: datetime) -> int:
    """Microseconds of an aware datetime, exactly (no float on the way).

    Raises:
        ValueError: the datetime has no time zone.
    """
    if instant.tzinfo is None:
        message = "instant: has no time zone; give UTC with a trailing Z"
        raise ValueError(message)
    return (instant - EPOCH) // _MICROSECOND


def from_us(instant_us: int) -> datetime:
    """The aware UTC datetime of an instant."""
    return EPOCH + timedelta(microseconds=instant_us)


def wire_text(instant_us: int) -> str:
    """The instant as it stands in every record."""
    return from_us(instant_us).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def duration_us(text: str) -> int:
    """Microseconds of a duration such as `90s`, `5m`, `24h`, `7d`.

    Raises:
        ValueError: naming the rule, when the text is not a whole number and one unit.
    """
    units = {"s": SECOND_US, "m": MINUTE_US, "h": HOUR_US, "d": DAY_US}
    number, unit = text[:-1], text[-1:]
    if unit not in units or not (number.isascii() and number.isdigit()) or len(number) > 9:
        message = f"{text!r} is not a duration: a whole number and one of s, m, h, d, as in 24h"
        raise ValueError(message)
    return int(number) * units[unit]


def span_text(us: int) -> str:
    """`9 d 46 ms 355 us`: a duration for people, exact to the microsecond; at least 0."""
    units = (
        (DAY_US, "d"), (HOUR_US, "h"), (MINUTE_US, "min"), (SECOND_US, "s"), (1_000, "ms"),
        (1, "us"),
    )  # fmt: skip
    parts = []
    for length_us, unit in units:
        number, us = divmod(us, length_us)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts) or "0 s"


def over_text(us: int) -> str:
    """`more than 1 d 6 h`: a measured duration as people say it, never longer than it was."""
    step_us = MINUTE_US if us >= HOUR_US else SECOND_US if us >= MINUTE_US else 1_000
    rest = us % step_us
    return f"more than {span_text(us - rest)}" if rest and us > step_us else span_text(us)


def age_text(seconds: float) -> str:
    """Short text of an age: 12 s, 5 min, 3.1 h, 2.0 d."""
    for limit, unit, length in ((120, "s", 1), (7_200, "min", 60)):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    if seconds < 172_800:
        return f"{seconds / 3_600:.1f} h"
    return f"{seconds / 86_400:.1f} d"
