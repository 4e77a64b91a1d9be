"""Decisions at the console: the plan first, each once, and by nobody who may not."""

from __future__ import annotations

import re

import pytest

from tests.integration.cli.conftest import World
from tests.integration.console.conftest import SECRET, Browser, Opened
from tests.integration.console.test_pages import item_of, parked, troubled
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

WHY = "the customer confirmed it"


def decided(world: World) -> int:
    return int(world.value(world.ledger, "SELECT count(*) FROM ledger.decision"))


def test_approving_shows_the_plan_and_bills_once(world: World, opened: Opened) -> None:
    troubled(world)
    item = item_of(world, "review")
    browser = opened(SECRET).sign_in("ann")
    page = browser.open(f"/review/{item}")
    assert f'action="/review/{item}/approve"' in page

    plan = browser.send(f"/review/{item}/approve", reason=WHY)
    assert "nothing was changed yet" in plan
    assert f"would approve {item}: +3 units of api_calls for acme" in plan
    assert decided(world) == 0

    done = browser.confirm(f"/review/{item}/approve", reason=WHY)
    assert f"approved {item}: +3 units" in done
    assert decided(world) == 1
    kept = world.value(world.ledger, "SELECT reason FROM ledger.decision")
    assert kept == f"{WHY} (ann, at the console)"
    assert f"{WHY} (ann, at the console)" in browser.open("/log")

    again = browser.send(f"/review/{item}/approve", reason=WHY, plan="0" * 64)
    assert f"unchanged: {item} was approved by" in again
    assert decided(world) == 1


def test_rejecting_is_done_once_and_its_opposite_is_refused_then(
    world: World, opened: Opened
) -> None:
    troubled(world)
    item = item_of(world, "review")
    browser = opened(SECRET).sign_in()
    assert f"rejected {item}" in browser.confirm(f"/review/{item}/reject", reason="a test")
    refused = browser.send(f"/review/{item}/approve", reason=WHY)
    assert browser.status == 409
    assert f"refused {item}: is rejected already" in refused
    assert 'name="plan"' not in refused
    assert decided(world) == 1


def test_redriving_a_cause_sends_its_requests_again(world: World, opened: Opened) -> None:
    troubled(world)
    item = item_of(world, "dead")
    browser = opened(SECRET).sign_in()
    assert "Plan redrive of 1" in browser.open("/dead")
    plan = browser.send("/dead/redrive", cause="no_meter", reason="the meter exists now")
    assert f"would redrive {item}" in plan
    done = browser.confirm("/dead/redrive", cause="no_meter", reason="the meter exists now")
    assert f"redriven {item}" in done
    with world.ledger.connect() as conn:
        until("nothing is dead", lambda: parked(conn, "dead") == 0, deadline_s=20)
    world.settled(6)
    again = browser.send("/dead/redrive", item=str(item), reason="once more")
    assert f"unchanged: {item}" in again


def test_a_plan_that_has_changed_since_is_shown_anew(world: World, opened: Opened) -> None:
    world.record("acme", "late", back="30 hours")
    with world.ledger.connect() as conn:
        until("it is late", lambda: parked(conn, "review") == 1, deadline_s=20)
    address = f"/review/{item_of(world, 'review')}/approve"
    browser = opened(SECRET).sign_in()
    plan = browser.send(address, reason=WHY)
    assert "held until" in plan
    digest = re.search(r'name="plan" value="(\w+)"', plan)
    assert digest is not None
    world.cli("customers", "map", "acme", "cus_acme")
    shown = browser.send(address, reason=WHY, plan=digest[1])
    assert "The plan has changed since you saw it" in shown
    assert "cus_acme is told" in shown
    assert decided(world) == 0


def test_nobody_decides_without_secret_session_token_or_reason(
    world: World, opened: Opened
) -> None:
    troubled(world)
    address = f"/review/{item_of(world, 'review')}/reject"
    fields = {"reason": WHY, "item": "1"}

    reading = opened()
    assert "this console only reads" in reading.send(address, **fields)
    assert reading.status == 403

    stranger = opened(SECRET)
    assert "nobody is signed in" in stranger.send(address, **fields)
    assert stranger.status == 403

    forged = opened(SECRET).sign_in()
    forged.token = opened(SECRET).sign_in("ben").token
    assert "this form is not of your session" in forged.send(address, **fields)
    assert forged.status == 403

    silent = opened(SECRET).sign_in()
    assert "reason: say why" in silent.send(address, item="1", reason="  ")
    assert silent.status == 400

    elsewhere = opened(SECRET).sign_in()
    answer = elsewhere.client.post(
        address,
        data={"token": elsewhere.token, **fields},
        headers={"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
    )
    assert answer.status_code == 403
    assert decided(world) == 0


def test_signing_in_needs_the_secret_and_a_name(opened: Opened) -> None:
    browser = opened(SECRET)
    for fields in ({"actor": "ann", "secret": "wrong"}, {"actor": " ", "secret": SECRET}):
        answer = browser.client.post("/sign-in", data=fields, follow_redirects=False)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    answer = browser.client.post(
        "/sign-in",
        data={"actor": "ann", "secret": SECRET, "back": "//evil.example/"},
        follow_redirects=False,
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    signed: Browser = browser.sign_in()
    assert "ann" in signed.open("/log")
    signed.send("/sign-out")
    assert "Sign in to decide" in signed.open("/log")


def test_one_login_is_one_pair_of_eyes_whoever_is_signed_in(world: World, opened: Opened) -> None:
    world.record("acme", "order-1")
    with world.outbox.connect() as conn:
        conn.execute(
            "SELECT metering.record_correction('acme', 'order-1', 5000, 'svc-1', 'measured', 'eve')"
        )
    with world.ledger.connect() as conn:
        until("it waits", lambda: parked(conn, "review") == 1, deadline_s=20)
    address = f"/review/{item_of(world, 'review')}/approve"
    for actor in ("ann", "ben"):
        assert "agreed to" in opened(SECRET).sign_in(actor).confirm(address, reason=WHY)
    entries = "SELECT count(*) FROM ledger.meter_log WHERE kind = 'correction'"
    assert world.value(world.ledger, entries) == 0
