"""What may not be decided now: it holds its partition, and everything before it is settled."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from streams import topics
from streams.agents import admit
from streams.agents.admit import WAITS_FOR_LEDGER
from streams.core import admission, envelope
from streams.core.instant import SECOND_US
from streams.engine.chunk import Chunk
from streams.engine.errors import PartitionHeld
from streams.engine.settlement import Settlement
from tests.support.events import CATALOGUE, meter, record, usage
from tests.unit.agents.checks import check_end, totals, whole
from tests.unit.agents.world import Life, World

Worlds = Callable[[Any], World]
NEWER: Final = usage("newer", v=2)


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admit, "CATALOGUE_DEADLINE_S", 0.05)


# -- holds ----------------------------------------------------------------------------------------


async def test_a_newer_schema_holds_the_partition_and_what_came_before_is_settled(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a", "5"), usage("b", "7"), NEWER, usage("c", "1")])
    life = await begin(world)
    chunk = whole(life)
    with pytest.raises(PartitionHeld, match="schema version 2 is unknown here: upgrade"):
        await life.admitter.admit(chunk)
    assert life.table.applied == 1
    assert totals(life) == {"api_calls": 12}
    assert len(world.broker.outputs[topics.ACCEPTED]) == 2
    assert not chunk.done.is_set()


def understand_newer(patch: pytest.MonkeyPatch) -> None:
    """The workers were upgraded: version 2 reads as version 1."""

    def decode(key: bytes | None, value: bytes | None) -> Any:
        if value is not None and value.startswith(b'{"v":2'):
            value = b'{"v":1' + value[6:]
        return envelope.decode(key, value)

    patch.setattr(admission, "decode", decode)


async def run_into_newer(world: World, begin: Any, patch: pytest.MonkeyPatch) -> None:
    """Held, upgraded, gone on; then everything must have been counted."""
    life = await begin(world)
    await life.work([10])
    assert life.held is not None
    life.held = None
    understand_newer(patch)
    await life.work([10])
    await life.tell()
    check_end(world, life.table)


async def test_after_the_upgrade_the_held_record_counts(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of([usage("a", "5"), NEWER, usage("c", "1")])
    await run_into_newer(world, begin, monkeypatch)


async def test_planted_applied_moves_past_a_hold(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settlement_of = admit.settlement_of

    def past(chunk: Chunk, decided: Any, catalogue: Any) -> Settlement:
        settlement = settlement_of(chunk, decided, catalogue)
        settlement.last, settlement.anchor = chunk.last, chunk.anchor
        return settlement

    monkeypatch.setattr(admit, "settlement_of", past)
    world = world_of([usage("a", "5"), NEWER, usage("c", "1")])
    with pytest.raises(AssertionError):
        await run_into_newer(world, begin, monkeypatch)


@pytest.mark.parametrize("offset", [0, 3], ids=["at_once", "behind_a_hole"])
async def test_a_hold_at_the_first_record_settles_nothing(
    world_of: Worlds, begin: Any, offset: int
) -> None:
    """Also where the log has no records before it, as behind a transaction's marker."""
    world = world_of([record(NEWER, offset)])
    life = await begin(world)
    with pytest.raises(PartitionHeld, match="upgrade"):
        await life.admitter.admit(whole(life))
    assert world.effects == []
    assert life.table.applied == -1


async def test_offsets_without_a_record_are_settled_with_the_next_one(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([record(usage("a"), 2), record(usage("b"), 5)])
    life = await begin(world)
    assert await life.feed(1)
    assert life.table.applied == 2
    assert await life.feed(1)
    await life.tell()
    check_end(world, life.table)


async def test_a_record_of_another_partition_holds(world_of: Worlds, begin: Any) -> None:
    life = await begin(world_of([usage("a"), usage("b", tenant_id="elsewhere")]))
    life.admitter._home = lambda key: int(key == b"elsewhere")
    with pytest.raises(PartitionHeld, match="offset 1 belongs on another partition"):
        await life.admitter.admit(whole(life))
    assert life.table.applied == 0


async def test_newer_rules_hold_before_anything_is_judged(world_of: Worlds, begin: Any) -> None:
    world = world_of([usage("a")])
    world.ledger.versions.append(meter("api_calls", version=3, rules=9, effective_from_us=1 << 60))
    life = await begin(world)
    with pytest.raises(PartitionHeld, match="verdict rules 9"):
        await life.admitter.admit(whole(life))
    assert world.effects == []


# -- the catalogue --------------------------------------------------------------------------------


async def test_an_unknown_metric_is_judged_by_a_reading_younger_than_the_fetch(
    world_of: Worlds, begin: Any
) -> None:
    """A meter that was added a moment ago loses nothing to a reading from before it."""
    world = world_of([usage("a", "4", metric="added_just_now")])
    life = await begin(world)
    world.ledger.versions.append(meter("added_just_now"))
    assert life.book.catalogue is not None
    assert "added_just_now" not in life.book.catalogue.by_metric
    assert await life.feed()
    assert totals(life) == {"added_just_now": 4}


async def test_a_metric_that_a_fresh_reading_does_not_know_is_dead(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a", metric="nobody_knows"), usage("b", "2")])
    life = await begin(world)
    assert await life.feed()
    assert life.admitter.figures.verdicts == {"dead": 1, "accepted": 1}
    assert b"unknown metric" in world.broker.outputs[topics.DEAD_LETTER][0][1]


async def test_while_the_ledger_is_away_known_meters_go_on_and_the_rest_waits(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a", "5"), usage("b", "4", metric="added"), usage("c", "1")])
    life = await begin(world)
    world.ledger.away = True
    with pytest.raises(PartitionHeld) as held:
        await life.admitter.admit(whole(life))
    assert str(held.value) == WAITS_FOR_LEDGER
    assert life.table.applied == 0
    assert totals(life) == {"api_calls": 5}

    world.ledger.away = False
    world.ledger.versions.append(meter("added"))
    life.discard()
    assert await life.feed()
    assert totals(life) == {"api_calls": 6, "added": 4}


async def test_without_any_reading_nothing_is_judged(world_of: Worlds) -> None:
    world = world_of([usage("a")])
    world.ledger.away = True
    async with Life(world) as life:
        assert not await life.feed()
        assert life.held == WAITS_FOR_LEDGER
        assert world.effects == []


async def test_an_event_beyond_the_notice_holds_and_names_the_clocks(
    world_of: Worlds, begin: Any
) -> None:
    """Only wrong clocks lead here: what happens now lies within the notice of a fresh reading."""
    at_us = CATALOGUE.complete_until_us
    world = world_of(
        [
            usage("a", "5", occurred_us=at_us - SECOND_US, received_us=at_us),
            usage("b", occurred_us=at_us, received_us=at_us),
        ]
    )
    life = await begin(world)
    with pytest.raises(PartitionHeld, match=r"offset 1 lies beyond .* compare the clocks"):
        await life.admitter.admit(whole(life))
    assert totals(life) == {"api_calls": 5}
    assert life.table.applied == 0
