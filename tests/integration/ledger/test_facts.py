from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from streams.adapters.ledger import LedgerRefusedError
from streams.core.fact import Applied, CanaryFact, CellFact, WentBack
from streams.core.growth import Life, Log
from tests.integration.ledger.world import (
    LOG,
    MINUTE_US,
    OTHER_LOG,
    PARTITIONS,
    World,
    uuid_of,
)
from tests.support.postgres import lock_waiters
from tests.support.waiting import eventually

pytestmark = pytest.mark.postgres


async def test_a_batch_may_be_sent_any_number_of_times(world: World) -> None:
    series = world.series()
    cell = CellFact("sandbox", series.window_start_us, "accepted", 3, 2**127 + 5, 7)
    batch = world.batch(
        levels=(world.level(series, 3, 30),),
        events=(world.event("a", 4),),
        corrections=(world.correction("c", -2, series),),
        parked=(world.parked("p"), world.parked(None)),
        cells=(cell,),
        canaries=(CanaryFact("sandbox", 3, "token", world.now_us, 9),),
    )

    answers = [await world.ledger.apply_facts(batch) for _ in range(3)]

    assert answers == [Applied(batch.position, 0)] * 3
    counts = "SELECT count(*) FROM ledger."
    assert [world.value(counts + t) for t in ("level", "meter_log", "parked", "cell")] == [
        1, 2, 2, 1,
    ]  # fmt: skip
    assert world.balance("events") == 4
    assert world.balance("total") == 34
    assert world.balance("decided") == -2


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
async def test_the_reading_with_the_greatest_count_stays_in_any_order(
    world: World, order: tuple[int, ...]
) -> None:
    for count in order:
        await world.tell(levels=(world.level(world.series(), count, count * 10),))

    assert world.rows("SELECT count, total FROM ledger.level") == [(3, 30)]
    assert world.value("SELECT count(*) FROM ledger.finding") == 0


async def test_the_position_never_moves_back(world: World) -> None:
    early = world.batch()
    late = world.batch()

    await world.ledger.apply_facts(late)
    answer = await world.ledger.apply_facts(early)

    assert answer == Applied(late.position, 0)
    assert await world.ledger.position(LOG, 3) == late.position
    assert await world.ledger.position(LOG, 4) == -1


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"digest": 1}, "level_differs"),
        ({"total": 31}, "level_differs"),
        ({"birth_offset": 8, "count": 4}, "level_birth"),
        ({"birth_offset": 8, "count": 1}, "level_birth"),
    ],
)
async def test_a_contradicting_reading_is_noted_and_holds_its_series(
    world: World, change: dict[str, Any], kind: str
) -> None:
    series = world.series()
    level = world.level(series, 3, 30)
    await world.tell(levels=(level,))

    answers = [await world.tell(levels=(structs.replace(level, **change),)) for _ in range(2)]

    assert [a.findings for a in answers if isinstance(a, Applied)] == [1, 1]
    assert world.rows("SELECT kind FROM ledger.finding") == [(kind,)]
    assert world.rows("SELECT count, total, held FROM ledger.level") == [(3, 30, True)]
    await world.map()
    assert await world.ledger.cut_entries(10) == 0
    assert world.balance("held") == 30
    assert (await world.ledger.audit.findings(5))[0][1] == kind


async def test_the_same_series_from_another_partition_is_another_birth(world: World) -> None:
    level = world.level(world.series(), 3, 30)
    await world.tell(levels=(level,))
    world.partition = 4
    world.acknowledged = -1

    answer = await world.tell(levels=(structs.replace(level, count=9),))

    assert isinstance(answer, Applied)
    assert answer.findings == 1
    assert world.value("SELECT held FROM ledger.level")


async def test_an_identity_with_another_amount_is_noted_and_counted_once(world: World) -> None:
    event = world.event("a", 4)
    await world.tell(events=(event,))

    answer = await world.tell(events=(replace(event, units=5),))

    assert isinstance(answer, Applied)
    assert answer.findings == 1
    assert world.rows("SELECT delta FROM ledger.meter_log") == [(4,)]
    assert world.rows("SELECT kind FROM ledger.finding") == [("entry_differs",)]


async def test_a_contradicting_cell_is_noted(world: World) -> None:
    cell = CellFact("sandbox", world.series().window_start_us, "accepted", 3, 5, 7)
    await world.tell(cells=(cell,))

    for other in (structs.replace(cell, digest=6), structs.replace(cell, birth_offset=8, count=9)):
        answer = await world.tell(cells=(other,))
        assert isinstance(answer, Applied)
        assert answer.findings == 1

    assert world.rows("SELECT count, digest FROM ledger.cell") == [(3, 5)]


async def test_a_restored_ledger_is_noticed_and_publishing_stands_still(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    world.admin.execute("SELECT 1")
    world.acknowledged = 50
    before = world.value("SELECT count(*) FROM ledger.meter_log")

    answers = [await world.tell(events=(world.event("b", 4),)) for _ in range(2)]

    assert answers == [WentBack(0, 50)] * 2
    assert world.value("SELECT count(*) FROM ledger.meter_log") == before
    assert world.rows("SELECT kind FROM ledger.halt") == [("ledger_went_back",)]
    assert await world.claim() == []
    assert (await world.ledger.audit.status())["halts"] == ["ledger_went_back"]
    with world.database.connect(world.database.login("ledger_finance")) as person:
        person.execute("SELECT ledger.lift_halt('ledger_went_back', 'compared with Stripe')")
    assert len(await world.claim()) == 1


async def test_looking_and_adopting_go_one_after_the_other(world: World) -> None:
    """Else a worker could ask before, halt after, and nobody would be left to lift it."""
    world.acknowledged = 50
    await world.tell()
    look = "SELECT ledger.note_went_back_v1(%s, 3, 50, -1, '{}')"

    def adopt() -> None:
        with world.database.connect(world.database.login("ledger_finance")) as person:
            person.execute("SELECT ledger.adopt_v1('restored', NULL)")

    service = world.database.login("ledger_service")
    with world.database.connect(service, autocommit=False) as worker:
        assert worker.execute(look, (LOG,)).fetchone() == (False,)
        adopts = asyncio.create_task(asyncio.to_thread(adopt))
        await eventually("the person waits", lambda: lock_waiters(world.admin) == 1)
        worker.commit()
    await adopts

    assert (await world.ledger.audit.status())["halts"] == []
    assert await world.tell() == WentBack(-1, 50, adopted=True)
    assert (await world.ledger.audit.status())["halts"] == []


async def test_an_empty_ledger_went_back_too(world: World) -> None:
    world.acknowledged = 0

    assert await world.tell() == WentBack(-1, 0)


async def test_a_second_log_is_refused_until_a_person_opens_it(world: World) -> None:
    await world.tell()
    batch = replace(world.batch(), log_id=OTHER_LOG)

    with pytest.raises(LedgerRefusedError, match="second log could count everything again"):
        await world.ledger.apply_facts(batch)

    with world.database.connect(world.database.login("ledger_finance")) as person:
        person.execute(
            "SELECT ledger.open_log('usage.events', %s, 'seen was carried over')", (OTHER_LOG,)
        )
    assert await world.ledger.apply_facts(batch) == Applied(batch.position, 0)


async def test_a_log_that_was_opened_continues_those_of_its_topic_before_it(world: World) -> None:
    await world.tell()
    first = Life((Log(LOG, 0, PARTITIONS),))
    third = "88888888-2222-3333-4444-555555555555"
    assert await world.ledger.lives(OTHER_LOG, 24) == (), "nobody has opened it"
    with world.database.connect(world.database.login("ledger_finance")) as person:
        for topic, log in (("usage.events", OTHER_LOG), ("another.topic", third)):
            person.execute("SELECT ledger.open_log(%s, %s, 'the topic was lost')", (topic, log))

    assert await world.ledger.lives(LOG, PARTITIONS) == (first,), "the first one continues none"
    second = Life((Log(OTHER_LOG, 0, 24),))
    assert await world.ledger.lives(OTHER_LOG, 24) == (first, second), "nobody noted its count yet"
    assert await world.ledger.lives(third, 6) == (Life((Log(third, 0, 6),)),)
    with world.database.connect(world.database.login("ledger_finance")) as person:
        person.execute("SELECT ledger.open_log('usage.events', gen_random_uuid(), 'once more')")
        row = person.execute("SELECT log_id::text FROM ledger.log WHERE reason = 'once more'")
        ((latest,),) = row.fetchall()
    assert (await world.ledger.lives(latest, 24))[:2] == (first, second), "the latest last"
    assert await world.ledger.lives(OTHER_LOG, 24) == (first, second)


@pytest.mark.parametrize("kind", ["levels", "events"])
async def test_a_meter_version_that_the_ledger_does_not_have_is_refused(
    world: World, kind: str
) -> None:
    series = structs.replace(world.series(), catalogue_version=2)
    fact = (
        world.level(series, 1, 1)
        if kind == "levels"
        else replace(world.event("a", 1), series=series)
    )

    with pytest.raises(LedgerRefusedError, match="version"):
        await world.tell(**{kind: (fact,)})

    assert await world.ledger.position(LOG, 3) == -1


async def test_two_owners_may_race(world: World) -> None:
    series = [world.series(f"t{n}") for n in range(20)]

    async def owner(offset: int) -> None:
        for count in range(1, 15):
            batch = replace(
                world.batch(
                    levels=tuple(world.level(s, count, count * 3) for s in series),
                    events=(world.event(f"e{count}", 1),),
                ),
                position=count,
            )
            await world.ledger.apply_facts(batch)
            if count % 5 == offset:
                await world.ledger.cut_entries(7)

    await asyncio.gather(owner(0), owner(2))
    while await world.ledger.cut_entries(50):
        pass

    assert world.value("SELECT count(*) FROM ledger.finding") == 0
    assert world.value("SELECT sum(total) FROM ledger.balance") == 20 * 42 + 14
    assert world.value("SELECT sum(delta) FROM ledger.meter_log WHERE kind = 'usage'") == 20 * 42
    assert world.value("SELECT count(*) FROM ledger.meter_log WHERE kind = 'event'") == 14


@pytest.mark.parametrize(
    "detail",
    ['{"a": "\\u0000"}', '{"a": 1e999999}', '{"a": "\\ud800"}', "not json"],
)
async def test_evidence_that_jsonb_cannot_hold_is_kept_as_text(world: World, detail: str) -> None:
    await world.tell(parked=(world.parked(None, kind="dead", reason="malformed", detail=detail),))

    assert world.value("SELECT detail ->> 'text' FROM ledger.parked")


async def test_a_parked_item_keeps_what_was_seen(world: World) -> None:
    item = world.parked(
        "p",
        tenant_id="a\0b\ud800",
        units=10**40,
        record=bytes(range(256)) * 256,
        content=2**128 - 1,
    )
    await world.tell(parked=(item,))

    row = world.rows(
        "SELECT kind, reason, event_id::text, content, tenant_id, units, record, state,"
        " ledger.us(window_start), partition, record_offset FROM ledger.parked"
    )

    assert row == [
        (
            "review", "late", uuid_of("p"), 2**128 - 1, "a\N{REPLACEMENT CHARACTER}b?", 10**40,
            item.record, "open", world.series().window_start_us, 3, 11,
        )
    ]  # fmt: skip


async def test_copies_of_a_parked_item_are_one_and_other_content_is_another(world: World) -> None:
    conflict = {"reason": "conflict"}
    await world.tell(parked=(world.parked("p"), world.parked("p", offset=12)))
    await world.tell(parked=(world.parked("p", **conflict),))
    await world.tell(parked=(world.parked("p", **conflict, content=6),))
    await world.tell(parked=(world.parked(None, offset=11), world.parked(None, offset=12)))

    assert world.value("SELECT count(*) FROM ledger.parked") == 5


async def test_the_youngest_canary_counts_and_every_token_is_known(world: World) -> None:
    await world.tell(
        canaries=(
            CanaryFact("sandbox", 3, "one", world.now_us - 2 * MINUTE_US, 9),
            CanaryFact("sandbox", 3, "two", world.now_us - MINUTE_US, 10),
            CanaryFact("sandbox", 5, "two", world.now_us - MINUTE_US, 10),
        )
    )
    await world.tell(canaries=(CanaryFact("sandbox", 3, "old", world.now_us - 9 * MINUTE_US, 2),))

    ages = await world.ledger.audit.canary_ages()
    assert [(a.partition, a.received_at_us) for a in ages] == [
        (3, world.now_us - MINUTE_US),
        (5, world.now_us - MINUTE_US),
    ]
    assert all(a.age_us >= MINUTE_US for a in ages)
    assert await world.ledger.audit.canaries_arrived("sandbox", "two") == {3, 5}
    assert await world.ledger.audit.canaries_arrived("sandbox", "none") == set()
    assert (await world.ledger.audit.status())["canary_age_us_max"] >= MINUTE_US
