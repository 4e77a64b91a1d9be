"""From a held record to a person's decision and on."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streams import topics
from streams.agents.holds import REPORT_EVERY_S, Holds
from streams.core.orders import HeldRecord, Orders, Skip
from tests.support.events import usage
from tests.unit.agents.checks import totals
from tests.unit.agents.outside import Clock, Ledger
from tests.unit.agents.world import Life, World

Worlds = Callable[[Any], World]
HELD = HeldRecord("log", 3, 7, "f" * 64, "schema version 2 is unknown here", 10)


def ordered(held: HeldRecord) -> Orders:
    skip = Skip(held.offset, held.fingerprint, "broken producer", "ann", 5)
    return Orders({(held.log_id, held.partition): {held.offset: skip}})


class Bench:
    def __init__(self) -> None:
        self.ledger, self.clock = Ledger(), Clock()
        self.holds = Holds(self.ledger, self.clock, "w1")


async def test_what_holds_is_reported_at_once_and_then_now_and_then() -> None:
    bench = Bench()
    bench.holds.note(HELD)
    await bench.holds.report({3: "held"})
    await bench.holds.report({3: "held"})
    assert bench.ledger.held == [HELD]
    bench.clock.now_s += REPORT_EVERY_S
    bench.holds.note(HELD)
    await bench.holds.report({3: "held"})
    assert len(bench.ledger.held) == 2


async def test_a_chunk_says_so_before_the_engine_holds() -> None:
    bench = Bench()
    bench.holds.note(HELD)
    await bench.holds.report({})
    assert bench.ledger.held == []
    await bench.holds.report({3: "held"})
    assert bench.ledger.held == [HELD]


async def test_what_is_over_is_forgotten() -> None:
    bench = Bench()
    bench.holds.note(HELD)
    await bench.holds.report({3: "held"})
    await bench.holds.report({})
    assert bench.holds.skipped(ordered(HELD)) == []


async def test_a_ledger_that_is_away_is_told_later() -> None:
    bench = Bench()
    bench.holds.note(HELD)
    bench.ledger.away = True
    await bench.holds.report({3: "held"})
    bench.ledger.away = False
    await bench.holds.report({3: "held"})
    assert bench.ledger.held == [HELD]


async def test_only_the_record_decided_on_lets_its_partition_go_on() -> None:
    bench = Bench()
    bench.holds.note(HELD)
    assert bench.holds.skipped(Orders()) == []
    assert bench.holds.skipped(ordered(replace(HELD, offset=8))) == []
    assert bench.holds.skipped(ordered(HELD)) == [3]


async def skip_what_holds(world: World, life: Life) -> None:
    """As an operator would: the decision stands in the ledger and is read with the catalogue."""
    world.ledger.ordered = ordered(life.noted[-1])
    assert await life.book.refresh()
    life.held = None


async def test_a_skipped_record_is_dead_and_everything_else_counts(
    world_of: Worlds, begin: Any
) -> None:
    newer = usage("newer", v=2)
    world = world_of([usage("a", "5"), newer, usage("b", "7")])
    life = await begin(world)
    world.ledger.witness = lambda _batch: None  # the oracle knows of no decision
    await life.work([10])
    assert life.held is not None
    await skip_what_holds(world, life)
    await life.work([10])
    assert life.held is None
    assert totals(life) == {"api_calls": 12}
    [(_, letter)] = world.broker.outputs[topics.DEAD_LETTER]
    assert b"skipped by ann" in letter


@pytest.mark.parametrize("sizes", [[1], [10]])
async def test_a_replay_from_nothing_decides_the_same(
    world_of: Worlds, begin: Any, sizes: list[int]
) -> None:
    world = world_of([usage("a", "5"), usage("newer", v=2), usage("b", "7")])
    life = await begin(world)
    world.ledger.witness = lambda _batch: None
    await life.work([10])
    await skip_what_holds(world, life)
    await life.work([10])
    told, positions = dict(world.ledger.facts), dict(world.ledger.positions)
    life.table.close()
    world.lose_disk()
    world.broker.packed.clear()
    again = await begin(world)
    world.ledger.witness = lambda _batch: None
    await again.work(sizes)
    assert again.held is None
    assert totals(again) == {"api_calls": 12}
    assert (world.ledger.facts, world.ledger.positions) == (told, positions)
    assert world.ledger.findings == []
