"""A pause that ends early: whoever has made work rings, whoever does it rests until then."""

import asyncio
import contextlib


class Bell:
    """Rung by one loop, heard by another; no ring is lost, many are heard as one."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """There is something to do."""
        self._rung.set()

    async def rest(self, pause_s: float, gather_s: float) -> None:
        """Until the pause is over or the bell has rung.

        Args:
            pause_s: the longest pause.
            gather_s: waited after a ring, so that one round serves many.
        """
        # Not `wait_for`: Python 3.11's forgets a cancellation that meets what it waited for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._rung.wait()
                await asyncio.sleep(gather_s)
        # Before the work: what is rung for from now on may not be part of it.
        self._rung.clear()
