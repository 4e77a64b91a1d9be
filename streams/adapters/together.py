"""Single writes by many tasks → few transactions: what comes while one is under way goes together.

Nobody waits for company: the first write goes at once, alone. Under load a transaction carries what
gathered during the one before, so the cost of a commit is shared exactly when it matters.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
ITEMS_MAX: Final = 500
"""In one transaction; more would keep its locks for long."""


class Together(Generic[Item]):
    """A queue in front of a write that takes many."""

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[None]],
        refused: type[Exception],
    ) -> None:
        """Takes what writes, and what it raises when the content is at fault."""
        self._write = write
        self._refused = refused
        self._waiting: list[tuple[Item, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def add(self, item: Item) -> None:
        """Returns once the item is written; raises what writing it raised."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._run())
        await done

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:ITEMS_MAX], self._waiting[ITEMS_MAX:]
                await self._one(batch)
        finally:
            self._writer = None
            for _, done in self._waiting:
                done.cancel()

    async def _one(self, batch: list[tuple[Item, asyncio.Future[None]]]) -> None:
        try:
            await self._write([item for item, _ in batch])
        except self._refused as error:
            if len(batch) == 1:
                _tell(batch, error)
            else:
                # One of them is at fault, and the others must not wait for it for ever.
                for single in batch:
                    await self._one([single])
        except BaseException as error:
            _tell(batch, error)
            if not isinstance(error, Exception):
                raise
        else:
            _tell(batch, None)


def _tell(batch: list[tuple[Item, asyncio.Future[None]]], error: BaseException | None) -> None:
    for _, done in batch:
        if done.done():
            continue  # whoever waited has given up
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
