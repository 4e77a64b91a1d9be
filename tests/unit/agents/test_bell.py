"""A pause that ends early, and forgets neither a ring nor who stops it."""

import asyncio

import pytest

from streams.agents import bell as bells
from streams.agents.bell import Bell

pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is rung for gathers nothing."""
    monkeypatch.setattr(bells, "GATHER_S", 0.0)


class Clock:
    """Stands still until told otherwise."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def resting(bell: Bell, *, deaf: bool = False) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(bell.rest(3_600.0, deaf=deaf))


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_ring_ends_the_pause() -> None:
    bell = Bell(Clock())
    rest = resting(bell)
    await asyncio.sleep(0)
    assert not rest.done()
    bell.ring()
    async with asyncio.timeout(5):
        await rest


async def test_a_ring_during_the_work_ends_the_next_pause_and_only_that() -> None:
    bell = Bell(Clock())
    bell.ring()
    bell.ring()
    async with asyncio.timeout(5):
        await bell.rest(3_600.0)
    rest = resting(bell)
    await some_turns()
    assert not rest.done()
    await stop(rest)


async def test_without_a_ring_the_pause_ends_by_itself() -> None:
    async with asyncio.timeout(5):
        await Bell(Clock()).rest(0.001)


async def test_after_much_work_the_rest_is_as_long_however_often_it_is_rung_for() -> None:
    """Not as long as the pause, and not as short as after little work."""
    clock = Clock()
    bell = Bell(clock)
    bell.ring()
    clock.now_s += 1_000.0
    rest = resting(bell)
    await some_turns()
    assert not rest.done()
    await stop(rest)
    clock.now_s += 0.001 - 1_000.0
    async with asyncio.timeout(5):
        await bell.rest(3_600.0)


async def test_who_cannot_work_rests_though_it_is_rung_for() -> None:
    bell = Bell(Clock())
    bell.ring()
    rest = resting(bell, deaf=True)
    await some_turns()
    assert not rest.done()
    await stop(rest)
