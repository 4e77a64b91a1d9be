"""A pause that ends early, and forgets neither a ring nor who stops it."""

import asyncio

import pytest

from streams.agents.bell import Bell


async def test_a_ring_ends_the_pause() -> None:
    bell = Bell()
    resting = asyncio.get_running_loop().create_task(bell.rest(3_600.0, 0.0))
    await asyncio.sleep(0)
    assert not resting.done()
    bell.ring()
    async with asyncio.timeout(5):
        await resting


async def test_a_ring_during_the_work_ends_the_next_pause_and_only_that() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    async with asyncio.timeout(5):
        await bell.rest(3_600.0, 0.0)
    resting = asyncio.get_running_loop().create_task(bell.rest(3_600.0, 0.0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not resting.done()
    resting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resting


async def test_without_a_ring_the_pause_ends_by_itself() -> None:
    async with asyncio.timeout(5):
        await Bell().rest(0.001, 3_600.0)
