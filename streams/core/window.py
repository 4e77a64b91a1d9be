"""Windows: an instant → the half-open UTC window [start, end) that holds it.

Windows are multiples of their length since 1970-01-01T00:00Z, so minute, hour and day windows begin
on UTC minutes, hours and days whatever the machine's time zone.
"""

from typing import Final, NamedTuple

from streams.core.instant import DAY_US, HOUR_US, MINUTE_US

WINDOW_LENGTHS_US: Final = {"minute": MINUTE_US, "hour": HOUR_US, "day": DAY_US}


class Window(NamedTuple):
    """Half-open: an event exactly at `end_us` belongs to the next window."""

    start_us: int
    end_us: int


def window_start_us(occurred_at_us: int, length_us: int) -> int:
    """The start of an instant's window. Also right before 1970, as `%` floors."""
    return occurred_at_us - occurred_at_us % length_us


def assign(occurred_at_us: int, length_us: int) -> Window:
    """The window of an instant."""
    start_us = window_start_us(occurred_at_us, length_us)
    return Window(start_us, start_us + length_us)
