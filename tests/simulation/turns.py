"""What waits on virtual time, as bare as it can be: a seed has a hundred thousand such calls.

What asyncio does beside them, for threads, files and debugging, takes longer than they do.
"""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import Any


class Call(asyncio.TimerHandle):
    """A callback that waits for its turn or its time."""

    __slots__ = ("args", "at_s", "callback", "context", "gone")

    def __init__(
        self, at_s: float, callback: Callable[..., object], args: tuple[Any, ...],
        context: Context | None,
    ) -> None:  # fmt: skip
        self.at_s, self.callback, self.args = at_s, callback, args
        self.context = copy_context() if context is None else context
        self.gone = False

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __lt__(self, other: object) -> bool:
        """Of two at the same instant neither is before the other."""
        return False

    def cancel(self) -> None:
        self.gone = True

    def cancelled(self) -> bool:
        return self.gone

    def when(self) -> float:
        return self.at_s


async def sleep(delay: float, result: Any = None) -> Any:
    """What `asyncio.sleep` does, on this loop alone; see `Call`."""
    if delay <= 0:
        await _Once()
        return result
    timeline = asyncio.get_running_loop()
    over = timeline.create_future()
    call = timeline.call_later(delay, _wake, over)
    try:
        await over
    finally:
        call.cancel()
    return result


class _Once:
    """Everybody else's turn."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def _wake(over: "asyncio.Future[None]") -> None:
    if not over.done():
        over.set_result(None)


class Bell:
    """Wakes those who wait for something new."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        """There is something new."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            _wake(one)

    async def rung(self) -> None:
        """Until there is."""
        one: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(one)
        await one
