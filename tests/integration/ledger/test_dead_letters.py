"""A dead meter event's record keeps its contract, names where it came from, and stays small."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from schemas.contracts import problems
from streams import topics
from streams.core.dead_letter import record_of
from streams.core.lane import Claim
from tests.integration.ledger.world import LOG, World, uuid_of

pytestmark = pytest.mark.postgres


async def letter_of(world: World) -> dict[str, object]:
    (dead,) = await world.ledger.publishing.dead_letters(10)
    key, value = record_of(dead)
    assert key == b"acme"
    assert len(value) < topics.PACKED_BYTES_MAX // 2
    letter = msgspec.json.decode(value, type=dict[str, object])
    assert problems("dead_letter", letter) == []
    return letter


async def test_a_dead_event_names_the_record_it_came_from(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    await world.settle(await world.only_claim(), "dead", dead="refused")
    letter = await letter_of(world)
    detail = letter["detail"]
    assert isinstance(detail, dict)
    assert (letter["kind"], letter["units"], letter["tenant_id"]) == ("refused", "4", "acme")
    [entry] = detail["entries"]
    assert (entry["log_id"], entry["partition"], entry["offset"]) == (LOG, 3, 1)
    assert entry["event_id"] == uuid_of("a")
    [attempt] = detail["attempts"]
    assert (attempt["request_id"], attempt["key_generation"]) == ("req_1", 1)


async def test_a_dead_window_names_its_levels_log_and_partition(world: World) -> None:
    await world.map()
    await world.tell(levels=(world.level(world.series(), 2, 9),))
    await world.ledger.cut_entries(10)
    await world.settle(await world.only_claim(), "dead", dead="refused")
    detail = (await letter_of(world))["detail"]
    assert isinstance(detail, dict)
    [entry] = detail["entries"]
    assert (entry["kind"], entry["log_id"], entry["partition"], entry["revision"]) == (
        "usage", LOG, 3, 1,
    )  # fmt: skip


async def test_a_day_of_attempts_leaves_a_record_that_can_be_sent(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()
    world.admin.execute(
        "INSERT INTO ledger.attempt (meter_event_id, key_generation, worker, lease_until,"
        " finished_at, outcome, message) SELECT %s, 1, 'w', now(), now(), 'Ambiguous',"
        " repeat('x', 500) FROM generate_series(1, 3000)",
        (claim.meter_event_id,),
    )
    last = world.value(
        "INSERT INTO ledger.attempt (meter_event_id, key_generation, worker, lease_until)"
        " VALUES (%s, 1, 'w', now()) RETURNING attempt_id",
        claim.meter_event_id,
    )
    await world.settle(newest(claim, last), "dead", dead="ambiguous", executed=True)
    letter = await letter_of(world)
    detail = letter["detail"]
    assert isinstance(detail, dict)
    assert detail["attempts_total"] == 3002
    assert len(detail["attempts"]) == 50
    assert detail["attempts"][0]["attempt_id"] == claim.attempt_id
    assert detail["attempts"][-1]["attempt_id"] == last
    assert "redrive only with proof" in str(letter["next"])


def newest(claim: Claim, attempt_id: int) -> Claim:
    return replace(claim, attempt_id=attempt_id)
