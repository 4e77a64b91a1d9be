"""Pauses are kept by the claim itself, and a skip takes exactly the record that is held."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from streams.core.orders import HeldRecord
from tests.integration.ledger.world import LOG, World, uuid_of, values
from tests.support.postgres import lock_waiters
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

HELD = HeldRecord(LOG, 3, 40, "a" * 64, "schema version 2 is unknown here", 17)


def order(world: World, verb: str, scope: str, subject: str = "", why: str = "a test") -> Any:
    """(changed, receipt, by whom, since, because), or nothing where there never was a pause."""
    found = world.rows(f"SELECT * FROM ledger.{verb}_v1(%s, %s, %s, 'ann')", scope, subject, why)
    return found[0] if found else None


async def three_lanes(world: World) -> None:
    """acme and bolt on api_calls, acme on jobs: 1, 2 and 4 units."""
    await world.map("acme", "cus_1")
    await world.map("bolt", "cus_2")
    await world.tell(
        levels=(
            world.level(world.series("acme"), 1, 1),
            world.level(world.series("bolt"), 1, 2),
        ),
        events=(world.event("job", 4, "acme"),),
    )
    await world.ledger.cut_entries(100)


@pytest.mark.parametrize(
    ("scope", "subject", "sent"),
    [
        ("all", "", []),
        ("meter", "api_calls", [4]),
        ("meter", "jobs", [1, 2]),
        ("tenant", "acme", [2]),
        ("tenant", "bolt", [1, 4]),
        ("tenant", "nobody", [1, 2, 4]),
    ],
)
async def test_a_pause_holds_what_it_names_and_nothing_else(
    world: World, scope: str, subject: str, sent: list[int]
) -> None:
    await three_lanes(world)
    assert order(world, "pause", scope, subject)[0] is True
    assert sorted(values(await world.drain())) == sent
    assert world.balance("pending") + world.balance("pending", "bolt") == 7 - sum(sent)
    assert order(world, "resume", scope, subject)[0] is True
    assert sorted(values(await world.drain())) == sorted({1, 2, 4} - set(sent))
    assert world.balance("pending") + world.balance("pending", "bolt") == 0


async def test_a_retry_is_held_too_and_goes_on_under_its_own_identifier(world: World) -> None:
    await three_lanes(world)
    first = next(claim for claim in await world.claim() if claim.customer == "cus_2")
    await world.settle(first, "ambiguous", delay_ms=0, executed=True)
    order(world, "pause", "tenant", "bolt")
    world.due_now()
    assert [claim for claim in await world.claim() if claim.customer == "cus_2"] == []
    order(world, "resume", "tenant", "bolt")
    [again] = [claim for claim in await world.claim() if claim.customer == "cus_2"]
    assert again.identifier == first.identifier


async def test_done_twice_it_says_so_and_leaves_one_receipt(world: World) -> None:
    assert order(world, "resume", "all") is None
    changed, receipt, by_whom, _, because = order(world, "pause", "all", why="deploy")
    assert (changed, by_whom, because) == (True, "ann", "deploy")
    again = order(world, "pause", "all", why="another word")
    assert (again[0], again[1], again[4]) == (False, receipt, "deploy")
    assert order(world, "resume", "all", why="done")[0] is True
    changed, _, _, _, because = order(world, "resume", "all", why="again")
    assert (changed, because) == (False, "done")
    assert world.rows(
        "SELECT action, subject, actor FROM ledger.audit_log WHERE actor = 'ann' ORDER BY 1"
    ) == [
        ("pause", "all", "ann"),
        ("resume", "all", "ann"),
    ]


@pytest.mark.parametrize(
    ("scope", "subject", "why", "said"),
    [
        ("all", "", " ", "reason: say why"),
        ("meter", "nothing", "why", "meter: there is no meter nothing"),
    ],
)
async def test_what_cannot_be_paused_is_refused_by_field_and_rule(
    world: World, scope: str, subject: str, why: str, said: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=said):
        order(world, "pause", scope, subject, why)


async def test_no_claim_is_lent_once_a_pause_is_committed(world: World) -> None:
    """A claim under way holds the pause back; so when the pause returns, all is lent or none is."""
    await three_lanes(world)
    began = threading.Event()

    def pause() -> None:
        with world.database.connect() as other:
            began.set()
            other.execute("SELECT * FROM ledger.pause_v1('all', '', 'why', 'ann')")

    with world.database.connect(autocommit=False) as claiming, ThreadPoolExecutor(1) as pool:
        locked = claiming.execute("SELECT * FROM ledger.lock_lanes_v1(16)").fetchall()
        assert len(locked) == 3
        pausing = pool.submit(pause)
        assert began.wait(10)
        until("the pause waits for the claim", lambda: lock_waiters(world.admin) == 1)
        assert not pausing.done()
        claiming.commit()
        pausing.result(10)
    assert await world.claim() == []


async def test_pauses_are_read_with_the_orders(world: World) -> None:
    order(world, "pause", "all")
    order(world, "pause", "tenant", "acme")
    order(world, "pause", "tenant", "bolt")
    assert (await world.ledger.orders()).pauses == {"all": 1, "tenant": 2}


# -- skips ----------------------------------------------------------------------------------------


def skip(world: World, partition: int = 3, offset: int = 40, why: str = "broken") -> Any:
    query = "SELECT * FROM ledger.skip_record_v1(%s, %s, %s, 'ann')"
    return world.rows(query, partition, offset, why)[0]


async def test_a_held_record_is_skipped_once_and_the_worker_reads_it(world: World) -> None:
    await world.ledger.report_held(HELD, "w1")
    await world.ledger.report_held(HELD, "w2")
    assert not (await world.ledger.orders()).skips_record(HELD)
    changed, receipt, by_whom, _, because = skip(world)
    assert (changed, by_whom, because) == (True, "ann", "broken")
    assert skip(world, why="once more")[:2] == (False, receipt)
    orders = await world.ledger.orders()
    assert orders.skips_record(HELD)
    assert orders.of(LOG, 3)[40].receipt == receipt
    logged = "SELECT count(*) FROM ledger.audit_log WHERE action = 'skip_record'"
    assert world.value(logged) == 1


@pytest.mark.parametrize(("partition", "offset"), [(3, 41), (3, 39), (4, 40)])
async def test_what_no_worker_is_held_at_is_never_skipped(
    world: World, partition: int, offset: int
) -> None:
    await world.ledger.report_held(HELD, "w1")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no worker is held at"):
        skip(world, partition, offset)


async def test_a_wrong_offset_is_told_the_one_that_is_held(world: World) -> None:
    await world.ledger.report_held(HELD, "w1")
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        skip(world, offset=0)
    hint = f"It is held at offset {HELD.offset}: `tailrace held skip 3 {HELD.offset}`."
    assert refused.value.diag.message_hint == hint
    with pytest.raises(psycopg.errors.InvalidParameterValue) as elsewhere:
        skip(world, partition=4)
    assert elsewhere.value.diag.message_hint == "See what is held with `tailrace held list`."


async def test_a_partition_that_has_gone_on_is_not_skipped(world: World) -> None:
    await world.ledger.report_held(HELD, "w1")
    world.position = HELD.offset - 1
    await world.tell()
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="has gone on beyond"):
        skip(world)


async def test_a_decision_to_skip_stands_for_ever(world: World) -> None:
    await world.ledger.report_held(HELD, "w1")
    skip(world)
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        world.rows("DELETE FROM ledger.skip RETURNING 1")


async def told_again(world: World, event: str | None) -> Any:
    """A ledger that was restored hears of a dead letter that somebody had decided on."""
    decision = {
        "fingerprint": HELD.fingerprint, "reason": "broken", "actor": "ann", "receipt": 912,
        "record_bytes": HELD.record_bytes,
    }  # fmt: skip
    letter = world.parked(
        event, kind="dead", reason="malformed", offset=HELD.offset,
        detail=json.dumps({"rule": "skipped by ann (receipt 912): broken", "skip": decision}),
    )  # fmt: skip
    await world.tell(parked=(letter,))
    return letter


@pytest.mark.parametrize("event", ["a", None])
async def test_a_restored_ledger_is_told_the_decision_with_its_dead_letter(
    event: str | None, world: World
) -> None:
    await told_again(world, event)
    [(log, partition, offset, fingerprint, reason, actor, receipt)] = skips(world)
    assert (log, partition, offset, fingerprint) == (LOG, 3, HELD.offset, HELD.fingerprint)
    assert (reason, actor) == ("broken", "ann")
    noted = "SELECT action, subject, detail ->> 'receipt' FROM ledger.audit_log WHERE audit_id = %s"
    assert world.rows(noted, receipt) == [("skip_told_again", f"{LOG}[3]@{HELD.offset}", "912")]
    assert (await world.ledger.orders()).skips_record(HELD)
    assert skip(world)[:3] == (False, receipt, "ann")
    if event is None:
        assert name(world, receipt)[0]


async def test_a_decision_that_is_there_is_not_told_again(world: World) -> None:
    await world.ledger.report_held(HELD, "w1")
    receipt = skip(world)[1]
    await told_again(world, "a")
    assert [line[-1] for line in skips(world)] == [receipt]


async def test_the_decision_on_a_copy_comes_again_although_its_item_is_there(world: World) -> None:
    letter = await told_again(world, "a")
    await world.tell(parked=(replace(letter, offset=41),))
    assert [line[2] for line in skips(world)] == [HELD.offset, 41]
    assert world.value("SELECT count(*) FROM ledger.parked") == 1


def skips(world: World) -> list[tuple[Any, ...]]:
    return world.rows(
        "SELECT log_id::text, partition, record_offset, fingerprint, reason, actor, receipt"
        " FROM ledger.skip ORDER BY receipt"
    )


def name(world: World, receipt: int, event: str = "a", **changes: Any) -> Any:
    named = {
        "receipt": receipt, "source": "sandbox", "minute_us": 60_000_000, "kind": "usage",
        "event_id": uuid_of(event), "tenant_id": "acme", "event_key": event, "content": "5",
    } | changes  # fmt: skip
    query = "SELECT * FROM ledger.name_skipped_v1(%s::json, 'its producer says so', 'ann')"
    return world.rows(query, json.dumps(named))[0]


async def skipped_unread(world: World, offset: int = 40) -> int:
    """A record that nobody could read, skipped and dead-lettered; the receipt."""
    await world.ledger.report_held(replace(HELD, offset=offset), "w1")
    receipt = int(skip(world, offset=offset)[1])
    await world.tell(parked=(world.parked(None, kind="dead", reason="malformed", offset=offset),))
    return receipt


async def test_a_skipped_record_is_named_once_and_as_one_identity(world: World) -> None:
    receipt = await skipped_unread(world)

    changed, named, by_whom, _, because = name(world, receipt)

    assert (changed, by_whom, because) == (True, "ann", "its producer says so")
    assert name(world, receipt)[:2] == (False, named)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is acme/a already"):
        name(world, receipt, "b")
    other = await skipped_unread(world, 41)
    with pytest.raises(psycopg.errors.UniqueViolation):
        name(world, other)
    assert name(world, other, "b")[0]


async def test_only_a_skip_without_a_verdict_is_named(world: World) -> None:
    await world.ledger.report_held(HELD, "w1")
    receipt = skip(world)[1]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="without a verdict"):
        name(world, receipt)
    await world.tell(parked=(world.parked("a", kind="dead", reason="malformed", offset=40),))
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="without a verdict"):
        name(world, receipt)


async def test_naming_needs_a_reason(world: World) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="say how you know"):
        world.rows("SELECT * FROM ledger.name_skipped_v1('{}', ' ', 'ann')")
