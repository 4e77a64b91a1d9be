"""Commands that read: journeys, figures, queues, settings; each document keeps its schema."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streams.adapters.ledger import open_ledger
from streams.core.live_meter import MeterFinding
from tests.integration.cli.conftest import World, new_key

pytestmark = pytest.mark.postgres


def trace(world: World, tenant: str, key: str) -> dict[str, Any]:
    [journey] = world.cli.json("trace", "trace", tenant, key)["journeys"]
    assert isinstance(journey, dict)
    return journey


def names(journey: dict[str, Any]) -> list[str]:
    return [step["step"] for step in journey["steps"]]


def test_trace_follows_an_event_from_its_row_to_stripes_answer(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    event_id = world.record("acme", "order-1")
    world.settled(3)
    journey = trace(world, "acme", "order-1")
    assert journey["event_id"] == event_id
    assert journey["verdict"]["class"] == "accepted"
    assert names(journey) == [
        "outbox row", "verdict", "window", "level", "entry", "meter event", "attempt", "settlement",
    ]  # fmt: skip
    assert [m["state"] for m in journey["meter_events"]] == ["recorded"]
    shown = world.cli("trace", "acme", "order-1")
    assert shown.code == 0
    assert "cus_acme, recorded" in shown.out


def test_trace_of_an_event_mode_meter_shows_its_own_entry(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", "export-1", metric="exports")
    world.settled(3)
    journey = trace(world, "acme", "export-1")
    assert journey["verdict"]["basis"] == "an entry of its own"
    assert journey["levels"] == []
    assert [e["kind"] for e in journey["entries"]] == ["event"]


def test_trace_says_what_an_unmapped_tenants_usage_waits_for(world: World) -> None:
    world.record("acme", "order-1", metric="exports")
    assert world.cli("audit").code == 0
    shown = world.cli("trace", "acme", "order-1")
    assert "no customer is mapped for the tenant: `tailrace customers map acme cus_…`" in shown.out


def test_trace_names_every_cause_that_holds_an_event_and_not_the_first_alone(
    world: World,
) -> None:
    world.record("acme", "order-1", metric="exports")
    for scope in (("--meter", "exports"), ("--meter", "api_calls"), ("--tenant", "other")):
        assert world.cli("pause", *scope, "--reason", "prices", "--yes").code == 0
    assert world.cli("audit").code == 0
    asyncio.run(stripe_down_and_meter_wrong(world))
    holds = trace(world, "acme", "order-1")["holds"]
    assert [(hold["cause"], hold["command"]) for hold in holds] == [
        ("unmapped", "tailrace customers map acme cus_…"),
        ("paused", 'tailrace resume --meter exports --reason "…"'),
        ("sink_down", "tailrace deadlines"),
        ("meter_wrong", "tailrace doctor meter-formula"),
    ]
    assert "waits 4" in world.cli("trace", "acme", "order-1").out

    world.cli("customers", "map", "acme", "cus_acme")
    causes = [hold["cause"] for hold in trace(world, "acme", "order-1")["holds"]]
    assert causes == ["paused", "sink_down", "meter_wrong"]
    world.cli("resume", "--meter", "exports", "--reason", "over", "--yes")
    world.settled(3)
    causes = [hold["cause"] for hold in trace(world, "acme", "order-1")["holds"]]
    assert causes == ["meter_wrong"], "what was sent is billed wrong by it all the same"


async def stripe_down_and_meter_wrong(world: World) -> None:
    """A worker's sweeps get no answer, and its look at Stripe's meters finds another formula."""
    login = world.ledger.login("ledger_service", "ledger_finance")
    async with open_ledger(world.ledger.dsn(login)) as ledger:
        assert await ledger.rejections.claim_sweep(0.0) is not None
        for _ in range(3):
            await ledger.rejections.unanswered("HTTP 503", refused=False)
        name = await ledger.catalogue.claim_meters(0.0)
        assert name is not None
        found = MeterFinding("formula", "exports", "formula is count", "other")
        assert await ledger.catalogue.note_meters(name, (found,))


def test_trace_of_a_late_event_ends_in_review_and_not_in_its_neighbours_window(
    world: World,
) -> None:
    world.record("acme", "late", back="30 hours")
    assert world.cli("audit").code == 0
    journey = trace(world, "acme", "late")
    assert journey["verdict"]["class"] == "review"
    assert journey["verdict"]["basis"].startswith("parked item")
    assert journey["entries"] == []
    assert "parked" in names(journey)
    assert journey["holds"] == []
    (parked,) = (step["text"] for step in journey["steps"] if step["step"] == "parked")
    assert parked.endswith(f"`tailrace review show {journey['parked'][0]['parked_id']}`")


def test_trace_of_a_conflict_shows_both(world: World) -> None:
    world.record("acme", "order-1")
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 9, 'order-1')")
    assert world.cli("audit").code == 0
    journey = trace(world, "acme", "order-1")
    assert journey["recorded"]["conflicts"] == 1
    assert journey["verdict"]["class"] == "accepted"
    assert [item["reason"] for item in journey["parked"]] == ["conflict"]
    (parked,) = (step["text"] for step in journey["steps"] if step["step"] == "parked")
    assert "says 9 where the first recording says 3, which counts" in parked
    assert parked.endswith(f"`tailrace review show {journey['parked'][0]['parked_id']}`")


def test_trace_of_a_key_nobody_recorded_is_a_finding(world: World) -> None:
    shown = world.cli("trace", "acme", "never")
    assert (shown.code, shown.out) == (1, "")
    assert "neither the registry of sandbox nor the ledger knows it" in shown.err
    assert "`tailrace windows list --tenant acme`" in shown.err
    assert world.cli.json("trace", "trace", "acme", "never")["journeys"] == []


def test_status_shows_what_waits_and_the_command_for_each_state(world: World) -> None:
    world.record("acme", new_key(), metric="exports")
    world.record("acme", "late", back="30 hours")
    assert world.cli("audit").code == 0
    figures = world.cli.json("status", "status")
    assert figures["waiting"]["entries_unmapped"] == 1
    assert [(p["kind"], p["reason"], p["count"]) for p in figures["parked"]] == [
        ("review", "late", 1)
    ]
    assert [c["partitions"] for c in figures["canaries"]] == [12]
    assert [(a["lost"], a["double"]) for a in figures["audits"]] == [(0, 0)]
    shown = world.cli("status")
    assert shown.code == 0
    assert "held for unmapped tenants: acme (3 units): `tailrace customers map acme cus_…`" in (
        shown.out
    )
    assert "`tailrace review list`" in shown.out
    assert shown.err == ""


def test_canaries_that_came_raise_no_alarm_however_long_ago_and_one_under_way_does(
    world: World,
) -> None:
    assert world.cli("audit").code == 0
    for database, table in ((world.outbox, "metering.canary"), (world.ledger, "ledger.canary")):
        with database.connect() as conn:
            conn.execute(f"UPDATE {table} SET received_at = received_at - interval '1 h'".encode())
    assert world.cli.json("status", "status")["canary_under_way_s"] is None
    assert "a canary is under way" not in world.cli("status").out

    world.pipeline.capturing = False
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.emit_canaries()")
        conn.execute(
            "UPDATE metering.canary SET received_at = received_at - interval '5 min'"
            " WHERE received_at > now() - interval '30 min'"
        )
    assert "a canary is under way for 5 min" in world.cli("status").out


def test_status_of_an_empty_ledger_is_no_error(world: World) -> None:
    world.pipeline.publishing = False
    figures = world.cli.json("status", "status")
    assert figures["positions"] == []
    assert "no worker has told the ledger yet" in world.cli("status").out


def test_queues_list_what_waits_for_a_person(world: World) -> None:
    world.record("acme", "late", back="30 hours")
    assert world.cli("audit").code == 0
    listed = world.cli.json("parked_list", "review", "list")
    assert [(i["tenant_id"], i["reason"], i["units"]) for i in listed["items"]] == [
        ("acme", "late", "3")
    ]
    assert world.cli.json("parked_list", "review", "list", "--tenant", "globex")["total"] == 0
    assert world.cli.json("parked_list", "dead", "list")["items"] == []
    shown = world.cli("review", "list")
    assert shown.code == 0
    assert "received_at lies" in shown.out
    assert "1 of 1 open items" in shown.err


def test_the_schemas_of_both_databases_are_checked(world: World) -> None:
    for which in ("outbox", "ledger"):
        document = world.cli.json("schema_check", "schema", "check", which)
        assert document["missing"] == []
        assert world.cli("schema", "check", which).code == 0


def test_a_database_without_the_schema_is_a_finding_and_installing_twice_says_so(
    world: World, fresh_database: Any
) -> None:
    empty = fresh_database().dsn()
    shown = world.cli("schema", "check", "ledger", "--dsn", empty)
    assert shown.code == 1
    assert "next: `tailrace schema install ledger`" in shown.err
    assert world.cli("schema", "install", "ledger", "--dsn", empty).out.startswith("applied ")
    assert world.cli("schema", "install", "ledger", "--dsn", empty).out.startswith("unchanged")


def test_only_what_is_installed_is_upgraded_and_a_wrong_address_installs_nothing(
    world: World, fresh_database: Any
) -> None:
    database = fresh_database()
    empty = database.dsn()
    refused = world.cli("schema", "upgrade", "ledger", "--dsn", empty)
    assert refused.code == 2
    assert "no ledger is installed there" in refused.err
    assert "`tailrace schema install ledger`" in refused.err
    assert world.cli("schema", "check", "ledger", "--dsn", empty).code == 1

    world.cli("schema", "install", "ledger", "--dsn", empty)
    assert world.cli("schema", "upgrade", "ledger", "--dsn", empty).out.startswith("unchanged")
    with database.connect() as older:
        lost = older.execute(
            "DELETE FROM ledger.migration WHERE name = (SELECT max(name) FROM"
            " ledger.migration) RETURNING name"
        ).fetchone()
    shown = world.cli("schema", "check", "ledger", "--dsn", empty)
    assert shown.out.splitlines() == [f"missing {lost[0]}"]
    assert "next: `tailrace schema upgrade ledger`" in shown.err
    assert world.cli("schema", "upgrade", "outbox").out.startswith("unchanged")


def test_settings_are_shown_without_their_secrets(world: World) -> None:
    document = world.cli.json("config_show", "config", "show")
    assert document["sandbox"] == str(world.cli.directory)
    values = {s["name"]: s["value"] for s in document["settings"]}
    assert values["TAILRACE_LEDGER_DSN"] == "***"
