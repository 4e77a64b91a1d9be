from __future__ import annotations

from typing import Any

import pytest

from connectors.source_registry import SourceIdentity
from streams.adapters.ledger import LedgerRefusedError
from streams.adapters.ledger_catalogue import LedgerSources
from streams.core.catalogue import MeterVersion
from tests.integration.ledger.world import DAY_US, EVENTWISE, HOUR_US, MINUTE_US, WINDOWED, World

pytestmark = pytest.mark.postgres


def next_full(unit_us: int, after_us: int) -> int:
    return (after_us // unit_us + 1) * unit_us


async def test_the_catalogue_comes_back_as_it_was_appended(world: World) -> None:
    versions, now_us = await world.ledger.load_catalogue()

    assert versions == [WINDOWED, EVENTWISE]
    assert now_us >= world.now_us
    assert await world.ledger.catalogue.notice_us() == HOUR_US


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"version": 3}, "the next version of api_calls is 2"),
        ({"version": 1}, "the next version of api_calls is 2"),
        ({"effective_from_us": 0}, "must start later"),
        ({"effective_from_us": MINUTE_US}, "needs 01:00:00 of notice"),
        ({"window_us": HOUR_US, "effective_from_us": "minute"}, "not on a boundary"),
        ({"scale": 2}, "already counts units of scale 0"),
        ({"metric": "new", "version": 1, "scale": 2}, "already counts units of scale 0"),
        ({"metric": "new", "version": 2, "event_name": "n"}, "the next version of new is 1"),
        ({"aggregation": "count", "event_name": "n"}, "meter_version_check"),
        ({"metric": "new", "version": 1, "aggregation": "count", "publish": "event"}, "is a sum"),
        ({"skew_max_us": 34 * DAY_US, "close_delay_us": 1}, "meter_version_way_check"),
    ],
)
async def test_a_version_that_would_rewrite_history_is_refused(
    world: World, change: dict[str, Any], rule: str
) -> None:
    later_us = next_full(DAY_US, world.now_us + HOUR_US)
    version = WINDOWED._replace(version=2, effective_from_us=later_us)
    if change.get("effective_from_us") == "minute":
        change = {**change, "effective_from_us": later_us + MINUTE_US}

    with pytest.raises(LedgerRefusedError, match=rule):
        await world.ledger.catalogue.append_meters([version._replace(**change)], "tests")

    assert (await world.ledger.load_catalogue())[0] == [WINDOWED, EVENTWISE]


async def test_all_versions_of_a_call_or_none(world: World) -> None:
    good = WINDOWED._replace(metric="good", event_name="good")

    with pytest.raises(LedgerRefusedError):
        await world.ledger.catalogue.append_meters([good, WINDOWED], "tests")

    assert len((await world.ledger.load_catalogue())[0]) == 2


async def test_a_well_announced_version_is_taken(world: World) -> None:
    version = WINDOWED._replace(
        version=2, window_us=HOUR_US, effective_from_us=next_full(HOUR_US, world.now_us + HOUR_US)
    )

    await world.ledger.catalogue.append_meters([version], "tests")

    assert version in (await world.ledger.load_catalogue())[0]


async def test_a_new_metric_may_not_reach_back_over_what_was_dead_lettered(world: World) -> None:
    seen_us = world.now_us - HOUR_US
    await world.tell(
        parked=(
            world.parked(
                "p", kind="dead", reason="malformed", metric="new", series=None, units=None,
                occurred_at_us=seen_us,
            ),
        )
    )  # fmt: skip
    new = MeterVersion(**{**WINDOWED._asdict(), "metric": "new", "event_name": "new"})

    with pytest.raises(LedgerRefusedError, match="dead-lettered as unknown"):
        await world.ledger.catalogue.append_meters([new], "tests")

    await world.ledger.catalogue.append_meters(
        [new._replace(effective_from_us=seen_us + 1)], "tests"
    )


async def test_a_first_mapping_holds_from_the_beginning_and_a_next_one_from_a_boundary(
    world: World,
) -> None:
    assert await world.map(customer="cus_1") == 0

    starts_us = await world.map(customer="cus_2")

    assert starts_us % MINUTE_US == 0
    assert 0 < starts_us - world.now_us <= 2 * MINUTE_US
    mappings = await world.ledger.catalogue.customers()
    assert [(m.customer, m.effective_from_us, actor) for m, actor in mappings] == [
        ("cus_1", 0, "tests"),
        ("cus_2", starts_us, "tests"),
    ]
    assert world.value("SELECT count(*) FROM ledger.audit_log WHERE action = 'map_customer'") == 2


@pytest.mark.parametrize(
    ("effective_from_us", "rule"),
    [(MINUTE_US, "may be billed to the present customer"), (MINUTE_US + 1, "not on a boundary")],
)
async def test_a_mapping_of_the_past_is_refused(
    world: World, effective_from_us: int, rule: str
) -> None:
    await world.map()

    with pytest.raises(LedgerRefusedError, match=rule):
        await world.map(customer="cus_2", effective_from_us=effective_from_us)


async def test_windows_before_a_first_mapping_can_be_mapped_later(world: World) -> None:
    before_us = next_full(HOUR_US, world.now_us) - 3 * HOUR_US
    await world.tell(events=(world.event("a", 4, back=300),))
    await world.map(customer="cus_2", effective_from_us=before_us)
    assert await world.claim() == []

    await world.map(customer="cus_1", effective_from_us=0)

    assert (await world.only_claim()).customer == "cus_1"


@pytest.mark.parametrize(
    ("anchor", "interval", "at", "end"),
    [
        ("2026-01-31", "month", "2026-02-01", "2026-02-28"),
        ("2026-01-31", "month", "2026-02-28", "2026-03-31"),
        ("2026-01-31", "month", "2026-01-30", "2026-01-31"),
        ("2026-01-01", "month", "2026-01-31 23:59:59", "2026-02-01"),
        ("2026-01-15 14:37:21", "month", "2026-11-15 14:37:20", "2026-11-15 14:37:21"),
        ("2026-01-15 14:37:21", "month", "2026-11-15 14:37:21", "2026-12-15 14:37:21"),
        ("2024-02-29", "year", "2025-02-27", "2025-02-28"),
        ("2024-02-29", "year", "2025-03-01", "2026-02-28"),
        ("2026-03-20", "day", "2026-03-29 02:30", "2026-03-30"),
        ("2026-03-20", "week", "2026-03-20", "2026-03-27"),
        ("2026-03-20", "week", "2026-03-19", "2026-03-20"),
        ("2030-06-01", "month", "2026-03-05", "2026-04-01"),
        ("2026-11-30", "3 months", "2027-02-27", "2027-02-28"),
        ("2026-11-30", "3 months", "2027-02-28", "2027-05-30"),
        ("2026-03-20", "2 weeks", "2026-03-27", "2026-04-03"),
    ],
)
async def test_a_billing_period_ends_with_the_anchor(
    world: World, anchor: str, interval: str, at: str, end: str
) -> None:
    found = world.value(
        "SELECT ledger.period_end(%s::timestamp AT TIME ZONE 'UTC', %s,"
        " %s::timestamp AT TIME ZONE 'UTC') = %s::timestamp AT TIME ZONE 'UTC'",
        anchor, interval, at, end,
    )  # fmt: skip

    assert found


async def test_the_deadline_is_the_end_of_the_period_with_grace_and_margin(world: World) -> None:
    found = world.value(
        "SELECT ledger.billing_deadline('2026-01-01Z', 'month', %s, '2026-11-30 23:50Z')"
        " = '2026-12-01 00:45Z'::timestamptz",
        None,
    )

    assert found
    assert world.value("SELECT ledger.billing_deadline(NULL, NULL, NULL, now()) IS NULL")


async def test_a_source_is_registered_once_and_replaced_knowingly(world: World) -> None:
    one, two = SourceIdentity("sandbox", "71", 1), SourceIdentity("sandbox", "72", 3)
    with world.database.connect(world.database.login("ledger_service")) as login:
        store = LedgerSources(login)
        assert store.find("sandbox") is None

        store.add(one)
        store.add(two)
        assert store.find("sandbox") == one

        assert not store.replace(two, one)
        assert store.replace(one, two)
        assert store.find("sandbox") == two
    assert world.value("SELECT count(*) FROM ledger.audit_log WHERE action = 'replace_source'") == 1
