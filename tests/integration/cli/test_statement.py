"""A tenant's month foots against the service's registry, down to ids, or says by how much not."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from tests.integration.cli.conftest import Ran, World
from tests.support.waiting import until

pytestmark = pytest.mark.postgres


def month_of(world: World, back: str) -> str:
    """The month, in UTC, of an instant so long ago."""
    query = f"SELECT to_char(now() AT TIME ZONE 'UTC' - interval '{back}', 'YYYY-MM')"
    return str(world.value(world.ledger, query))


def document(world: World, month: str, *options: str) -> dict[str, Any]:
    asked = ("statement", "--tenant", "acme", "--month", month, *options)
    return world.cli.json("statement", *asked)


def shown(world: World, *options: str) -> Ran:
    asked = ("statement", "--tenant", "acme", "--month", month_of(world, "10 min"), *options)
    return world.cli(*asked)


def units(documents: list[dict[str, Any]], name: str) -> int:
    return sum(int(line[name]) for each in documents for line in each["metrics"])


def parked(world: World) -> int:
    return int(world.value(world.ledger, "SELECT count(*) FROM ledger.parked"))


def test_a_month_foots_to_the_unit_and_to_the_event_and_a_lost_row_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    months = sorted({month_of(world, "10 min"), month_of(world, "30 hours")})
    nothing = document(world, months[-1])
    assert (nothing["foots"], nothing["metrics"], nothing["windows"]) == (True, [], [])
    world.cli("customers", "map", "acme", "cus_acme")
    ids = {key: world.record("acme", key) for key in ("one", "two")}
    ids["<b>own</b>"] = world.record("acme", "<b>own</b>", metric="exports")
    ids["late"] = world.record("acme", "late", metric="exports", back="30 hours")
    world.settled(9)
    until("the late one is parked", lambda: parked(world) == 1, 20)
    corrected = world.cli(
        "correct", "--tenant", "acme", "--event-key", "one", "--delta", "-1", "--key", "ticket",
        "--reason", "measured twice", "--yes",
    )  # fmt: skip
    assert corrected.code == 0, corrected.err
    world.settled(8)

    found = [document(world, month, "--down-to", "event") for month in months]
    assert all(each["foots"] for each in found)
    assert {name: units(found, name) for name in ("recorded", "corrected", "billed", "review")} == {
        "recorded": 12, "corrected": -1, "billed": 8, "review": 3,
    }  # fmt: skip
    lines = [line for each in found for line in each["windows"]]
    assert {line["proven"] for line in lines} == {True}
    usage = {each["event_key"]: each for line in lines for each in line["usage"]}
    assert {key: each["event_id"] for key, each in usage.items()} == ids
    assert {key: each["where"] for key, each in usage.items()} == {
        "one": "accepted", "two": "accepted", "<b>own</b>": "accepted", "late": "review",
    }  # fmt: skip
    entries = [entry for line in lines for entry in line["entries"]]
    assert {entry["kind"] for entry in entries} == {"usage", "event", "correction"}
    assert all(entry["identifier"] and entry["settled_at"] for entry in entries)
    # Asked again, nothing has moved.
    assert [document(world, month, "--down-to", "event") for month in months] == found

    the_forms_say_the_same(world, found, ids)
    without_a_registry_the_ledger_is_believed(world, found, monkeypatch)
    a_lost_row_is_named(world)


def the_forms_say_the_same(world: World, found: list[dict[str, Any]], ids: dict[str, str]) -> None:
    page = shown(world, "--format", "html", "--down-to", "event").out
    assert ids["one"] in page
    assert "&lt;b&gt;own&lt;/b&gt;" in page
    assert "<b>own" not in page
    rows = list(csv.DictReader(io.StringIO(shown(world, "--format", "csv").out)))
    month = month_of(world, "10 min")
    own = [each for each in found if each["month"] == month]
    assert sum(int(row["recorded"]) for row in rows) == units(own, "recorded")
    assert {row["foots"] for row in rows} == {"yes"}
    details = shown(world, "--format", "csv", "--down-to", "event").out
    assert {row["id"] for row in csv.DictReader(io.StringIO(details))} >= {ids["one"], ids["two"]}
    text = shown(world).out
    assert text.splitlines()[0].split() == ["acme", month, "cus_acme"]
    assert shown(world, "--json", "--format", "csv").code == 2
    assert shown(world, "--metric", "nothing").out.count("\n") == 3


def without_a_registry_the_ledger_is_believed(
    world: World, found: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv("TAILRACE_SOURCE_DSN", "")
        told = [document(world, each["month"], "--down-to", "event") for each in found]
        assert units(told, "recorded") == units(found, "recorded")
        assert {line["proven"] for each in told for line in each["windows"]} == {None}
        assert not any(line["usage"] for each in told for line in each["windows"])
        assert "without ids of windows that add up" in shown(world).err


def a_lost_row_is_named(world: World) -> None:
    world.pipeline.lose.add("gone")
    gone = world.record("acme", "gone")
    ran = shown(world, "--down-to", "metric")
    assert ran.code == 1
    assert "3 units recorded are nowhere, 1 events recorded are nowhere" in ran.err
    (wrong,) = document(world, month_of(world, "10 min"), "--down-to", "metric")["windows"]
    assert (wrong["difference"], wrong["missing"], wrong["foots"]) == ("3", 1, False)
    assert gone in shown(world, "--format", "csv", "--down-to", "event").out


def test_a_ledger_that_knows_other_services_takes_its_own_word(world: World) -> None:
    world.record("acme", "one", metric="exports")
    until(
        "it is told",
        lambda: world.value(world.ledger, "SELECT count(*) FROM ledger.meter_log") == 1,
        20,
    )
    with world.ledger.connect() as admin:
        admin.execute(
            "INSERT INTO ledger.cell SELECT 'another', minute, verdict_class, log_id, partition,"
            " birth_offset, count, digest, updated_at FROM ledger.cell LIMIT 1"
        )
    found = document(world, month_of(world, "10 min"))
    assert (found["recorded_by"], found["foots"]) == (None, True)
    assert found["registry_unread"] == "the ledger knows usage of another, too"


def test_what_is_no_month_is_said(world: World) -> None:
    ran = world.cli("statement", "--tenant", "acme", "--month", "2026-13")
    assert (ran.code, "--month: '2026-13' is no month" in ran.err) == (2, True)
