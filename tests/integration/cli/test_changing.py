"""Commands that change: additions act at once, changes need --yes, done twice says so."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import METERS, World, new_key
from tests.support.waiting import until

pytestmark = pytest.mark.postgres


def logged(world: World, action: str) -> list[tuple[str, str | None]]:
    """Subjects and reasons of what was done, the latest first."""
    document = world.cli.json("ledger_log", "ledger", "log", "--action", action)
    return [(row["subject"], row["why"]) for row in document["log"]]


@pytest.mark.parametrize("tenant", ["", " acme", "acme#1", "a\u202eb", "a\nb", "x" * 201], ids=repr)
def test_a_tenant_that_no_usage_can_have_is_not_mapped(world: World, tenant: str) -> None:
    mapped = world.cli("customers", "map", tenant, "cus_acme")
    assert mapped.code == 2
    assert "is no tenant that usage can be recorded for" in mapped.err


def test_applying_the_same_meters_again_changes_nothing(world: World) -> None:
    applied = world.cli("meters", "apply", str(world.meters))
    assert applied.code == 0
    assert applied.out.startswith("unchanged: all 2 meters")
    assert world.cli.json("meters_apply", "meters", "apply", str(world.meters))["pushed"] == []


def test_new_meters_reach_the_services_database(world: World) -> None:
    known = "SELECT array_agg(name ORDER BY name) FROM metering.metric"
    assert world.value(world.outbox, known) == ["api_calls", "exports"]
    world.meters.write_text(METERS + "[meters.seats]\nscale = 2\n", encoding="utf-8")
    document = world.cli.json("meters_apply", "meters", "apply", str(world.meters))
    assert [line["metric"] for line in document["additions"]] == ["seats"]
    assert document["pushed"] == ["seats"]


def test_changing_a_meter_in_force_needs_yes(world: World) -> None:
    world.meters.write_text(METERS.replace('"minute"', '"hour"'), encoding="utf-8")
    refused = world.cli("meters", "apply", str(world.meters))
    assert refused.code == 2
    assert "plan: add api_calls v2" in refused.err
    command = f"tailrace meters apply {world.meters}"
    assert f'next: `{command} --reason "…" --yes`' in refused.err
    refused = world.cli("meters", "apply", str(world.meters), "--reason", "fewer calls")
    assert f"next: read the plan above, then `{command} --reason 'fewer calls' --yes`" in (
        refused.err
    )
    versions = "SELECT count(*) FROM ledger.meter_version"
    assert world.value(world.ledger, versions) == 2
    agreed = ("--reason", "fewer calls", "--yes")
    assert world.cli("meters", "apply", str(world.meters), *agreed).code == 0
    assert world.value(world.ledger, versions) == 3
    assert logged(world, "add_meter")[0] == ("api_calls v2", "fewer calls")
    again = world.cli("meters", "apply", str(world.meters), *agreed)
    assert again.out.startswith("unchanged: all 2 meters")
    assert world.value(world.ledger, versions) == 3


def test_a_meter_that_the_file_or_stripe_lacks_is_told(world: World) -> None:
    lacking = METERS[: METERS.index("[meters.exports]")] + "[meters.seats]\nscale = 2\n"
    world.meters.write_text(lacking, encoding="utf-8")
    for command in ("check", "apply"):
        told = world.cli("meters", command, str(world.meters))
        assert told.code == 0
        assert "note: exports is in force and not in this file: it stays" in told.err
        assert "note: Stripe has no active meter with the event name seats" in told.err
        assert "event name api_calls" not in told.err


def test_a_wrong_meters_file_is_refused_with_every_problem(world: World) -> None:
    world.meters.write_text("[meters.a]\nscale = 99\nwindow = 'week'\n", encoding="utf-8")
    checked = world.cli.json("meters_check", "meters", "check", str(world.meters))
    assert {problem["path"] for problem in checked["problems"]} == {
        "meters.a.scale",
        "meters.a.window",
    }
    refused = world.cli("meters", "apply", str(world.meters))
    assert refused.code == 78
    assert "meters.a.scale: must be a whole number" in refused.err
    assert "meters.a.window: must be one of" in refused.err


def test_meters_check_shows_what_applying_would_add(world: World) -> None:
    world.meters.write_text(METERS + "[meters.seats]\n", encoding="utf-8")
    checked = world.cli("meters", "check", str(world.meters))
    assert checked.code == 0
    assert "would add seats v1" in checked.out


def test_meters_check_refuses_what_only_the_ledger_knows_and_adds_nothing(world: World) -> None:
    with world.outbox.connect() as conn:
        conn.execute("SELECT metering.put_metric('seats', 0)")
    world.record("acme", new_key(), metric="seats")
    dead = "SELECT count(*) FROM ledger.parked WHERE kind = 'dead' AND metric = 'seats'"
    until("the usage is dead", lambda: world.value(world.ledger, dead) == 1)
    world.meters.write_text(METERS + "[meters.seats]\n[meters.jobs]\n", encoding="utf-8")

    checked = world.cli.json("meters_check", "meters", "check", str(world.meters))
    [problem] = checked["problems"]
    assert problem["path"] == "meters.seats"
    assert "was dead-lettered as unknown" in problem["rule"]
    assert world.cli("meters", "apply", str(world.meters)).code != 0
    versions = "SELECT count(*) FROM ledger.meter_version"
    assert world.value(world.ledger, versions) == 2


def test_a_first_mapping_needs_no_yes_and_releases_what_was_held(world: World) -> None:
    world.record("acme", new_key(), metric="exports")
    assert world.cli("audit").code == 0
    listed = world.cli.json("customers_list", "customers", "list")
    assert listed["unmapped"] == [{"tenant_id": "acme", "entries": 1}]
    mapped = world.cli("customers", "map", "acme", "cus_acme")
    assert mapped.code == 0
    assert "1 entries that waited for it can be sent" in mapped.out
    world.settled(3)
    again = world.cli("customers", "map", "acme", "cus_acme")
    assert (again.code, again.out.startswith("unchanged: acme is mapped to cus_acme")) == (0, True)


def test_a_second_mapping_needs_yes_and_dates_from_the_next_boundary(world: World) -> None:
    assert world.cli("customers", "map", "acme", "cus_a").code == 0
    refused = world.cli("customers", "map", "acme", "cus_b")
    assert refused.code == 2
    assert "plan: acme moves from cus_a to cus_b" in refused.err
    refused = world.cli("customers", "map", "acme", "cus_b", "--yes")
    assert refused.code == 2
    assert 'next: `tailrace customers map acme cus_b --reason "…" --yes`' in refused.err
    agreed = ("--reason", "they merged", "--yes")
    assert world.cli("customers", "map", "acme", "cus_b", *agreed).code == 0
    assert logged(world, "map_customer")[0] == ("acme", "they merged")
    again = world.cli("customers", "map", "acme", "cus_b", *agreed)
    assert again.out.startswith("unchanged: acme is mapped to cus_b")
    assert len(logged(world, "map_customer")) == 2
    listed = world.cli.json("customers_list", "customers", "list")["mappings"]
    assert listed[0]["effective_from"] == "1970-01-01T00:00:00.000000Z"
    assert [line["customer"] for line in listed] == ["cus_a", "cus_b"]
    assert "cus_b" in world.cli("customers", "list").out


def test_a_mapping_carries_its_billing_cycle(world: World) -> None:
    options = ("--anchor", "2026-11-01T00:00:00Z", "--interval", "month", "--grace", "25h")
    assert world.cli("customers", "map", "acme", "cus_a", *options).code == 0
    [line] = world.cli.json("customers_list", "customers", "list")["mappings"]
    assert (line["anchor"], line["interval"], line["grace_s"]) == (
        "2026-11-01T00:00:00.000000Z",
        "month",
        25 * 3600,
    )
    assert line["period_end"].endswith("-01T00:00:00.000000Z")
    assert line["straddling"] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--anchor", "2026-11-01T00:00:00Z"), "--anchor and --interval: one says nothing"),
        (("--from", "tomorrow"), "--from: 'tomorrow' is no instant with a time zone"),
        (("--grace", "soon"), "--grace: 'soon' is not a duration"),
        (("--from", "2026-11-01T00:00:01Z"), "effective_from: not on a boundary"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused_by_field_and_rule(
    world: World, options: tuple[str, ...], said: str
) -> None:
    refused = world.cli("customers", "map", "acme", "cus_a", *options)
    assert refused.code == 2
    assert said in refused.err
    assert "next:" in refused.err


def test_a_command_without_the_rights_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = world.ledger.dsn(world.ledger.login("ledger_reader"))
    monkeypatch.setenv("TAILRACE_LEDGER_DSN", reader)
    refused = world.cli("customers", "map", "acme", "cus_a")
    assert refused.code == 78
    assert "permission denied" in refused.err
    assert "note: TAILRACE_LEDGER_DSN instead of what" in refused.err
