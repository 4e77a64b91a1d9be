"""A tenant on several Kafka keys: each has a level of its own, and the window is all of them."""

from __future__ import annotations

import msgspec
import pytest

from tests.integration.ledger.world import World, values

pytestmark = pytest.mark.postgres

CUT = (
    "SELECT shard, array_agg(delta ORDER BY revision), max(level_total) FROM ledger.meter_log"
    " GROUP BY shard ORDER BY shard"
)


async def tell(world: World, shard: int, count: int, total: int) -> None:
    """A shard's level, from the partition that its key is at home on."""
    world.partition = 3 + shard
    series = msgspec.structs.replace(world.series(), shard=shard)
    await world.tell(levels=(world.level(series, count, total),))


# The same in both: whatever is read of the wrong shard, no difference is left to cut.
@pytest.mark.parametrize(("first", "second"), [((2, 20), (2, 20)), ((2, 20), (5, 35))])
async def test_levels_of_one_window_are_cut_and_sent_side_by_side(
    world: World, first: tuple[int, int], second: tuple[int, int]
) -> None:
    await world.map()
    await tell(world, 1, *first)
    await world.ledger.cut_entries(10)
    await tell(world, 2, *second)
    await world.ledger.cut_entries(10)
    assert world.rows(CUT) == [(1, [first[1]], first[1]), (2, [second[1]], second[1])]

    assert sum(values(await world.drain())) == first[1] + second[1]
    for column in ("total", "settled"):
        assert world.balance(column) == first[1] + second[1]
    assert world.value("SELECT count(*) FROM ledger.balance") == 1
    assert world.value("SELECT sum(units) FROM ledger.meter_event") == first[1] + second[1]


async def test_a_shard_that_grows_adds_its_own_difference_and_a_replay_of_it_nothing(
    world: World,
) -> None:
    await world.map()
    # What was recorded before the tenant was sharded stays where it was.
    for shard, count, total in ((0, 4, 40), (1, 2, 20), (2, 3, 35)):
        await tell(world, shard, count, total)
    assert values(await world.drain()) == [95]

    for shard, count, total in ((2, 5, 36), (1, 2, 20), (2, 3, 35), (2, 5, 36), (0, 4, 40)):
        await tell(world, shard, count, total)
        await world.ledger.cut_entries(10)
    assert world.rows(CUT) == [(0, [40], 40), (1, [20], 20), (2, [35, 1], 36)]
    assert values(await world.drain()) == [1]
    assert world.balance("settled") == 96
    assert (await world.ledger.audit.misplaced()).levels == 0
    assert world.value("SELECT count(*) FROM ledger.finding") == 0
