"""Waiting for a condition, never for a time."""

import asyncio
import time
from collections.abc import Callable

PAUSE_S = 0.05


class NotInTimeError(AssertionError):
    """A condition did not come true before its deadline."""


def until(what: str, condition: Callable[[], bool], deadline_s: float = 30) -> None:
    """Ask again and again; for tests without a loop."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise NotInTimeError(f"not within {deadline_s} s: {what}")
        time.sleep(PAUSE_S)  # the pause between two questions


async def eventually(what: str, condition: Callable[[], bool], deadline_s: float = 30) -> None:
    """Ask again and again while the loop runs."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise NotInTimeError(f"not within {deadline_s} s: {what}")
        await asyncio.sleep(PAUSE_S)
