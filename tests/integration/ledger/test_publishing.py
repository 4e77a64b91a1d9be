from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from streams.adapters.ledger import LedgerRefusedError
from streams.core.meter_event import hash_payload
from tests.integration.ledger.world import DAY_US, HOUR_US, MINUTE_US, World, uuid_of, values

pytestmark = pytest.mark.postgres


async def test_a_level_becomes_one_frozen_request_dated_inside_its_window(world: World) -> None:
    await world.map()
    series = world.series()
    await world.tell(levels=(world.level(series, 3, 30),))
    await world.ledger.cut_entries(10)

    claim = await world.only_claim()

    assert (claim.customer, claim.event_name, claim.value) == ("cus_1", "api_calls", "30")
    assert claim.timestamp_s == series.window_end_us // 1_000_000 - 1
    assert claim.payload_hash == hash_payload(
        "cus_1", "api_calls", 30, claim.timestamp_s, claim.identifier
    )
    assert (claim.key_generation, claim.previous_attempts, claim.possibly_executed) == (1, 0, False)
    assert claim.lease_until_us - claim.now_us == 60_000_000
    assert world.rows("SELECT finished_at, worker FROM ledger.attempt") == [(None, "worker-1")]

    await world.settle(claim)

    assert world.balance("settled") == 30
    assert world.rows("SELECT outcome, request_id FROM ledger.attempt") == [("recorded", "req_1")]
    assert await world.claim() == []


async def test_a_lent_lane_is_lent_to_nobody_else(world: World) -> None:
    await world.map()
    await world.tell(events=tuple(world.event(f"e{n}", 1) for n in range(5)))

    first = await world.only_claim()
    assert await world.claim() == []
    await world.settle(first)

    assert (await world.only_claim()).meter_event_id != first.meter_event_id


async def test_claimants_at_the_same_time_share_the_lanes(world: World) -> None:
    for n in range(40):
        await world.map(f"t{n}", f"cus_{n}")
    await world.tell(events=tuple(world.event(f"e{n}", n + 1, f"t{n}") for n in range(40)))

    lists = await asyncio.gather(*(world.claim(10) for _ in range(6)))
    claims = [claim for claims in lists for claim in claims]
    claims += await world.claim(40)

    assert len({c.lane_id for c in claims}) == len(claims) == 40
    await asyncio.gather(*(world.settle(c) for c in claims))
    assert world.value("SELECT sum(settled) FROM ledger.balance") == sum(range(1, 41))


async def test_event_meters_send_each_event_dated_when_it_happened(world: World) -> None:
    await world.map()
    events = [world.event("a", 4, back=3), world.event("b", 5, back=9), world.event("c", 0)]
    await world.tell(events=tuple(events))

    sent = await world.drain()

    assert values(sent) == [5, 4]
    assert [c.timestamp_s for c in sent] == [
        events[1].occurred_at_us // 1_000_000,
        events[0].occurred_at_us // 1_000_000,
    ]
    assert world.rows("SELECT state FROM ledger.meter_event ORDER BY units") == [
        ("nothing",), ("recorded",), ("recorded",),
    ]  # fmt: skip


async def test_what_adds_up_to_zero_is_settled_without_a_request(world: World) -> None:
    await world.map()
    series = world.series()
    await world.tell(levels=(world.level(series, 1, 10),))
    await world.tell(corrections=(world.correction("c", -10, series),))

    assert await world.drain() == []

    assert (world.balance("total"), world.balance("decided"), world.balance("settled")) == (
        10, -10, 0,
    )  # fmt: skip
    assert world.rows("SELECT state, identifier FROM ledger.meter_event") == [("nothing", None)]


async def test_oldest_windows_go_first_and_all_entries_of_a_window_together(world: World) -> None:
    await world.map()
    await world.map("other", "cus_1")
    for back in (2, 8, 5):
        await world.tell(levels=(world.level(world.series(back=back), 1, back),))
        await world.tell(corrections=(world.correction(f"c{back}", 100, world.series(back=back)),))
    await world.tell(levels=(world.level(world.series("other", back=8), 1, 1_000),))

    assert values(await world.drain()) == [1_108, 105, 102]


async def test_a_tenant_without_a_customer_is_held_and_goes_out_right_after_mapping(
    world: World,
) -> None:
    await world.tell(levels=(world.level(world.series(), 3, 30),), events=(world.event("a", 4),))
    assert await world.drain() == []
    assert (world.balance("held"), world.balance("pending")) == (34, 0)
    assert await world.ledger.catalogue.unmapped() == {"acme": 2}

    await world.map()

    assert (world.balance("held"), world.balance("pending")) == (0, 34)
    assert sorted(values(await world.claim())) == [4, 30]


async def test_mapping_and_entries_at_the_same_time_never_miss_each_other(world: World) -> None:
    tenants = [f"t{n}" for n in range(25)]

    async def tell() -> None:
        for n, tenant in enumerate(tenants):
            await world.tell(events=(world.event(f"e{n}", 1, tenant),))

    async def map_all() -> None:
        for tenant in reversed(tenants):
            await world.map(tenant, f"cus_{tenant}")

    await asyncio.gather(tell(), map_all())

    assert world.value("SELECT count(*) FROM ledger.uncovered WHERE lane_id IS NULL") == 0
    assert len(await world.drain()) == 25


async def test_the_customer_mapped_at_the_start_of_the_window_pays(world: World) -> None:
    await world.map(customer="cus_old")
    starts_us = await world.map(customer="cus_new")
    assert starts_us > world.now_us

    ahead = structs.replace(
        world.series(), window_start_us=starts_us, window_end_us=starts_us + MINUTE_US
    )
    await world.tell(corrections=(world.correction("c", 5, ahead),))
    await world.tell(levels=(world.level(world.series(), 1, 3),))

    assert [(c.customer, c.value) for c in await world.drain()] == [("cus_old", "3")]
    assert world.rows(
        "SELECT l.customer FROM ledger.uncovered u JOIN ledger.lane l USING (lane_id)"
    ) == [("cus_new",)]
    assert world.value("SELECT due_at > now() FROM ledger.uncovered")


async def test_a_failed_attempt_waits_and_is_tried_again_unchanged(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    first = await world.only_claim()
    await world.settle(first, "pending", delay_ms=HOUR_US // 1_000)
    assert await world.claim() == []

    world.due_now()
    second = await world.only_claim()

    assert (
        replace(
            second,
            attempt_id=first.attempt_id,
            now_us=first.now_us,
            lease_until_us=first.lease_until_us,
            first_attempt_at_us=first.first_attempt_at_us,
            attempts_used=0,
            previous_attempts=0,
        )
        == first
    )
    assert (second.attempts_used, second.previous_attempts) == (1, 1)
    # Stripe cannot have met the identifier before: the fence begins with this attempt.
    assert second.first_attempt_at_us > first.first_attempt_at_us


async def test_the_fence_counts_from_the_attempt_that_may_have_been_executed(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    first = await world.only_claim()
    await world.settle(first, "ambiguous", delay_ms=1_000, executed=True)
    world.due_now()

    second = await world.only_claim()

    assert second.possibly_executed
    assert second.first_attempt_at_us == first.first_attempt_at_us


async def test_a_waiting_request_delays_no_other_lane_and_no_other_window(world: World) -> None:
    await world.map()
    await world.map("other", "cus_2")
    for tenant, back in (("acme", 8), ("acme", 5), ("other", 8)):
        await world.tell(levels=(world.level(world.series(tenant, back=back), 1, back),))
    await world.ledger.cut_entries(10)
    for claim in await world.claim():
        await world.settle(claim, "pending", delay_ms=3_600_000)

    assert values(await world.drain()) == [5]
    assert world.balance("pending") == 8


async def test_what_was_surely_not_executed_merges_with_what_came_since(world: World) -> None:
    await world.map()
    series = world.series()
    await world.tell(levels=(world.level(series, 1, 10),))
    await world.ledger.cut_entries(10)
    first = await world.only_claim()
    await world.settle(first, "pending", delay_ms=3_600_000)
    await world.tell(levels=(world.level(series, 2, 17),))
    assert await world.drain() == []  # it waits for the request that will take it in

    world.due_now()
    merged = await world.only_claim()

    assert merged.value == "17"
    assert merged.identifier != first.identifier
    assert (merged.attempts_used, merged.previous_attempts) == (1, 0)
    assert world.rows(
        "SELECT state, generation, superseded_by FROM ledger.meter_event ORDER BY meter_event_id"
    ) == [("superseded", 1, merged.meter_event_id), ("pending", 2, None)]


async def test_a_backlog_of_ten_and_minus_ten_is_nothing_to_send(world: World) -> None:
    await world.map()
    series = world.series()
    await world.tell(levels=(world.level(series, 1, 10),))
    await world.ledger.cut_entries(10)
    await world.settle(await world.only_claim(), "pending", delay_ms=3_600_000)
    await world.tell(corrections=(world.correction("c", -10, series),))
    world.due_now()

    assert await world.claim() == []
    assert world.value("SELECT array_agg(state ORDER BY 1) FROM ledger.meter_event") == [
        "nothing", "superseded",
    ]  # fmt: skip


@pytest.mark.parametrize("state", ["pending", "ambiguous"])
async def test_what_may_have_been_executed_is_never_superseded(world: World, state: str) -> None:
    await world.map()
    series = world.series()
    await world.tell(levels=(world.level(series, 1, 10),))
    await world.ledger.cut_entries(10)
    first = await world.only_claim()
    await world.settle(
        first, "pending" if state == "pending" else "ambiguous", delay_ms=0, executed=True
    )
    await world.tell(levels=(world.level(series, 2, 17),))
    await world.ledger.cut_entries(10)

    again = await world.only_claim()
    assert (again.identifier, again.value, again.possibly_executed) == (
        first.identifier, "10", True,
    )  # fmt: skip
    assert world.balance("ambiguous") == 10
    await world.settle(again)
    assert (await world.only_claim()).value == "7"


async def test_a_negative_amount_waits_for_everything_unsettled_before_it(world: World) -> None:
    await world.map()
    await world.tell(levels=(world.level(world.series(back=8), 1, 10),))
    await world.ledger.cut_entries(10)
    first = await world.only_claim()
    await world.settle(first, "ambiguous", delay_ms=3_600_000, executed=True)
    await world.tell(corrections=(world.correction("c", -4, world.series(back=5)),))
    await world.tell(levels=(world.level(world.series(back=3), 1, 6),))

    assert values(await world.drain()) == [6]
    assert world.balance("pending") == -4

    world.due_now()
    await world.settle(await world.only_claim())
    assert values(await world.drain()) == [-4]


async def test_a_dead_one_blocks_negatives_but_not_usage(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 10, back=9),))
    await world.settle(await world.only_claim(), "dead", dead="refused")
    series = world.series(metric="jobs")
    await world.tell(
        corrections=(world.correction("c", -4, series),), events=(world.event("b", 3),)
    )

    assert values(await world.drain()) == [3]
    assert (world.balance("dead"), world.balance("pending"), world.balance("settled")) == (
        10, -4, 3,
    )  # fmt: skip


async def test_nothing_is_sent_from_the_future(world: World) -> None:
    await world.map()
    ahead = world.event("a", 4)
    ahead = replace(ahead, occurred_at_us=world.now_us + HOUR_US)
    await world.tell(events=(ahead,))

    assert await world.claim() == []
    assert world.value("SELECT next_due_at > now() + interval '50 minutes' FROM ledger.lane")


async def test_what_is_past_its_billing_deadline_is_carried_not_sent(world: World) -> None:
    await world.map(
        "late", "cus_late", anchor_us=world.now_us // DAY_US * DAY_US,
        billing_interval="day", grace_us=15 * 60_000_000,
    )  # fmt: skip
    await world.map()
    await world.tell(
        events=(
            world.event("a", 4, "late", back=3 * 24 * 60),
            world.event("b", 5, "acme", back=3 * 24 * 60),
        )
    )

    assert values(await world.drain()) == [5]
    assert world.balance("held", "late") == 4
    assert (await world.ledger.audit.status())["carry"] == 1


async def test_a_waiting_request_whose_invoice_closes_becomes_carry(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    await world.settle(await world.only_claim(), "pending", delay_ms=0)
    world.admin.execute(
        "SET session_replication_role = replica;"
        "UPDATE ledger.meter_event SET deadline_at = now();"
        "INSERT INTO ledger.customer SELECT tenant_id, effective_from + interval '1 day', customer,"
        " now() - interval '3 days', 'day', '-10 days', now(), actor FROM ledger.customer"
    )

    assert await world.claim() == []
    assert world.balance("held") == 4
    assert world.rows("SELECT state FROM ledger.meter_event") == [("superseded",)]


async def test_an_expired_lease_returns_and_its_attempt_counts_as_possibly_executed(
    world: World,
) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    first = await world.only_claim()
    world.expire_leases()

    second = await world.only_claim()

    assert second.identifier == first.identifier
    assert second.possibly_executed
    assert second.first_attempt_at_us == first.first_attempt_at_us
    assert second.previous_attempts == 1


async def test_a_late_success_counts_whoever_holds_the_lane(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4), world.event("b", 5)))
    first = await world.only_claim()
    world.expire_leases()
    second = await world.only_claim()

    await world.settle(first)

    assert world.balance("settled") == 4
    assert await world.claim() == []  # the lane is still lent for the second attempt
    await world.settle(second, "pending", delay_ms=0)
    assert world.balance("settled") == 4
    assert world.value("SELECT count(*) FROM ledger.attempt WHERE finished_at IS NULL") == 0
    assert values(await world.drain()) == [5]


async def test_a_late_failure_decides_nothing(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    first = await world.only_claim()
    world.expire_leases()
    second = await world.only_claim()

    await world.settle(first, "dead", dead="refused")
    assert world.rows("SELECT state, next_attempt_at > now() FROM ledger.meter_event") == [
        ("pending", True)
    ]
    await world.settle(second)
    await world.settle(first, "dead", dead="refused")

    assert world.rows("SELECT state FROM ledger.meter_event") == [("recorded",)]
    assert world.value("SELECT count(*) FROM ledger.parked") == 0


async def test_a_settlement_may_be_repeated(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()

    await world.settle(claim, "pending", delay_ms=3_600_000)
    await world.settle(claim, "pending", delay_ms=3_600_000)

    assert world.rows("SELECT attempts_used FROM ledger.meter_event") == [(1,)]


async def test_a_success_after_supersession_is_a_finding(world: World) -> None:
    await world.map()
    series = world.series()
    await world.tell(levels=(world.level(series, 1, 10),))
    await world.ledger.cut_entries(10)
    first = await world.only_claim()
    await world.settle(first, "pending", delay_ms=0)
    await world.tell(levels=(world.level(series, 2, 17),))
    await world.ledger.cut_entries(10)
    await world.only_claim()
    world.admin.execute(
        "INSERT INTO ledger.attempt (meter_event_id, key_generation, worker, lease_until)"
        " VALUES (%s, 1, 'w', now())",
        (first.meter_event_id,),
    )
    forgotten = world.value("SELECT max(attempt_id) FROM ledger.attempt")

    await world.settle(replace(first, attempt_id=forgotten))

    assert world.rows("SELECT kind FROM ledger.finding") == [("superseded_recorded",)]
    assert world.value("SELECT state FROM ledger.meter_event ORDER BY 1 DESC LIMIT 1") == (
        "superseded"
    )


@pytest.mark.parametrize(
    ("executed", "reason", "column"),
    [(False, "exhausted", "dead"), (True, "ambiguous", "ambiguous")],
)
async def test_a_dead_meter_event_is_parked_with_all_that_was_seen(
    world: World, *, executed: bool, reason: str, column: str
) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()
    await world.settle(claim, "dead", dead="exhausted", executed=executed)

    assert world.balance(column) == 4
    (letter,) = await world.ledger.publishing.dead_letters(10)
    assert letter.reason == reason
    assert claim.identifier in letter.detail
    assert "req_1" in letter.detail
    await world.ledger.publishing.dead_letters_published([letter.parked_id])
    assert await world.ledger.publishing.dead_letters(10) == []
    assert world.rows("SELECT kind, tenant_id, metric, units, state FROM ledger.parked") == [
        ("dead", "acme", "jobs", 4, "open")
    ]


async def test_a_late_success_withdraws_the_parked_item(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    first = await world.only_claim()
    world.expire_leases()
    await world.settle(await world.only_claim(), "dead", dead="exhausted")
    assert world.balance("ambiguous") == 4

    await world.settle(first)

    assert world.balance("settled") == 4
    assert world.rows("SELECT state FROM ledger.parked") == [("withdrawn",)]


async def test_an_outcome_that_is_none_is_refused(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()

    with pytest.raises(LedgerRefusedError, match="state: nothing is no outcome"):
        await world.settle(claim, "nothing")


async def test_what_stripe_could_not_take_pauses_its_lane_only(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    world.admin.execute(
        "SET session_replication_role = replica;UPDATE ledger.lane SET customer = repeat('x', 300)"
    )
    await world.map("other", "cus_2")
    await world.tell(events=(world.event("b", 5, "other"),))

    assert values(await world.drain()) == [5]
    assert world.rows("SELECT pause_reason LIKE 'customer: %%' FROM ledger.lane WHERE paused") == [
        (True,)
    ]
    world.admin.execute("UPDATE ledger.lane SET paused = false, customer = 'cus_1' WHERE paused")


async def test_identifiers_differ_between_ledgers_and_tell_nothing(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()

    assert claim.identifier.startswith("m1:")
    assert len(claim.identifier) <= 60
    assert uuid_of("a")[:8] not in claim.identifier
    assert await world.ledger.catalogue.ledger_id() == str(
        world.value("SELECT ledger_id FROM ledger.identity")
    )
