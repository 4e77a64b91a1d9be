"""A topic that grows: who may say so, what is kept of it, and what a ledger from before refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from streams.adapters.ledger import LedgerRefusedError
from streams.core.fact import Applied, FactBatch
from streams.core.growth import Inherited, Life, Log, grown_log_id, inherited
from tests.integration.ledger.world import LOG, OTHER_LOG, PARTITIONS, TOPIC, World
from tests.support.postgres import lock_waiters
from tests.support.waiting import eventually

pytestmark = pytest.mark.postgres
WANTED = 24
GROWN = grown_log_id(LOG, PARTITIONS, WANTED)
BOUNDS = list(range(PARTITIONS))
GROW = "SELECT ledger.grow_log_v1(%s, %s, %s, %s, %s, %s, NULL)"
SPANS = (
    "SELECT log_id::text, first_partition, partitions, boundaries FROM ledger.log_span ORDER BY 2"
)
FOLLOWED = "SELECT log_id::text FROM ledger.log_followed ORDER BY 1"


def grow(
    world: World,
    present: int = PARTITIONS,
    wanted: int = WANTED,
    *,
    root: str = LOG,
    bounds: Sequence[int] | None = None,
    why: str = "more tenants",
    conn: psycopg.Connection | None = None,
) -> bool:
    """As a person does it who may."""
    bounds = list(range(present)) if bounds is None else list(bounds)
    order = (root, grown_log_id(root, present, wanted), present, wanted, bounds, why)
    if conn is not None:
        return bool(conn.execute(GROW, order).fetchall()[0][0])
    with world.database.connect(world.database.login("ledger_finance")) as person:
        return bool(person.execute(GROW, order).fetchall()[0][0])


def of_new(batch: FactBatch, partition: int = 15) -> FactBatch:
    """The same facts, of a partition that a growth brought."""
    return replace(batch, log_id=GROWN, partition=partition, begun_with=None)


async def test_the_first_facts_note_how_many_partitions_there_are(world: World) -> None:
    await world.tell()
    await world.tell()
    assert world.rows(SPANS) == [(LOG, 0, PARTITIONS, [])]


async def test_a_log_that_was_known_before_counts_were_noted_is_noted_with_its_next_facts(
    world: World,
) -> None:
    world.admin.execute(
        "INSERT INTO ledger.log (log_id, log_topic, first, reason) VALUES (%s, %s, true, 'before')",
        (LOG, TOPIC),
    )
    assert await world.ledger.lives(LOG, 36) == (Life((Log(LOG, 0, 36),)),)
    await world.tell()
    assert world.rows(SPANS) == [(LOG, 0, PARTITIONS, [])]
    assert await world.ledger.lives(LOG, 36) == (Life((Log(LOG, 0, PARTITIONS),)),)


async def test_a_growth_is_kept_once_and_every_partition_is_of_one_log(world: World) -> None:
    await world.tell()
    assert grow(world)
    assert not grow(world, bounds=[7] * PARTITIONS), "what is known stays"
    assert world.rows(SPANS) == [(LOG, 0, PARTITIONS, []), (GROWN, PARTITIONS, WANTED, BOUNDS)]
    assert world.rows(FOLLOWED) == sorted([(LOG,), (GROWN,)])
    (life,) = await world.ledger.lives(LOG, WANTED)
    assert life == Life((Log(LOG, 0, 12), Log(GROWN, 12, 24, tuple(BOUNDS))))
    assert life.partitions == WANTED
    assert inherited((life,), 15) == [Inherited(LOG, 3, 2, True)]
    assert inherited((life,), 3) == []
    assert world.rows("SELECT action, subject FROM ledger.audit_log WHERE action = 'grow_log'") == [
        ("grow_log", LOG)
    ]

    assert grow(world, WANTED, 2 * WANTED)
    (life,) = await world.ledger.lives(LOG, 2 * WANTED)
    assert [log.partitions for log in life.logs] == [12, 24, 48]
    assert not grow(world), "an older one is still known"


async def test_facts_of_new_partitions_are_taken_once_the_growth_is_known(world: World) -> None:
    await world.tell()
    batch = of_new(world.batch(events=(world.event("a", 4),)))
    with pytest.raises(LedgerRefusedError, match="`tailrace topics grow` makes it known again"):
        await world.ledger.apply_facts(batch)
    grow(world)
    assert await world.ledger.apply_facts(batch) == Applied(batch.position, 0)
    assert await world.ledger.position(GROWN, 15) == batch.position
    assert await world.ledger.position(LOG, 15) == -1
    assert len(world.rows(SPANS)) == 2
    assert world.balance("events") == 1


async def test_a_ledger_that_lost_everything_never_begins_with_new_partitions(
    world: World,
) -> None:
    """It would count all that is in them as the first log, with nothing to remember."""
    with pytest.raises(LedgerRefusedError, match="restored from before"):
        await world.ledger.apply_facts(of_new(world.batch()))
    assert world.value("SELECT count(*) FROM ledger.log") == 0
    await world.tell()
    assert world.rows("SELECT log_id::text, first FROM ledger.log") == [(LOG, True)]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"wanted": 18}, "18 is no whole multiple of 12"),
        ({"wanted": 12}, "12 is no whole multiple of 12"),
        ({"wanted": 6}, "6 is no whole multiple of 12"),
        ({"present": 6, "wanted": 24}, "12 partitions are noted of this topic, not 6"),
        ({"why": "  "}, "say why the topic grows"),
        ({"root": OTHER_LOG}, "is no log that this ledger follows"),
        ({"bounds": [0] * 11}, "log_span"),
        ({"bounds": [-1] * 12}, "log_span"),
    ],
)
async def test_what_cannot_be_is_refused(world: World, order: dict[str, Any], said: str) -> None:
    await world.tell()
    with pytest.raises(psycopg.Error, match=said):
        grow(world, **order)
    assert world.rows(SPANS) == [(LOG, 0, PARTITIONS, [])]
    assert world.value("SELECT count(*) FROM ledger.log") == 1


async def test_workers_cannot_say_it(world: World) -> None:
    await world.tell()
    with (
        world.database.connect(world.database.login("ledger_service")) as worker,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        grow(world, conn=worker)


@pytest.mark.parametrize(("wanted", "refused"), [(24, False), (36, True)])
async def test_of_two_at_once_one_waits_for_the_other(
    world: World, wanted: int, refused: bool
) -> None:
    await world.tell()

    def second() -> bool | str:
        try:
            return grow(world, wanted=wanted)
        except psycopg.errors.InvalidParameterValue as error:
            return str(error).partition("\n")[0]

    login = world.database.login("ledger_finance")
    with world.database.connect(login, autocommit=False) as person:
        assert grow(world, conn=person)
        other = asyncio.create_task(asyncio.to_thread(second))
        await eventually("the second waits", lambda: lock_waiters(world.admin) == 1)
        person.commit()
    said = await other
    assert said == ("present: 24 partitions are noted of this topic, not 12" if refused else False)
    assert len(world.rows(SPANS)) == 2


async def test_a_life_that_was_adopted_after_a_growth_goes_on_with_all_its_logs(
    world: World,
) -> None:
    await world.tell()
    grow(world)
    with world.database.connect(world.database.login("ledger_finance")) as person:
        person.execute("SELECT ledger.open_log(%s, %s, 'the topic was lost')", (TOPIC, OTHER_LOG))
    assert world.rows(FOLLOWED) == [(OTHER_LOG,)]
    batch = replace(world.batch(), log_id=OTHER_LOG, begun_with=WANTED)
    assert await world.ledger.apply_facts(batch) == Applied(batch.position, 0)
    assert grow(world, WANTED, 48, root=OTHER_LOG)
    assert len(world.rows(FOLLOWED)) == 2

    before = Life((Log(LOG, 0, 12), Log(GROWN, 12, 24, tuple(BOUNDS))))
    after = grown_log_id(OTHER_LOG, 24, 48)
    lives = await world.ledger.lives(OTHER_LOG, 48)
    assert lives == (
        before,
        Life((Log(OTHER_LOG, 0, 24), Log(after, 24, 48, tuple(range(24))))),
    )
    assert await world.ledger.lives(LOG, 24) == (before,), "later lives are left out"
    assert inherited(lives, 27) == [
        Inherited(OTHER_LOG, 3, 2, True),
        Inherited(LOG, 3, None, False),
    ]
    assert inherited(lives, 39)[1:] == [
        Inherited(GROWN, 15, None, False),
        Inherited(LOG, 3, 2, False),
    ]


async def test_a_ledger_that_was_told_too_many_partitions_is_told_how_it_was(
    world: World,
) -> None:
    """Workers tell one that lost everything that the topic began as large as it is."""
    await world.ledger.apply_facts(replace(world.batch(), begun_with=WANTED))
    assert world.rows(SPANS) == [(LOG, 0, WANTED, [])]
    assert grow(world)
    assert world.rows(SPANS) == [(LOG, 0, PARTITIONS, []), (GROWN, PARTITIONS, WANTED, BOUNDS)]
    assert not grow(world)


async def test_a_topic_that_began_so_large_is_not_told_that_it_grew(world: World) -> None:
    await world.ledger.apply_facts(replace(world.batch(), begun_with=WANTED))
    await world.ledger.apply_facts(replace(world.batch(), begun_with=WANTED, partition=20))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="24 partitions are noted"):
        grow(world)
    assert world.rows(SPANS) == [(LOG, 0, WANTED, [])]
