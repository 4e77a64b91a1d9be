"""A restored ledger and a packed log that begins too late: what is told again, and what is not."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from streams.engine.errors import RecoveryGap
from streams.engine.recovery import _Attempt
from tests.support.events import usage
from tests.unit.agents.checks import check_end
from tests.unit.agents.outside import Ledger
from tests.unit.agents.world import Life, World

Worlds = Callable[[Any], World]
RECORDS = 8
JOBS = [usage(f"j{n}", metric="jobs") for n in range(RECORDS)]
"""Each of them is an entry of its own, so none is told by another one's level."""


def backed_up(ledger: Ledger) -> Ledger:
    """What the ledger holds now."""
    backup = Ledger()
    backup.levels, backup.cells = dict(ledger.levels), dict(ledger.cells)
    backup.facts, backup.positions = dict(ledger.facts), dict(ledger.positions)
    return backup


async def restored(world: World, begin: Any, told: int, packed_low: int) -> World:
    """Everything was told to a ledger, which is then one that was told less; the disk is lost.

    A packed record per source record, of which retention left those from `packed_low` on.
    """
    life: Life = await begin(world)
    backup = backed_up(world.ledger)
    for number in range(RECORDS):
        if number == told:
            backup = backed_up(world.ledger)
        assert await life.feed(1)
        await life.tell()
    check_end(world, life.table)
    life.table.close()
    world.lose_disk()
    world.ledger = backup
    world.reach_back_ms = 0
    world.broker.packed_low = packed_low
    return world


async def told_again(world: World, begin: Any) -> None:
    """A person takes the ledger on, and a new worker makes good whatever it lacks."""
    world.ledger.adopted.update(world.ledger.positions)
    life: Life = await begin(world)
    await life.work([3])
    assert {fact.offset for fact in world.ledger.facts.values()} == set(range(RECORDS))
    assert set(world.ledger.positions.values()) == {RECORDS - 1}
    assert world.ledger.findings == []


@pytest.mark.parametrize("packed_low", [0, 1, 2, 3, 7])
async def test_what_a_restored_ledger_lacks_is_told_again_wherever_the_packed_log_begins(
    world_of: Worlds, begin: Any, packed_low: int
) -> None:
    world = await restored(world_of(JOBS), begin, told=2, packed_low=packed_low)
    await told_again(world, begin)


async def test_a_packed_log_that_goes_on_where_the_ledger_ends_is_enough(
    world_of: Worlds, begin: Any
) -> None:
    world = await restored(world_of(JOBS), begin, told=3, packed_low=3)
    world.broker.low = RECORDS  # nothing is left of the source
    table = world.recovered()
    assert table.applied == RECORDS - 1
    table.close()


async def test_one_record_less_is_not_enough_and_a_person_is_asked(
    world_of: Worlds, begin: Any
) -> None:
    world = await restored(world_of(JOBS), begin, told=2, packed_low=3)
    world.broker.low = RECORDS
    with pytest.raises(RecoveryGap, match="the source begins at 8"):
        world.recovered()


async def test_a_ledger_that_does_not_know_the_log_asks_for_no_more_than_there_is(
    world_of: Worlds, begin: Any
) -> None:
    world = await restored(world_of(JOBS), begin, told=0, packed_low=3)
    world.broker.low = RECORDS
    table = world.recovered()
    assert table.applied == RECORDS - 1
    table.close()


def said(world: World) -> list[tuple[int, int]]:
    """Offsets that a recovery says are out of reach."""
    with capture_logs() as logs:
        world.recovered().close()
    return [(log["first"], log["last"]) for log in logs if log["event"] == "facts_out_of_reach"]


@pytest.mark.parametrize(
    ("told", "source_low", "expected"),
    [(2, 4, [(2, 3)]), (3, 4, [(3, 3)]), (4, 4, []), (4, 5, [(4, 4)]), (0, 4, [])],
)
async def test_what_neither_log_has_any_more_is_named(
    world_of: Worlds, begin: Any, told: int, source_low: int, expected: list[tuple[int, int]]
) -> None:
    world = await restored(world_of(JOBS), begin, told=told, packed_low=RECORDS)
    world.broker.low = source_low
    assert said(world) == expected


PLANTS: list[tuple[str, Callable[[Any, int], bool]]] = [
    ("whatever is there is enough", lambda _attempt, _first: True),
    ("one offset too few", lambda attempt, first: first <= attempt._acknowledged + 2),
]


@pytest.mark.parametrize("plant", [rule for _, rule in PLANTS], ids=[name for name, _ in PLANTS])
async def test_a_rule_taken_out_is_noticed(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch, plant: Any
) -> None:
    monkeypatch.setattr(_Attempt, "_reaches_facts", plant)
    world = await restored(world_of(JOBS), begin, told=2, packed_low=3)
    with pytest.raises(AssertionError):
        await told_again(world, begin)
