"""`tailrace exporter` beside a stack in small: what it tells is what the ledger holds."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import World
from tests.support.scraped import exporter, page, scraped
from tests.support.waiting import until

pytestmark = pytest.mark.postgres


def test_what_waits_is_told_by_its_name(world: World) -> None:
    world.record("acme", "unmapped", metric="exports")
    world.record("acme", "late", back="30 hours")
    assert world.cli("audit").code == 0
    assert world.cli("pause", "--all", "--reason", "test", "--yes").code == 0
    reader = world.ledger.dsn(world.ledger.login("ledger_reader"))
    with exporter(world.cli.directory, TAILRACE_LEDGER_DSN=reader) as address:
        samples = scraped(address)
    for name, value in {
        'usage_exporter_up{part="ledger"}': 1,
        'usage_exporter_up{part="windows"}': 1,
        'usage_exporter_up{part="canary"}': 1,
        'usage_exporter_up{part="slot"}': 1,
        "usage_unmapped_entries": 1,
        'usage_parked_items{kind="review",reason="late"}': 1,
        'usage_audit_lost{source="sandbox"}': 0,
        'usage_publishing_paused{scope="all"}': 1,
        'usage_canary_under_way_seconds{source="sandbox"}': 0,
    }.items():
        assert samples[name] == value, name
    assert samples['usage_audit_age_seconds{source="sandbox"}'] >= 0


def test_a_closed_window_is_incomplete_until_it_is_at_stripe(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    assert world.cli("pause", "--all", "--reason", "test", "--yes").code == 0
    world.record("acme", "one", back="2 hours")
    world.record("acme", "two", back="1 hours")
    assert world.cli("audit").code == 0
    windows = 'usage_incomplete_windows{metric="api_calls"}'
    with exporter(world.cli.directory) as address:
        until("both windows to wait", lambda: scraped(address).get(windows) == 2)
        assert scraped(address)['usage_incomplete_age_seconds{metric="api_calls"}'] > 6_000
        assert world.cli("resume", "--all", "--reason", "test", "--yes").code == 0
        world.settled(6)
        until("neither to wait", lambda: windows not in scraped(address))


def test_a_backend_that_is_away_costs_its_own_figures_alone(world: World) -> None:
    nowhere = "127.0.0.1:1"
    with exporter(
        world.cli.directory,
        TAILRACE_LEDGER_DSN="postgresql://nobody@127.0.0.1:1/ledger",
        TAILRACE_CONNECT_URL=f"http://{nowhere}",
        TAILRACE_KAFKA_BOOTSTRAP=nowhere,
    ) as address:
        samples = scraped(address)
        assert page(address.replace("/metrics", "/healthz")) == "ok\n"
    up = {name: value for name, value in samples.items() if name.startswith("usage_exporter_up")}
    away = {"ledger", "windows", "canary", "connect", "guard", "kafka"}
    assert up == {f'usage_exporter_up{{part="{part}"}}': part == "slot" for part in {*away, "slot"}}
    assert 'usage_slot_lost{source="sandbox"}' in samples
    assert not [name for name in samples if name.startswith(("usage_meter_events", "usage_audit"))]
