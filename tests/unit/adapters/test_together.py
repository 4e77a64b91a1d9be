"""Writes that gather: each is written once, nobody waits for company, a bad one stops no other."""

import asyncio
from collections.abc import Sequence

import pytest

from streams.adapters import together
from streams.adapters.together import Together


class RefusedError(Exception):
    """The content is at fault."""


class Bench:
    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.bad: set[int] = set()
        self.error: Exception | None = None
        self.began, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.together = Together(self.write, RefusedError)

    async def write(self, items: Sequence[int]) -> None:
        self.batches.append(list(items))
        self.began.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if self.bad & set(items):
            raise RefusedError

    async def all(self, items: Sequence[int]) -> list[BaseException | None]:
        adding = [asyncio.ensure_future(self.together.add(item)) for item in items]
        async with asyncio.timeout(5):
            return await asyncio.gather(*adding, return_exceptions=True)


async def test_a_single_write_goes_at_once() -> None:
    bench = Bench()
    async with asyncio.timeout(5):
        await bench.together.add(1)
        await bench.together.add(2)
    assert bench.batches == [[1], [2]]


async def test_what_comes_while_one_is_under_way_goes_together() -> None:
    bench = Bench()
    bench.gate.clear()
    first = asyncio.ensure_future(bench.together.add(0))
    await bench.began.wait()
    others = asyncio.ensure_future(bench.all([1, 2, 3]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    bench.gate.set()
    async with asyncio.timeout(5):
        await first
        assert await others == [None] * 3
    assert bench.batches == [[0], [1, 2, 3]]


async def test_a_transaction_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "ITEMS_MAX", 2)
    bench = Bench()
    assert await bench.all(range(5)) == [None] * 5
    assert sorted(item for batch in bench.batches for item in batch) == list(range(5))
    assert max(len(batch) for batch in bench.batches) == 2


async def test_a_failure_reaches_everybody_who_was_in_it_and_only_them() -> None:
    bench = Bench()
    bench.error = ConnectionError("away")
    assert await bench.all([1, 2]) == [bench.error] * 2
    bench.error = None
    assert await bench.all([1, 2]) == [None, None]


async def test_one_bad_item_stops_no_other() -> None:
    bench = Bench()
    bench.bad = {2}
    results = await bench.all([1, 2, 3])
    assert [type(result) for result in results] == [type(None), RefusedError, type(None)]
    assert bench.batches[-3:] == [[1], [2], [3]]


async def test_whoever_gives_up_waiting_does_not_stop_the_write() -> None:
    bench = Bench()
    bench.gate.clear()
    impatient = asyncio.ensure_future(bench.together.add(1))
    await bench.began.wait()
    impatient.cancel()
    bench.gate.set()
    assert await bench.all([2]) == [None]
    assert bench.batches == [[1], [2]]
