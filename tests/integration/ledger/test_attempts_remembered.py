"""A ledger that forgot nothing but attempts: told by the last one that a worker remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.adapters.attempt_file import AttemptFile
from streams.adapters.clock import SystemClock
from streams.agents.attempt_memory import AttemptMemory
from streams.core.lane import LastAttempt, Standing
from streams.engine.group_offsets import Notes
from tests.integration.ledger.world import World

pytestmark = pytest.mark.postgres

ADOPT = "SELECT ledger.adopt_v1(%s, 'ann', %s)"


def forget_attempts(world: World) -> None:
    """As a backup from before the attempts has it; its numbers begin where they began then."""
    world.admin.execute("ALTER TABLE ledger.attempt DISABLE TRIGGER no_delete")
    world.admin.execute("DELETE FROM ledger.attempt")
    world.admin.execute("ALTER TABLE ledger.attempt ALTER attempt_id RESTART")
    world.admin.execute("UPDATE ledger.lane SET claimed_until = NULL, attempt_id = NULL")


def halts(world: World) -> list[tuple[str, int | None]]:
    rows = world.rows(
        "SELECT kind, (detail ->> 'attempt_id')::bigint FROM ledger.halt WHERE lifted_at IS NULL"
    )
    return [(str(kind), attempt) for kind, attempt in rows]


class Others:
    """Nobody has noted anything in the group's offsets, a moment ago."""

    def __init__(self) -> None:
        self.notes: Notes | None = Notes(frozenset(), SystemClock().elapsed_s())

    def renew_notes(self) -> None:
        raise AssertionError("they are new")


@pytest.fixture
def memory(world: World, tmp_path: Path) -> AttemptMemory:
    memory = AttemptMemory(world.ledger, AttemptFile(tmp_path), SystemClock().elapsed_s, 0.5)
    assert memory.catch_up(Others())
    return memory


async def lend(world: World, memory: AttemptMemory, name: str) -> LastAttempt:
    """One request is lent, and not answered."""
    await world.map(tenant=name)
    await world.tell(events=(world.event(name, 4, name),))
    (claim,) = await memory.claim("worker-1", 1, 60)
    return LastAttempt(claim.attempt_id, claim.now_us)


async def test_what_is_remembered_of_a_claim_is_what_the_ledger_says_of_it(
    world: World, memory: AttemptMemory
) -> None:
    assert await world.ledger.attempt_stands(None) == Standing(stands=True, last=None)
    last = await lend(world, memory, "acme")
    assert await world.ledger.attempt_stands(last) == Standing(stands=True, last=last)
    assert await memory.stands()
    assert halts(world) == []


async def test_a_ledger_without_it_halts_before_the_same_amount_is_lent_again(
    world: World, memory: AttemptMemory
) -> None:
    last = await lend(world, memory, "acme")
    forget_attempts(world)

    assert not await memory.stands()

    assert halts(world) == [("ledger_went_back", last.attempt_id)]
    world.due_now()
    assert await world.claim() == []
    assert not await memory.stands()
    assert len(halts(world)) == 1


async def test_put_back_after_it_was_asked_it_halts_within_the_claim(
    world: World, memory: AttemptMemory
) -> None:
    last = await lend(world, memory, "acme")
    assert await memory.stands()
    forget_attempts(world)
    world.due_now()

    assert await memory.claim("worker-1", 1, 60) == []

    assert halts(world) == [("ledger_went_back", last.attempt_id)]
    assert not await memory.stands()


async def test_another_attempt_under_its_number_is_not_it(
    world: World, memory: AttemptMemory
) -> None:
    last = await lend(world, memory, "acme")
    forget_attempts(world)
    world.due_now()
    (other,) = await world.claim()
    assert other.attempt_id == last.attempt_id

    assert not await memory.stands()


async def test_once_adopted_it_stands_and_a_later_loss_is_noticed_again(
    world: World, memory: AttemptMemory
) -> None:
    await lend(world, memory, "acme")
    forget_attempts(world)
    assert not await memory.stands()
    assert world.value(ADOPT, "restored", False) == 1

    assert await memory.stands()
    assert world.rows("SELECT dead_kind FROM ledger.meter_event") == [("ambiguous",)]
    world.admin.execute("UPDATE ledger.doubt SET settled_at = now()")
    await lend(world, memory, "bolt")
    assert await memory.stands()
    forget_attempts(world)
    assert not await memory.stands()


async def test_a_person_says_that_it_was_restored_where_nobody_remembers(world: World) -> None:
    assert world.value(ADOPT, "restored the backup of 02:00", False) is None
    assert world.value(ADOPT, "restored the backup of 02:00", True) == 1
    assert world.value(ADOPT, "restored the backup of 02:00", True) is None
    assert world.value(ADOPT, "restored the backup of 03:00", True) == 2


async def test_the_same_words_are_another_restore_once_something_was_sent(
    world: World, memory: AttemptMemory
) -> None:
    """A later restore goes back to a state that has the first one's adoption already."""
    await lend(world, memory, "acme")
    assert world.value(ADOPT, "restored the backup of 02:00", True) == 1
    assert world.value(ADOPT, "restored the backup of 02:00", True) is None
    world.admin.execute("UPDATE ledger.doubt SET settled_at = now()")
    world.expire_leases()
    await lend(world, memory, "bolt")

    assert world.value(ADOPT, "restored the backup of 02:00", True) == 2

    assert world.rows("SELECT dead_kind FROM ledger.meter_event") == [("ambiguous",)] * 2


async def test_whoever_is_not_in_touch_is_lent_nothing_and_nothing_is_written(
    world: World,
) -> None:
    await world.map()
    await world.tell(events=(world.event("acme", 4, "acme"),))
    asked: list[int] = []

    def in_touch() -> bool:
        asked.append(1)
        return False

    assert await world.ledger.claim("worker-1", 1, 60, None, in_touch) == []

    assert asked
    assert world.value("SELECT count(*) FROM ledger.attempt") == 0
    assert len(await world.ledger.claim("worker-1", 1, 60, None, lambda: True)) == 1
