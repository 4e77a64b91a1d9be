"""The clock: the only module that reads time."""

import time
from datetime import UTC, datetime
from typing import Protocol

from streams.core.instant import to_us


class Clock(Protocol):
    """What may be asked of time."""

    def now_us(self) -> int:
        """UTC microseconds by this machine's wall clock; may jump."""
        ...

    def elapsed_s(self) -> float:
        """Seconds on a clock that never jumps and counts while the machine is suspended."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_us(self) -> int:
        """UTC microseconds by the wall clock."""
        return to_us(datetime.now(UTC))  # noqa: TID251 - this is the module that reads it

    def elapsed_s(self) -> float:
        """CLOCK_BOOTTIME where there is one: a lease also runs out while the machine sleeps."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
