import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.events import Record, log_of
from tests.unit.agents.lanes import Bench
from tests.unit.agents.world import Life, World

Start = Callable[..., Any]


@pytest.fixture
def world_of(tmp_path: Path) -> Callable[[Sequence[Any]], World]:
    """A world whose source holds these contents, or records as they are."""

    def make(contents: Sequence[Any]) -> World:
        records = [one for one in contents if isinstance(one, Record)]
        return World(tmp_path, records or log_of(contents))

    return make


@pytest.fixture
async def begin() -> AsyncIterator[Start]:
    """Begins a worker's life; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(world: World) -> Life:
            return await stack.enter_async_context(Life(world))

        yield start


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> list[float]:
    """Pauses take no time, but the clock moves on by them."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        bench.clock.now_s += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return slept
