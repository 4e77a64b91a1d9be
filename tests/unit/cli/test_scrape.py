"""A part that is away costs its own figures, and is asked once while it hangs."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from streams.adapters.metrics import Sample
from streams.cli.scrape import Scrape
from tests.support.waiting import eventually

LAG: Sample = ("usage_partition_lag_records", "3", 7)


def well() -> list[Sample]:
    return [LAG]


def refused() -> Iterator[Sample]:
    yield "usage_slot_lost", "sandbox", 0
    raise ConnectionError("nobody there")


async def test_what_is_readable_is_told_and_the_rest_is_named() -> None:
    scrape = Scrape({"kafka": well, "slot": refused}, within_s=5)
    samples = await scrape.samples()
    assert LAG in samples
    assert ("usage_exporter_up", "kafka", 1) in samples
    assert ("usage_exporter_up", "slot", 0) in samples
    assert "usage_slot_lost" not in {name for name, _, _ in samples}, "half a part is told"


async def test_a_part_that_hangs_is_asked_once_and_comes_back() -> None:
    asked = 0
    released = threading.Event()

    def hanging() -> list[Sample]:
        nonlocal asked
        asked += 1
        released.wait(30)
        return [LAG]

    scrape = Scrape({"kafka": hanging, "slot": list}, within_s=0.05)
    for _ in range(3):
        samples = await scrape.samples()
        assert ("usage_exporter_up", "kafka", 0) in samples
        assert ("usage_exporter_up", "slot", 1) in samples
    assert asked == 1
    released.set()

    async def back() -> bool:
        return LAG in await scrape.samples()

    await eventually("the part to be read again", back)
    scrape.close()


async def test_what_nobody_waited_for_is_not_told_once_it_is_old() -> None:
    asked = 0
    released = threading.Event()

    def slow() -> list[Sample]:
        nonlocal asked
        asked += 1
        released.wait(30)
        return [LAG]

    scrape = Scrape({"kafka": slow}, within_s=0.05, kept_s=0)
    assert await scrape.samples() == [("usage_exporter_up", "kafka", 0)]
    released.set()
    await asyncio.wait([scrape._running["kafka"].samples])
    await scrape.samples()
    assert asked == 2
    scrape.close()


async def test_two_scrapes_that_wait_for_one_reading_leave_the_next_one_alone() -> None:
    asked = 0
    released = threading.Event()

    def second_hangs() -> list[Sample]:
        nonlocal asked
        asked += 1
        if asked > 1:
            released.wait(30)
        return [LAG]

    scrape = Scrape({"kafka": second_hangs}, within_s=30)

    async def twice() -> list[Sample]:
        await scrape.samples()
        return await scrape.samples()

    first, beside = asyncio.create_task(twice()), asyncio.create_task(scrape.samples())
    assert LAG in await beside
    third = asyncio.create_task(scrape.samples())
    released.set()
    assert LAG in await first
    assert LAG in await third
    assert asked == 2, "a reading that goes on is asked again"
    scrape.close()


async def test_an_outage_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    scrape = Scrape({"slot": refused}, within_s=5)
    await scrape.samples()
    await scrape.samples()
    said = capsys.readouterr()
    assert (said.out + said.err).count("part_unreadable") == 1
