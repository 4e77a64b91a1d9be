"""`tailrace windows`: every state of a window, its amounts, and what it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.cli.conftest import World, new_key
from tests.support.waiting import until

pytestmark = pytest.mark.postgres


def windows(world: World, *options: str) -> list[dict[str, Any]]:
    return list(world.cli.json("windows_list", "windows", "list", *options)["windows"])


def states(world: World, *options: str) -> list[str]:
    return [window["state"] for window in windows(world, *options)]


def shown(world: World, window: dict[str, Any]) -> dict[str, Any]:
    which = (window["tenant_id"], window["metric"], window["window_start"])
    return world.cli.json("windows_show", "windows", "show", *which)


def foots(window: dict[str, Any]) -> bool:
    owed = int(window["total"]) + int(window["decided"])
    parts = ("settled", "pending", "held", "dead", "doubtful")
    return owed == sum(int(window[part]) for part in parts)


def test_a_window_is_held_until_somebody_pays_and_settled_afterwards(world: World) -> None:
    world.record("acme", new_key(), metric="exports", back="3 hours")
    until("the usage is held", lambda: states(world) == ["held"], 20)
    (window,) = windows(world, "--tenant", "acme", "--metric", "exports", "--state", "held")
    assert (window["total"], window["held"]) == ("3", "3")
    assert (
        "`tailrace customers list`"
        in world.cli("windows", "show", "acme", "exports", window["window_start"]).err
    )

    world.cli("customers", "map", "acme", "cus_acme")
    world.settled(3)
    (window,) = windows(world)
    assert (window["state"], window["settled"], foots(window)) == ("settled", "3", True)
    document = shown(world, window)
    assert [(e["kind"], e["delta"], e["state"]) for e in document["entries"]] == [
        ("event", 3, "settled")
    ]
    assert [m["state"] for m in document["meter_events"]] == ["recorded"]
    assert world.cli("windows", "list").out.splitlines()[1].split()[3] == "settled"


def test_a_window_that_adds_up_is_open_then_closing_then_pending(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.pipeline.publishing = False
    world.record("acme", new_key(), back="10 min")
    until("the level is told", lambda: states(world) == ["closing"], 20)
    document = shown(world, windows(world)[0])
    assert [level["total"] for level in document["levels"]] == ["3"]
    assert document["entries"] == []
    with world.ledger.connect() as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute("UPDATE ledger.level SET window_end = now() + interval '1 hour'")
    assert states(world) == ["open"]
    with world.ledger.connect() as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute("UPDATE ledger.level SET window_end = window_start + interval '1 min'")
    with world.ledger.connect() as conn:  # with its triggers: they put the entry on the work list
        conn.execute("SELECT ledger.cut_entries_v1(10)")
    assert states(world) == ["pending"]
    world.pipeline.publishing = True
    world.settled(3)
    assert states(world) == ["settled"]


def test_a_dead_or_doubtful_request_names_its_window(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.pipeline.refuse = "no_meter"
    world.record("acme", new_key(), metric="exports", back="10 min")
    until("the request is dead", lambda: states(world) == ["dead"], 20)
    world.pipeline.refuse, world.pipeline.doubt = None, "absent"
    world.record("acme", new_key(), metric="exports", back="3 hours")
    until("another is in doubt", lambda: states(world) == ["doubtful", "dead"], 20)
    (dead,) = windows(world, "--state", "dead")
    document = shown(world, dead)
    assert [(item["kind"], item["reason"]) for item in document["parked"]] == [("dead", "refused")]
    assert all(foots(window) for window in windows(world))


def test_a_window_that_holds_nothing_but_late_usage_shows_what_waits_for_a_person(
    world: World,
) -> None:
    world.record("acme", "late", metric="exports", back="30 hours")
    until(
        "it is parked",
        lambda: world.value(world.ledger, "SELECT count(*) FROM ledger.parked") == 1,
        20,
    )
    start = world.value(
        world.ledger,
        "SELECT to_char(window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
        " FROM ledger.parked",
    )
    document = world.cli.json("windows_show", "windows", "show", "acme", "exports", start)
    assert document["window"] is None
    assert [item["reason"] for item in document["parked"]] == ["late"]


def test_a_month_is_chosen_in_utc_and_more_windows_than_shown_are_counted(world: World) -> None:
    for back in ("10 min", "70 min", "130 min"):
        world.record("acme", new_key(), metric="exports", back=back)
    until("all are there", lambda: len(windows(world)) == 3, 20)
    document = world.cli.json("windows_list", "windows", "list", "--limit", "1")
    assert (document["total"], len(document["windows"])) == (3, 1)
    assert windows(world, "--month", "2001-12") == []
    months = {window["window_start"][:7] for window in windows(world)}
    listed = [window for month in sorted(months) for window in windows(world, "--month", month)]
    assert listed == windows(world)


def test_what_is_no_month_and_no_window_is_said(world: World) -> None:
    assert world.cli("windows", "list", "--month", "2026-13").code == 2
    assert world.cli("windows", "list", "--month", "9999-12").code == 0
    assert world.cli("windows", "show", "acme", "exports", "yesterday").code == 2
    unknown = world.cli("windows", "show", "acme", "exports", "2026-11-01T00:00:00Z")
    assert (unknown.code, unknown.out) == (1, "")
    assert "the ledger knows no window" in unknown.err
