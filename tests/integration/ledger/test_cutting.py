from __future__ import annotations

import asyncio

import pytest

from tests.integration.ledger.world import HOUR_US, MINUTE_US, WINDOWED, World, values

pytestmark = pytest.mark.postgres


async def test_an_open_window_is_not_cut_and_a_closed_one_is(world: World) -> None:
    await world.tell(levels=(world.level(world.series(back=-30), 3, 30),))
    assert await world.ledger.cut_entries(10) == 0

    await world.tell(levels=(world.level(world.series(back=1), 3, 30),))
    assert await world.ledger.cut_entries(10) == 1
    assert await world.ledger.cut_entries(10) == 0
    assert world.balance("held") == 60


async def test_a_level_that_grows_is_cut_by_its_difference(world: World) -> None:
    await world.map()
    for count, total in [(1, 10), (3, 25), (4, 25), (7, 26)]:
        await world.tell(levels=(world.level(world.series(), count, total),))
        await world.ledger.cut_entries(10)

    assert world.rows(
        "SELECT revision, delta, level_count, level_total FROM ledger.meter_log ORDER BY 1"
    ) == [(1, 10, 1, 10), (2, 15, 3, 25), (3, 1, 7, 26)]
    assert world.value("SELECT count(*) FROM ledger.level WHERE due_at IS NOT NULL") == 0


async def test_the_close_delay_is_waited_and_spread(world: World) -> None:
    slow = WINDOWED._replace(metric="slow", event_name="slow", close_delay_us=HOUR_US)
    await world.ledger.catalogue.append_meters([slow], "tests")
    series = [world.series(f"t{n}", metric="slow") for n in range(200)]
    await world.tell(levels=tuple(world.level(s, 1, 1) for s in series))

    waits = [
        row[0]
        for row in world.rows("SELECT ledger.us(due_at) - ledger.us(window_end) FROM ledger.level")
    ]

    assert await world.ledger.cut_entries(10) == 0
    assert min(waits) >= HOUR_US
    assert max(waits) < 2 * HOUR_US
    assert len({wait // MINUTE_US for wait in waits}) > 30


async def test_a_difference_of_more_than_15_digits_is_cut_in_parts(world: World) -> None:
    total = 2 * 10**15 + 7
    await world.map()
    await world.tell(levels=(world.level(world.series(), 5, total),))

    sent = await world.drain()
    while more := await world.drain():
        sent.extend(more)

    assert sum(values(sent)) == total
    assert all(abs(value) < 10**15 for value in values(sent))
    assert world.balance("settled") == total


async def test_entries_of_one_window_that_are_too_great_together_are_sent_in_parts(
    world: World,
) -> None:
    await world.map()
    series = world.series()
    for n in range(3):
        await world.tell(corrections=(world.correction(f"c{n}", 6 * 10**14, series),))

    assert values(await world.drain()) == [6 * 10**14] * 3


async def test_cutters_share_the_work_and_cut_nothing_twice(world: World) -> None:
    series = [world.series(f"t{n}", back=2 + n % 7) for n in range(300)]
    for count in range(1, 4):
        await world.tell(levels=tuple(world.level(s, count, count * 2) for s in series))
        await asyncio.gather(*(world.ledger.cut_entries(40) for _ in range(8)))
    while await world.ledger.cut_entries(40):
        pass

    assert world.value("SELECT sum(delta) FROM ledger.meter_log") == 300 * 6
    assert (await world.ledger.audit.misplaced()).levels == 0
