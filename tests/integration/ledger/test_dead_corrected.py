"""A dead request that corrections took back: resolved with a receipt, and nothing is owed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.integration.ledger.world import World, values

pytestmark = pytest.mark.postgres


def correct(
    world: World, units: int, key: str, *, tenant: str = "acme", metric: str = "jobs"
) -> int:
    """By somebody of finance, in the window in which `World.event` puts its events."""
    at_us = world.series().window_start_us + 2_000_000
    with world.database.connect(world.database.login("ledger_finance")) as person:
        row = person.execute(
            "SELECT ledger.correct(%s, %s, ledger.at(%s), %s, %s, 'never to be billed')",
            (tenant, metric, at_us, units, key),
        ).fetchone()
        assert row is not None
        return int(row[0])


async def die(world: World, name: str, units: int, tenant: str = "acme", **how: Any) -> int:
    """A request that Stripe refused; its dead item."""
    await world.tell(events=(world.event(name, units, tenant),))
    await world.settle(await world.only_claim(), "dead", dead="refused", **how)
    return int(world.value("SELECT max(parked_id) FROM ledger.parked"))


def states(world: World) -> list[str]:
    return [row[0] for row in world.rows("SELECT state FROM ledger.parked ORDER BY parked_id")]


def owed(world: World) -> tuple[int, int]:
    """What is dead, and what waits."""
    return world.balance("dead"), world.balance("pending + held")


async def test_its_opposite_resolves_a_dead_request_with_a_receipt(world: World) -> None:
    await world.map()
    item = await die(world, "a", 4)

    entry = correct(world, -4, "ticket-1")

    assert owed(world) == (0, 0)
    assert world.balance("total + decided") == 0
    assert states(world) == ["corrected"]
    assert world.rows(
        "SELECT action, parked_id, entry_id, actor, reason, detail -> 'corrections'"
        " FROM ledger.decision WHERE action = 'end'"
    ) == [("end", item, entry, "login_ledger_finance", "never to be billed", [entry])]
    assert await world.drain() == []
    assert correct(world, -4, "ticket-1") == entry
    assert world.value("SELECT count(*) FROM ledger.decision WHERE action = 'end'") == 1
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="corrected already"):
        world.rows("SELECT ledger.redrive(%s, 'again')", item)


async def test_a_correction_that_waited_resolves_what_dies_after_it(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    claim = await world.only_claim()
    correct(world, -4, "ticket-1")

    await world.settle(claim, "dead", dead="refused")

    assert (states(world), owed(world)) == (["corrected"], (0, 0))


async def test_several_corrections_resolve_it_once_they_take_back_all(world: World) -> None:
    await world.map()
    await die(world, "a", 4)

    correct(world, -1, "ticket-1")
    assert (states(world), owed(world)) == (["open"], (4, -1))
    correct(world, -3, "ticket-2")

    assert (states(world), owed(world)) == (["corrected"], (0, 0))


async def test_of_two_dead_requests_the_one_whose_opposite_it_is_is_resolved(world: World) -> None:
    await world.map()
    await die(world, "a", 7)
    await die(world, "b", 5)

    correct(world, -5, "ticket-1")

    assert (states(world), owed(world)) == (["open", "corrected"], (7, 0))


async def test_one_correction_resolves_all_that_died_in_its_window(world: World) -> None:
    await world.map()
    await die(world, "a", 7)
    await die(world, "b", 5)

    correct(world, -12, "ticket-1")

    assert (states(world), owed(world)) == (["corrected", "corrected"], (0, 0))


async def test_what_waits_besides_goes_on_when_a_dead_request_is_resolved(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("sent", 9),))
    await world.drain()
    await die(world, "a", 4)
    correct(world, -2, "ticket-1")
    assert await world.drain() == [], "a negative amount waits behind what is dead"

    correct(world, -4, "ticket-2")

    assert values(await world.drain()) == [-2]
    assert world.balance("settled") == 7


async def test_anothers_correction_resolves_nothing(world: World) -> None:
    """Two tenants, one customer, one lane: amounts of one do not take back the other's."""
    await world.map()
    await world.map("other")
    await world.tell(events=(world.event("sent", 9, "other"),))
    await world.drain()
    await die(world, "a", 4)

    correct(world, -4, "ticket-1", tenant="other")

    assert states(world) == ["open"]
    assert world.balance("dead") == 4


async def test_a_correction_of_another_window_takes_nothing_back(world: World) -> None:
    await world.map()
    await die(world, "a", 4)
    await world.tell(events=(world.event("b", 4, back=3),))
    await world.settle(await world.only_claim())

    series = world.series(back=3, metric="jobs")
    await world.tell(corrections=(world.correction("service", -4, series),))

    assert states(world) == ["open"]


async def test_negative_usage_is_no_correction(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("sent", 9),))
    await world.drain()
    await die(world, "a", 4)
    await world.tell(events=(world.event("b", -4),))

    correct(world, -1, "ticket-1")

    assert states(world) == ["open"]


async def test_a_services_own_correction_resolves_it_as_well(world: World) -> None:
    await world.map()
    await die(world, "a", 4)

    series = world.series(metric="jobs")
    await world.tell(corrections=(world.correction("service", -4, series),))

    assert (states(world), owed(world)) == (["corrected"], (0, 0))
    assert "correction service" in world.value("SELECT why FROM ledger.parked")


async def test_what_stripe_may_have_counted_is_resolved_by_no_correction(world: World) -> None:
    await world.map()
    await die(world, "a", 4, executed=True)

    correct(world, -4, "ticket-1")

    assert states(world) == ["open"]
    assert world.balance("ambiguous") == 4


async def test_what_a_restored_ledger_may_have_sent_is_left_to_stripes_sums(world: World) -> None:
    await world.map()
    await die(world, "a", 4)
    world.admin.execute(
        "INSERT INTO ledger.doubt (customer, event_name, window_start, window_end, reason)"
        " SELECT customer, event_name, window_start, window_end, 'ledger_adopted 1'"
        " FROM ledger.meter_event"
    )

    correct(world, -4, "ticket-1")

    assert states(world) == ["open"]
