from __future__ import annotations

from typing import Any

import pytest

from streams.adapters.ledger_audit import Window
from streams.core.audit import Row, Tally
from streams.core.fact import CellFact
from tests.integration.ledger.world import MINUTE_US, OTHER_LOG, World, uuid_of

pytestmark = pytest.mark.postgres


async def test_cells_add_up_over_partitions_and_logs_modulo_2_128(world: World) -> None:
    minute_us = world.series().window_start_us
    cell = CellFact("sandbox", minute_us, "accepted", 3, 2**128 - 1, 7)
    await world.tell(cells=(cell, CellFact("sandbox", minute_us, "review", 1, 9, 8)))
    world.partition = 4
    world.admin.execute("SELECT ledger.open_log('other', %s, 'tests')", (OTHER_LOG,))
    await world.tell(cells=(cell, CellFact("elsewhere", minute_us, "accepted", 1, 9, 8)))

    found = await world.ledger.audit.cells("sandbox", minute_us, minute_us + MINUTE_US)

    assert found == [
        Row(minute_us, "accepted", Tally(6, 2**128 - 2)),
        Row(minute_us, "review", Tally(1, 9)),
    ]
    assert await world.ledger.audit.cells("sandbox", minute_us + 1, minute_us + MINUTE_US) == []


async def test_sums_are_per_customer_meter_and_hour(world: World) -> None:
    await world.map()
    await world.map("other", "cus_1")
    await world.tell(
        events=(world.event("a", 4), world.event("b", 5, "other")),
        levels=(world.level(world.series(), 1, 7),),
    )
    await world.drain()
    event_us = world.event("a", 4).occurred_at_us
    hour_s = event_us // 1_000_000 // 3600 * 3600

    sums = await world.ledger.audit.sums(hour_s - 3600, hour_s + 7200)

    jobs = [s for s in sums if s.event_name == "jobs"]
    assert [(s.customer, s.hour_s, s.units, s.meter_events) for s in jobs] == [
        ("cus_1", hour_s, 9, 2)
    ]
    assert sum(s.units for s in sums) == 16


async def test_a_seal_stays_and_the_audit_is_dated(world: World) -> None:
    audit = world.ledger.audit
    minute_us = world.series().window_start_us
    assert await audit.last_audits() == []

    await audit.seal("sandbox", {minute_us: Tally(3, 2**127)}, '{"lost": 0}')
    await audit.seal("sandbox", {minute_us: Tally(4, 1)}, '{"lost": 0}')

    sealed = await audit.sealed("sandbox", minute_us, minute_us + 1)
    assert sealed == {minute_us: Tally(3, 2**127)}
    (note,) = await audit.last_audits()
    assert (note.source, note.lost) == ("sandbox", 0)
    assert 0 <= note.age_us <= world.value("SELECT ledger.us(now())") - world.now_us


async def test_old_canary_tokens_go_and_young_ones_stay(world: World) -> None:
    world.admin.execute(
        "INSERT INTO ledger.canary_token SELECT 's', t, 1, now(), now() - a::interval"
        " FROM (VALUES ('old', '15 days'), ('young', '13 days')) AS x(t, a)"
    )

    await world.ledger.audit.seal("s", {}, "{}")

    assert world.rows("SELECT token FROM ledger.canary_token") == [("young",)]


async def test_status_counts_what_a_person_or_a_page_should_know(world: World) -> None:
    await world.map()
    await world.tell(
        events=(world.event("a", 4), world.event("b", 5, "nobody")),
        parked=(world.parked("p"), world.parked(None, kind="dead", reason="malformed")),
        levels=(world.level(world.series(), 1, 7),),
    )
    claim = await world.only_claim()

    figures = await world.ledger.audit.status()

    def some(*names: str) -> dict[str, Any]:
        return {name: figures[name] for name in names}

    assert some("meter_events", "unmapped", "levels_due", "parked_open", "halts") == {
        "meter_events": {"pending": 1},
        "unmapped": 1,
        "levels_due": 1,
        "parked_open": {"review.late": 1, "dead.malformed": 1},
        "halts": [],
    }
    assert figures["oldest_pending_us"] <= figures["now_us"]
    await world.settle(claim)
    assert (await world.ledger.audit.status())["meter_events"] == {}


async def test_parked_records_are_counted_decided_or_not(world: World) -> None:
    await world.tell(parked=(world.parked("p"), world.parked("q"), world.parked("r", source="x")))
    world.admin.execute("SELECT ledger.reject(min(parked_id), 'no') FROM ledger.parked")

    assert await world.ledger.audit.parked_by_class("sandbox") == {("review", "late"): 2}


async def test_misplaced_amounts_are_found(world: World) -> None:
    await world.tell(events=(world.event("a", 4),), levels=(world.level(world.series(), 1, 7),))
    world.admin.execute("DELETE FROM ledger.uncovered")
    world.admin.execute("UPDATE ledger.level SET due_at = NULL")

    found = await world.ledger.audit.misplaced()

    assert (found.entries, found.levels) == (1, 1)


async def test_a_trace_follows_an_identity_and_its_window_to_the_last_attempt(
    world: World,
) -> None:
    await world.map()
    event = world.event("a", 4)
    series = world.series()
    await world.tell(
        events=(event,), parked=(world.parked("p"),), levels=(world.level(series, 1, 7),)
    )
    await world.drain()

    by_event = await world.ledger.audit.trace(uuid_of("a"), None)
    by_window = await world.ledger.audit.trace(
        None, Window("acme", "api_calls", series.window_start_us + 1)
    )
    parked = await world.ledger.audit.trace(uuid_of("p"), None)

    assert [(e["kind"], e["delta"], e["state"]) for e in by_event.entries] == [
        ("event", 4, "settled")
    ]
    assert [m["value"] for m in by_event.meter_events] == ["4"]
    assert [(a["outcome"], a["request_id"]) for a in by_event.attempts] == [("recorded", "req_1")]
    assert by_event.levels == []
    assert [(lv["count"], lv["total"]) for lv in by_window.levels] == [(1, "7")]
    assert [m["state"] for m in by_window.meter_events] == ["recorded"]
    assert [(p["reason"], p["state"]) for p in parked.parked] == [("late", "open")]
