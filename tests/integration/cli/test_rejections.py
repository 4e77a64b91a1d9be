"""`tailrace webhook` and `tailrace rejections` on a real ledger, with the stand-in telling."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from sandbox.stripe_sandbox.service import Service
from tests.integration.cli.conftest import World
from tests.support.waiting import until

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parents[3]
SECRET = "whsec_command"


@contextmanager
def webhook(world: World, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The command as an operator runs it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "streams.cli.main", "webhook", "--dir", str(world.cli.directory)],
        cwd=ROOT,
        env={
            **os.environ,
            "TAILRACE_STRIPE_WEBHOOK_SECRET": SECRET,
            "TAILRACE_WEBHOOK_PORT": "0",
            "TAILRACE_METRICS_PORT": "0",
            **environment,
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("webhook ready: "), line
    return line.split()[2]


@pytest.fixture
def stripe(world: World) -> Service:
    """The stand-in; it tells at once."""
    service = world.pipeline.service
    assert service is not None
    service.engine.settings.report_lag_s = -10
    service.engine.settings.webhook_secret = SECRET
    return service


def reject(world: World, count: int = 1) -> None:
    fault = {"kind": "reject", "count": count, "code": "archived_meter"}
    requests.post(f"{world.pipeline.stripe_url}/_sandbox/faults", json=fault, timeout=5)


def dead(world: World) -> Any:
    return world.value(world.ledger, "SELECT count(*) FROM ledger.meter_event WHERE state = 'dead'")


def test_a_rejected_meter_event_is_told_listed_redriven_and_counted_once(
    world: World, stripe: Service
) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    with webhook(world) as process:
        stripe.engine.settings.webhook_url = address(process)
        reject(world)
        world.record("acme", "export-1", metric="exports")
        until("the rejected one is dead", lambda: dead(world) == 1, deadline_s=20)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0

    document = world.cli.json("rejections_list", "rejections", "list")
    [report] = document["reports"]
    assert (report["event_name"], report["error_count"], report["meter_events"]) == (
        "exports", 1, 1,
    )  # fmt: skip
    assert report["codes"] == {"archived_meter": 1}
    assert report["noted_by"] == "webhook"
    shown = world.cli("rejections", "list")
    assert report["event_id"] in shown.out
    assert "1 of 1 reports, 0 of 0 cells in doubt, 0 of 0 requests unknown" in shown.err
    [item] = world.cli.json("parked_list", "dead", "list")["items"]
    assert (item["reason"], item["units"]) == ("refused", "3")
    assert [one["code"] for one in item["detail"]["rejections"]] == ["archived_meter"]

    world.value(world.ledger, f"SELECT ledger.redrive({item['item']}, 'the meter is back')")
    world.settled(3)
    counted = [event for event in stripe.engine.state.recorded if stripe.engine.state.counts(event)]
    assert [(event.value, event.customer) for event in counted] == [("3", "cus_acme")]
    assert world.cli("audit").code == 0


def test_a_sweep_finds_what_no_webhook_told_and_marks_what_nobody_named(
    world: World, stripe: Service
) -> None:
    stripe.engine.settings.samples_max = 1
    world.cli("customers", "map", "acme", "cus_acme")
    reject(world, 3)
    for number in range(4):
        world.record("acme", f"export-{number}", metric="exports", back=f"{10 + number} min")
    until("all sent", lambda: len(stripe.engine.state.recorded) == 4, deadline_s=20)
    until("all reported", lambda: len(stripe.engine.state.unreported) == 0, deadline_s=20)

    swept = world.cli("rejections", "sweep")

    assert swept.code == 0, swept.err
    named = len(stripe.engine.state.reports)
    assert swept.out == f"noted {named} reports; {named} meter events rejected\n"
    assert "tailrace dead list" in swept.err
    document = world.cli.json("rejections_list", "rejections", "list")
    assert document["swept_until"] is not None
    assert {report["noted_by"] for report in document["reports"]} == {"sweep"}
    unnamed = sum(report["unnamed"] for report in document["reports"])
    assert named + unnamed == 3
    marked = {doubt["window_start"] for doubt in document["doubts"]}
    assert len(marked) >= unnamed
    again = world.cli("rejections", "sweep")
    assert again.out == "noted 0 reports; 0 meter events rejected\n"


def test_a_request_that_the_ledger_does_not_know_is_listed(world: World) -> None:
    with world.ledger.connect() as admin:
        admin.execute(
            "INSERT INTO ledger.error_report (event_id, event_type, error_count, unnamed, body,"
            " noted_by) VALUES ('evt_1', 'report', 2, 0, '{}', 'sweep')"
        )
        admin.execute(
            "INSERT INTO ledger.rejection (event_id, idempotency_key, code, identifier)"
            " VALUES ('evt_1', 'm1:lost.g1', 'no_meter', 'm1:lost'),"
            " ('evt_1', 'foreign-7', 'no_meter', 'foreign-7')"
        )
    [unknown] = world.cli.json("rejections_list", "rejections", "list")["unknown"]
    assert (unknown["event_id"], unknown["request"], unknown["code"]) == (
        "evt_1", "m1:lost.g1", "no_meter",
    )  # fmt: skip
    shown = world.cli("rejections", "list")
    assert "m1:lost.g1" in shown.out
    assert "1 of 1 requests unknown" in shown.err


def test_without_a_secret_the_webhook_names_it(world: World) -> None:
    ran = world.cli("webhook")
    assert ran.code == 78
    assert "TAILRACE_STRIPE_WEBHOOK_SECRET" in ran.err


def test_a_port_that_is_taken_is_named(world: World) -> None:
    with webhook(world) as process:
        port = address(process).split(":")[2].split("/")[0]
        with webhook(world, TAILRACE_WEBHOOK_PORT=port) as other:
            assert other.wait(20) == 78


def test_a_sweep_without_stripe_is_unavailable(world: World) -> None:
    world.pipeline.publishing = False
    fault = {"kind": "outage", "match": {"path": "/"}}
    requests.post(f"{world.pipeline.stripe_url}/_sandbox/faults", json=fault, timeout=5)
    ran = world.cli("rejections", "sweep")
    assert ran.code == 69
    assert "error reports" in ran.err
