"""How fast requests leave: tokens are handed out in the order in which they were asked for.

In: whoever wants to send. Out: its turn. Only the first in line watches the bucket, the others
sleep until they are first: a token wakes one, however many wait.
"""

import asyncio
from typing import Final

from streams.adapters.clock import Clock
from streams.core.retry import Bucket

WAIT_S_MIN: Final = 0.001
"""An event loop's timers count in milliseconds: it would spin through a shorter wait. What the
bucket gains meanwhile is handed out at once, so the rate stays what it is."""


class Pace:
    """One sender's share of what the sink permits."""

    def __init__(self, clock: Clock, rate_per_s: int) -> None:
        self._clock = clock
        self._bucket = Bucket.full(rate_per_s, max(1, rate_per_s // 4), self._now_us())
        self._first = asyncio.Lock()

    async def turn(self) -> None:
        """Returns once there is a token for the caller, the first that asked first."""
        async with self._first:
            while True:
                self._bucket, wait_us = self._bucket.take(self._now_us())
                if wait_us == 0:
                    return
                # One more: the clock's microseconds are cut off, and it would wake just too early.
                await asyncio.sleep(max(WAIT_S_MIN, (wait_us + 1) / 1_000_000))

    def slower(self) -> None:
        """The other side has complained."""
        self._bucket = self._bucket.slower(self._now_us())

    def _now_us(self) -> int:
        return int(self._clock.elapsed_s() * 1_000_000)
