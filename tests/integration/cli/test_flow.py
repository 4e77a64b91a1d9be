"""`status` never says that nothing waits while capture stands still, or is not looked at."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import World, new_key
from tests.integration.cli.test_status import figures, named

pytestmark = pytest.mark.postgres

NOWHERE = "127.0.0.1:1"


def proven(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", new_key(), metric="exports")
    world.settled(3)
    assert world.cli("audit").code == 0
    assert named(world) == {}


def test_rows_recorded_since_the_ledger_was_told_last_are_counted(world: World) -> None:
    proven(world)
    world.pipeline.capturing = False
    for _ in range(3):
        world.record("acme", new_key())
    assert figures(world)["capture"]["untold"] == 3
    assert named(world) == {}, "they are on their way"
    with world.outbox.connect() as conn:
        conn.execute("UPDATE metering.usage_key SET received_at = received_at - interval '5 min'")
    with world.ledger.connect() as conn:
        conn.execute("UPDATE ledger.position SET updated_at = updated_at - interval '5 min'")
    shown = world.cli("status")
    assert shown.out.startswith("money at risk: not yet: 1 thing waits for somebody\n")
    assert "3 recorded and not in the ledger, the oldest for 5 min: `tailrace doctor`" in shown.out
    assert "3 recorded and not in the ledger" in world.cli("doctor", "money").out
    world.pipeline.capturing = True
    world.settled(12)
    assert named(world) == {}


def test_what_could_not_be_looked_at_is_not_silently_well(world: World) -> None:
    proven(world)
    world.add_fact("connect_url", f"http://{NOWHERE}")
    assert named(world).keys() == {"capture_unread", "slot_missing"}
    away = {"TAILRACE_SOURCE_DSN": f"postgresql://nobody@{NOWHERE}/shop"}
    world.add_fact("settings", away)
    world.add_fact("postgres_dsn", "")
    unread = figures(world)["capture"]["unread"]
    assert [part["what"] for part in unread] == ["what is recorded", "the connector"]
    shown = world.cli("status").out
    assert shown.startswith("money at risk: not yet: 2 things wait for somebody\n")
    assert "nobody knows of what is recorded: " in shown
