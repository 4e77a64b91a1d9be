"""Every page: with data, with none, and with a broken backend."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from tests.integration.cli.conftest import World
from tests.integration.console.conftest import PAGES, Opened, browser_of
from tests.support.postgres import Database
from tests.support.waiting import until

pytestmark = pytest.mark.postgres


def troubled(world: World) -> None:
    """Something settled, something late, something dead, something of a tenant without customer."""
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", "fine", metric="exports")
    world.settled(3)
    world.pipeline.refuse = "no_meter"
    world.record("acme", "refused", metric="exports")
    world.record("acme", "late", back="30 hours")
    world.record("globex", "unmapped", metric="exports")
    with world.ledger.connect() as conn:
        until("one is dead", lambda: parked(conn, "dead") == 1, deadline_s=20)
        until("one is late", lambda: parked(conn, "review") == 1, deadline_s=20)
    # And the one without a customer is an entry: two that look one after the other see the same.
    until("the third to wait", lambda: "unmapped" in remarks(world), deadline_s=20)
    world.pipeline.refuse = None


def remarks(world: World) -> set[str]:
    """What `tailrace status` says that needs somebody, by name."""
    return {remark["name"] for remark in world.cli.json("status", "status")["remarks"]}


def parked(conn: psycopg.Connection, kind: str) -> int:
    row = conn.execute(
        "SELECT count(*) FROM ledger.parked WHERE state = 'open' AND kind = %s", (kind,)
    ).fetchone()
    assert row is not None
    return int(row[0])


def item_of(world: World, kind: str) -> int:
    found = world.value(
        world.ledger, f"SELECT max(parked_id) FROM ledger.parked WHERE kind = '{kind}'"
    )
    return int(found)


def test_page_1_says_whether_money_is_at_risk_and_what_to_type(
    world: World, opened: Opened
) -> None:
    troubled(world)
    browser = opened()
    page = browser.open("/")
    assert browser.status == 200
    assert '<span class="mode"' in page
    assert ">TEST</span>" in page
    assert "Money at risk?" in page
    listed = world.cli.json("status", "status")
    assert listed["money_at_risk"]["text"] in page
    assert listed["remarks"], "the state was meant to need somebody"
    for remark in listed["remarks"]:
        assert remark["text"] in page
        assert f">{remark['command']}</code>" in page
    for figure in (
        "oldest unsettled", "pending requests", "published/s", "retries/s", "dead letters",
        "review queue", "last closed window", "proven up to", "duplicates dropped", "slot WAL",
    ):  # fmt: skip
        assert f"<h2>{figure}</h2>" in page


def test_a_live_key_is_told_from_a_test_key(world: World, opened: Opened) -> None:
    world.add_fact(
        "settings",
        {"TAILRACE_STRIPE_API_KEY": "sk_live_x", "TAILRACE_LIVE": "1"},
    )
    page = opened().open("/log")
    assert 'class="mode-live"' in page
    assert "<title>LIVE" in page


def test_the_curves_are_drawn_of_the_last_hour(world: World, opened: Opened) -> None:
    troubled(world)
    data = msgspec.json.decode(opened().open("/curves"), type=dict[str, Any])
    assert len(data["latency"]["minutes_s"]) == len(data["latency"]["half_s"]) >= 1
    assert len(data["ages"]["labels"]) == len(data["ages"]["counts"]) == 7
    assert "TAILRACE_KAFKA_BOOTSTRAP" in data["lag"]["unread"]


def test_one_events_journey_goes_from_its_row_to_stripes_request_id(
    world: World, opened: Opened
) -> None:
    troubled(world)
    page = opened().open("/trace?tenant=acme&key=fine")
    for step in ("outbox row", "verdict", "entry", "meter event", "attempt", "settlement"):
        assert f"<b>{step}</b>" in page
    assert "<code>req_pipeline</code>" in page


def test_a_key_that_nobody_knows_is_said_so(opened: Opened) -> None:
    browser = opened()
    assert "neither" in browser.open("/trace?tenant=acme&key=never").lower()
    assert browser.status == 404


def test_dead_letters_stand_under_their_cause_with_the_command(
    world: World, opened: Opened
) -> None:
    troubled(world)
    browser = opened()
    page = browser.open("/dead")
    assert "<td>no_meter</td>" in page
    assert 'tailrace dead redrive --cause no_meter --reason "…"' in page
    assert '<form method="post"' not in page
    shown = browser.open(f"/dead/{item_of(world, 'dead')}")
    assert "no_meter" in shown
    assert "What each decision would do" in shown


def test_review_shows_when_it_occurred_and_when_it_was_received(
    world: World, opened: Opened
) -> None:
    troubled(world)
    browser = opened()
    page = browser.open("/review")
    assert "Recorded by sandbox" in page
    assert "30.0 h later" in page
    assert "30.0 h later" in browser.open(f"/review/{item_of(world, 'review')}")


def test_a_tenants_statement_foots_and_names_what_is_not_in_it(
    world: World, opened: Opened
) -> None:
    troubled(world)
    browser = opened()
    page = browser.open("/statement?tenant=acme&from=2020-01-01")
    assert "<td>exports</td>" in page
    assert "NO: tailrace audit" not in page
    assert '<a href="/review?tenant=acme">review</a>' in page
    assert "globex" in browser.open("/windows")


def test_the_log_names_who_did_what(world: World, opened: Opened) -> None:
    troubled(world)
    item = item_of(world, "review")
    world.cli("review", "reject", str(item), "--reason", "a test run", "--yes")
    page = opened().open("/log")
    assert f"<td>item {item}</td>" in page
    assert "<td>a test run</td>" in page


def test_every_page_stands_with_nothing_to_show(opened: Opened) -> None:
    browser = opened()
    for address in PAGES:
        page = browser.open(address)
        assert browser.status == (404 if "key=" in address else 200), page


def test_a_login_that_only_reads_sees_every_page(world: World, opened: Opened) -> None:
    troubled(world)
    world.cli("review", "reject", str(item_of(world, "review")), "--reason", "a test", "--yes")
    assert world.cli("audit").code in {0, 1}
    items = [f"/{kind}/{item_of(world, kind)}" for kind in ("dead", "review")]
    pages = [*PAGES, *items, "/trace?tenant=acme&key=fine", "/trace?tenant=globex&key=unmapped"]
    browser = opened()
    seen = {page: (browser.open(page).count('class="unread"'), browser.status) for page in pages}
    world.add_fact("ledger_dsn", world.ledger.dsn(world.ledger.login("ledger_reader")))
    reader = opened()
    for page in pages:
        text = reader.open(page)
        assert (text.count('class="unread"'), reader.status) == seen[page], text
        for refused in ("permission denied", "may do this", "not a member", "must be owner"):
            assert refused not in text, page


@pytest.mark.parametrize("address", [page for page in PAGES if page not in {"/sign-in", "/trace"}])
def test_a_page_without_its_ledger_says_what_why_and_what_to_type(
    tmp_path: Path, address: str
) -> None:
    facts = {"ledger_dsn": "postgresql://nobody:hidden@127.0.0.1:1/ledger"}
    (tmp_path / "sandbox.json").write_text(json.dumps(facts), encoding="utf-8")
    browser = browser_of(tmp_path)
    page = browser.open(address)
    assert browser.status == 503
    assert "the ledger: PostgreSQL is not reachable" in page
    assert "tailrace sandbox status" in page
    assert "Nothing was changed" in page
    assert "hidden" not in page
    assert "Traceback" not in page


@pytest.mark.parametrize("address", PAGES)
def test_a_page_of_a_sandbox_that_went_away_says_how_to_start_it(
    tmp_path: Path, address: str
) -> None:
    (tmp_path / "sandbox.json").write_text("{", encoding="utf-8")
    browser = browser_of(tmp_path)
    page = browser.open(address)
    assert browser.status == 502
    assert "sandbox.json: cannot be read" in page
    assert "tailrace sandbox down" in page
    assert ">UNKNOWN</span>" in page


def test_parts_that_are_away_are_unknown_and_the_rest_of_page_1_stands(
    world: World, opened: Opened
) -> None:
    facts = {"TAILRACE_SOURCE_DSN": "postgresql://nobody@127.0.0.1:1/outbox"}
    world.add_fact("settings", facts)
    browser = opened()
    page = browser.open("/")
    assert browser.status == 200
    assert "the service's database: PostgreSQL is not reachable" in page
    assert '<h2>slot WAL</h2><p class="value">?</p>' in page


def test_a_ledger_without_its_schema_is_named(
    fresh_database: Callable[..., Database], tmp_path: Path
) -> None:
    facts = {"ledger_dsn": fresh_database().dsn()}
    (tmp_path / "sandbox.json").write_text(json.dumps(facts), encoding="utf-8")
    browser = browser_of(tmp_path)
    page = browser.open("/windows")
    assert browser.status == 502
    assert "tailrace schema check" in page


def test_a_page_nobody_has_is_no_traceback(opened: Opened) -> None:
    browser = opened()
    assert "there is no such page" in browser.open("/nothing-here")
    assert browser.status == 404
    assert "is no review item" in browser.open("/review/4711")
    assert browser.status == 400
