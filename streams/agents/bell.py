"""A pause that ends early: whoever has made work rings, whoever does it rests until then."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

GATHER_S: Final = 0.01
"""Waited after a ring at least, so that one round of work serves many rings."""


class Bell:
    """Rung by one task, heard by another; no ring is lost, many are heard as one."""

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        self._elapsed_s = elapsed_s
        self._rung = asyncio.Event()
        self._left_s = elapsed_s()

    def ring(self) -> None:
        """There is something to do."""
        self._rung.set()

    async def rest(self, pause_s: float, *, deaf: bool = False) -> None:
        """Until the pause is over or the bell has rung.

        After a ring the rest is as long as the work before it, within the pause: however often the
        bell rings, no more than half of the time is spent on what the pause is there to spare.

        Args:
            pause_s: the longest rest.
            deaf: rest as long, whoever rings: the work cannot be done now.
        """
        gather_s = max(GATHER_S, self._elapsed_s() - self._left_s)
        if deaf:
            await asyncio.sleep(pause_s)
        else:
            await self._rung_within(pause_s, gather_s)
        # Before the work: what is rung for from now on may not be part of it.
        self._rung.clear()
        self._left_s = self._elapsed_s()

    async def _rung_within(self, pause_s: float, gather_s: float) -> None:
        # Not `wait_for`: Python 3.11's forgets a cancellation that meets what it waited for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._rung.wait()
                await asyncio.sleep(gather_s)
