"""An event loop on told time: where everybody sleeps, time goes on to the first who wakes.

On the machine's time a wait would last as long as the machine is busy, and the same rules would not
make the same history.
"""

import asyncio
import math
from typing import Any, Protocol


class Told(Protocol):
    """Whose time it is."""

    now_s: float

    def advance(self, gap_us: int) -> None:
        """Moves it on."""


class ToldTime(asyncio.SelectorEventLoop):
    """A loop that asks `told` for the time, and moves it."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self._told = told
        self.timers = 0
        """How often somebody lay down to sleep."""

    def time(self) -> float:
        return self._told.now_s

    def call_at(self, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        self.timers += 1
        return super().call_at(*args, **kwargs)

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]  # of the base
        # Not simply the first: it may have been cancelled, and the base would wait for the next one
        # on the machine's time.
        waking = [handle.when() for handle in scheduled if not handle.cancelled()]
        if not ready and waking:
            self._told.advance(max(0, math.ceil((min(waking) - self.time()) * 1_000_000)))
        super()._run_once()  # type: ignore[misc]  # the same
