"""Readings that nothing can change any more, to the microsecond."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.agents.memory import PartitionMemory, memory_of
from streams.app import FOR_EVER_US
from streams.core.event import UsageEvent
from streams.core.fact import Series
from streams.core.instant import DAY_US, HOUR_US, MINUTE_US
from streams.core.level import CellKey
from streams.core.verdict import Accepted, judge
from streams.engine.errors import TableClosed
from streams.engine.table import PartitionTable
from tests.support.events import CATALOGUE, T0_US, correction, log_of, usage
from tests.unit.agents.world import Life, World

Worlds = Callable[[Any], World]
SKEW_US: Final = 2 * HOUR_US


async def told(world: World, begin: Any) -> Life:
    """Everything settled and acknowledged."""
    life: Life = await begin(world)
    while await life.feed():
        await life.tell()
    return life


def at_floor(memory: PartitionMemory, floor_us: int, patch: pytest.MonkeyPatch) -> set[str]:
    """What is left once the state has forgotten ids up to `floor_us`: `level` or cell classes."""
    patch.setattr(PartitionTable, "floor_us", floor_us)
    memory.drop_closed(lambda _series: SKEW_US)
    return {getattr(key, "verdict_class", "level") for key in memory.readings}


LEVEL_CLOSED_US: Final = T0_US + HOUR_US + SKEW_US
CELL_CLOSED_US: Final = T0_US + MINUTE_US


async def test_a_level_goes_when_its_window_and_skew_lie_below_the_floor(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of([usage("a", "5")])
    memory = memory_of((await told(world, begin)).table)
    assert at_floor(memory, -1, monkeypatch) == {"level", "accepted"}
    assert at_floor(memory, CELL_CLOSED_US - 1, monkeypatch) == {"level", "accepted"}
    assert at_floor(memory, CELL_CLOSED_US, monkeypatch) == {"level"}
    assert at_floor(memory, LEVEL_CLOSED_US - 1, monkeypatch) == {"level"}
    assert at_floor(memory, LEVEL_CLOSED_US, monkeypatch) == set()
    assert memory.table.meta.levels == 0
    assert list(memory.table.levels()) == []


async def test_what_the_ledger_lacks_stays(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of([usage("a", "5"), usage("b", "7", tenant_id="zeta")])
    life = await begin(world)
    await life.feed(1)
    await life.tell()
    await life.feed(1)
    memory = memory_of(life.table)
    assert at_floor(memory, LEVEL_CLOSED_US, monkeypatch) == {"level", "accepted"}
    assert {getattr(key, "tenant_id", "zeta") for key in memory.readings} == {"zeta"}


async def test_a_series_without_a_known_cutoff_stays(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_of((await told(world_of([usage("a")]), begin)).table)
    monkeypatch.setattr(PartitionTable, "floor_us", T0_US + 1_000 * DAY_US)
    memory.drop_closed(lambda _series: FOR_EVER_US)
    assert [key for key in memory.readings if isinstance(key, Series)]


async def test_a_floor_that_has_not_moved_costs_no_look(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_of((await told(world_of([usage("a")]), begin)).table)
    at_floor(memory, CELL_CLOSED_US, monkeypatch)
    monkeypatch.setattr(memory, "readings", None)
    assert memory.drop_closed(lambda _series: SKEW_US) == 0


async def test_a_table_that_moved_keeps_its_memory_whole(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = await told(world_of([usage("a")]), begin)
    memory = memory_of(life.table)
    life.table.close()
    with pytest.raises(TableClosed):
        at_floor(memory, LEVEL_CLOSED_US, monkeypatch)
    assert len(memory.readings) == 2


async def test_cells_that_still_grow_below_the_floor_stay(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late review, corrections and dead records of a minute whose ids are forgotten."""
    target = usage("a", "5")
    world = world_of(
        [
            usage("first", "1", occurred_us=T0_US - 3 * DAY_US, received_us=T0_US),
            usage("second", metric="nobody_knows"),
            correction(target, "-1", "fix-1"),
        ]
    )
    life = await told(world, begin)
    memory = memory_of(life.table)
    assert at_floor(memory, LEVEL_CLOSED_US, monkeypatch) == {"review", "dead", "correction"}

    last = world.broker.source[-1].offset
    more = [usage("third"), usage("x", metric="nobody_knows"), correction(target, "-1", "fix-2")]
    world.broker.source += [
        type(one)(one.offset + last + 1, one.timestamp_ms, one.key, one.value)
        for one in log_of(more)
    ]
    while await life.feed():
        await life.tell()
    assert world.ledger.findings == []
    counts = {
        (key.minute_us, key.verdict_class): cell.count
        for key, cell in world.ledger.cells.items()
        if isinstance(key, CellKey)
    }
    assert counts == {(T0_US, "review"): 2, (T0_US, "dead"): 2, (T0_US, "correction"): 2}


NEAR: Final = st.sampled_from([-HOUR_US, -1, 0, 1, HOUR_US])


@given(floor=NEAR, occurred=NEAR, delay=NEAR)
def test_no_usage_is_accepted_into_a_level_that_may_be_dropped(
    floor: int, occurred: int, delay: int
) -> None:
    skew_us = CATALOGUE.by_metric["api_calls"][-1].skew_max_us
    occurred_us = T0_US + HOUR_US + occurred
    received_us = occurred_us + skew_us + delay
    floor_us = T0_US + HOUR_US + skew_us + floor
    event = UsageEvent(
        event_id=bytes(16),
        source="orders",
        tenant_id="acme",
        metric="api_calls",
        quantity="1",
        occurred_at_us=occurred_us,
        received_at_us=received_us,
        shard=0,
        content=bytes(16),
    )
    verdict = judge(event, CATALOGUE, floor_us, logged_at_us=received_us, fresh=True)
    if isinstance(verdict, Accepted):
        assert verdict.series.window_end_us + skew_us > floor_us
        assert received_us - received_us % MINUTE_US + MINUTE_US > floor_us
