"""Waiting for a condition with a deadline, never for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

PAUSE_S = 0.02


class NotInTimeError(AssertionError):
    """A condition did not come true before its deadline."""


async def eventually(
    what: str, condition: Callable[[], bool | Awaitable[bool]], deadline_s: float = 10
) -> None:
    """Asks again and again while the loop runs; `what` is named if it never comes true."""
    end_s = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer if isinstance(answer, bool) else await answer:
            return
        if time.monotonic() > end_s:
            raise NotInTimeError(f"not within {deadline_s:.0f} s: {what}")
        await asyncio.sleep(PAUSE_S)  # the pause between two questions, bounded by the deadline
