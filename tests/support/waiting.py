"""Waiting for a condition with a deadline, never for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

What = str | Callable[[], str]
"""What is waited for, for the message; a function where the message tells how far it came."""


class NotInTimeError(AssertionError):
    """A condition did not come true before its deadline."""

    def __init__(self, what: What, deadline_s: float) -> None:
        text = what if isinstance(what, str) else what()
        super().__init__(f"not within {deadline_s:g} s: {text}")


def until(what: What, condition: Callable[[], bool], deadline_s: float = 10) -> None:
    """Asks again and again; blocks until the condition is true.

    Raises:
        NotInTimeError: it never became true.
    """
    began_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began_s
        if waited_s > deadline_s:
            raise NotInTimeError(what, deadline_s)
        time.sleep(_pause_s(waited_s))


async def eventually(
    what: What, condition: Callable[[], bool | Awaitable[bool]], deadline_s: float = 10
) -> None:
    """The same while the loop runs.

    Raises:
        NotInTimeError: it never became true.
    """
    began_s = time.monotonic()
    while True:
        answer = condition()
        if answer if isinstance(answer, bool) else await answer:
            return
        waited_s = time.monotonic() - began_s
        if waited_s > deadline_s:
            raise NotInTimeError(what, deadline_s)
        await asyncio.sleep(_pause_s(waited_s))


def _pause_s(waited_s: float) -> float:
    """Between two questions: what takes long is asked rarely, for some answers are dear."""
    return min(0.5, max(0.01, waited_s / 10))
