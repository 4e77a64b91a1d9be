"""Settling by the batch comes to the same as settling one by one, whatever is in the batch."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from streams.adapters.ledger_publishing import _settled
from streams.core.lane import Claim, Evidence, MeterEventState, Settlement
from tests.integration.ledger.world import World

pytestmark = pytest.mark.postgres


def settlement(claim: Claim, state: MeterEventState, **changes: Any) -> Settlement:
    plain = Settlement(
        claim=claim, state=state, dead_kind="refused" if state == "dead" else None,
        key_generation=claim.key_generation, possibly_executed=state in {"recorded", "ambiguous"},
        attempt_used=False, retry_delay_ms=60_000 if state in {"pending", "ambiguous"} else None,
        evidence=Evidence(outcome=state, http_status=200, request_id=f"req_{claim.attempt_id}"),
    )  # fmt: skip
    return replace(plain, **changes)


async def claims_of(world: World, count: int) -> list[Claim]:
    for n in range(count):
        await world.map(f"t{n}", f"cus_{n}")
    await world.tell(events=tuple(world.event(f"e{n}", n + 1, f"t{n}") for n in range(count)))
    await world.ledger.cut_entries(100)
    return await world.claim(limit=100)


async def test_a_batch_of_everything_settles_each_as_it_is(world: World) -> None:
    claims = await claims_of(world, 12)
    states: tuple[MeterEventState, ...] = ("recorded", "ambiguous", "dead", "pending")
    told = [settlement(claim, states[n % 4]) for n, claim in enumerate(claims)]
    await asyncio.gather(*(world.ledger.settle(one) for one in told))
    rows = world.rows("SELECT meter_event_id, state FROM ledger.meter_event ORDER BY 1")
    assert rows == sorted((one.claim.meter_event_id, one.state) for one in told)
    assert world.rows("SELECT lane_id FROM ledger.lane WHERE claimed_by IS NOT NULL") == []
    assert world.rows("SELECT attempt_id FROM ledger.attempt WHERE finished_at IS NULL") == []
    requests = world.rows("SELECT request_id FROM ledger.attempt ORDER BY attempt_id")
    assert requests == [(f"req_{claim.attempt_id}",) for claim in claims]
    assert world.value("SELECT count(*) FROM ledger.parked") == 3
    due = world.rows("SELECT state, next_due_at FROM ledger.meter_event JOIN ledger.lane"
                     " USING (lane_id) WHERE (next_due_at IS NULL) = (state IN"
                     " ('pending', 'ambiguous'))")  # fmt: skip
    assert due == [], "a lane is due exactly when something in it waits"


async def test_a_repetition_of_a_batch_changes_nothing(world: World) -> None:
    claims = await claims_of(world, 3)
    told = [settlement(claim, "recorded") for claim in claims]
    await asyncio.gather(*(world.ledger.settle(one) for one in told))
    before = world.rows("SELECT * FROM ledger.meter_event ORDER BY 1")
    await asyncio.gather(*(world.ledger.settle(one) for one in told))
    await asyncio.gather(*(world.ledger.settle(replace(one, state="dead")) for one in told))
    assert world.rows("SELECT * FROM ledger.meter_event ORDER BY 1") == before


async def test_a_late_success_beside_others_counts_and_gives_no_lent_lane_back(
    world: World,
) -> None:
    first, *_ = await claims_of(world, 2)
    world.expire_leases()
    second = next(c for c in await world.claim() if c.meter_event_id == first.meter_event_id)
    assert second.possibly_executed
    await world.ledger.settle(settlement(first, "recorded"))
    lane = "SELECT attempt_id FROM ledger.lane WHERE lane_id = %s"
    assert world.value(lane, second.lane_id) == second.attempt_id
    await world.ledger.settle(settlement(second, "ambiguous"))
    state = "SELECT state FROM ledger.meter_event WHERE meter_event_id = %s"
    assert world.value(state, first.meter_event_id) == "recorded"


async def test_a_settlement_that_the_ledger_refuses_stops_no_other(world: World) -> None:
    claims = await claims_of(world, 4)
    told = [settlement(claim, "recorded") for claim in claims]
    told[1] = replace(told[1], state="superseded")
    results = await asyncio.gather(
        *(world.ledger.settle(one) for one in told), return_exceptions=True
    )
    assert [type(result).__name__ for result in results] == [
        "NoneType", "LedgerRefusedError", "NoneType", "NoneType",
    ]  # fmt: skip
    await world.ledger.settle(settlement(claims[1], "recorded"))
    assert world.value("SELECT count(*) FROM ledger.meter_event WHERE state = 'recorded'") == 4


async def test_settling_reads_the_lanes_it_concerns_however_many_there_are(world: World) -> None:
    claims = await claims_of(world, 3)
    world.rows(
        "INSERT INTO ledger.lane (customer, event_name)"
        " SELECT 'other_' || n, 'jobs' FROM generate_series(1, 5000) AS n RETURNING lane_id"
    )
    world.admin.execute("ANALYZE ledger.lane")
    told = msgspec.json.encode([_settled(settlement(one, "recorded")) for one in claims]).decode()
    with world.admin.transaction():
        assert world.value("SELECT ledger.settle_many_v1(%s::json)", told) == 3
        read = world.value(
            "SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables WHERE schemaname = 'ledger'"
            " AND relname = 'lane'"
        )
    assert read == 0, "a ledger of a million lanes settles as fast as one of ten"
    assert world.value("SELECT count(*) FROM ledger.meter_event WHERE state = 'recorded'") == 3
