"""The webhook receiver in the stack: beside the stand-in, and only there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox import secrets, stack
from sandbox.paths import Paths
from sandbox.ports import Ports
from sandbox.stack import Stack
from sandbox.stripe_sandbox.settings import Settings
from sandbox.supervisor import STOP_ORDER
from sandbox.wanted import Wanted

PORTS = Ports(1, 2, 3, 4, 5, 6, 7)


def built(folder: Path, wanted: Wanted) -> Stack:
    machine = SimpleNamespace(
        java=Path("java"), jars=SimpleNamespace(kafka=Path(), plugins=Path()), binaries=None,
        account=None,
    )  # fmt: skip
    return stack.build(Paths(folder), wanted, cast(Any, machine), PORTS, secrets.same("x"), {})


def test_the_stand_in_delivers_where_the_receiver_listens(tmp_path: Path) -> None:
    whole = built(tmp_path, Wanted())
    parts = {part.name: part for part in whole.parts()}

    told = parts["stripe"].command().argv
    url = told[told.index("--webhook-url") + 1]

    assert url == "http://127.0.0.1:6/stripe/events" == whole.webhook.url
    env = parts["webhook"].command().env
    assert (env["TAILRACE_WEBHOOK_PORT"], env["TAILRACE_METRICS_PORT"]) == ("6", "7")
    assert env["TAILRACE_STRIPE_WEBHOOK_SECRET"] == Settings().webhook_secret
    assert env["TAILRACE_STRIPE_API_BASE"] == whole.stripe.url
    assert set(parts["webhook"].after) == {"stripe", "ledger"}
    facts = whole.render({}, "ready", {})
    assert facts["webhook_url"] == url
    assert "webhook" in facts["pids"]


def test_another_stripe_is_not_told_of_an_address_that_it_cannot_reach(tmp_path: Path) -> None:
    whole = built(tmp_path, Wanted(stripe="https://api.stripe.com", stripe_key="sk_test_x"))
    assert {"stripe", "webhook"}.isdisjoint(part.name for part in whole.parts())
    facts = whole.render({}, "ready", {})
    assert facts["webhook_url"] is None
    assert (facts["pids"]["stripe"], facts["pids"]["webhook"]) == (None, None)


@pytest.mark.parametrize("before", ["connect", "kafka", "postgres", "stripe"])
def test_the_receiver_stops_before_what_it_asks(before: str) -> None:
    assert STOP_ORDER.index("webhook") < STOP_ORDER.index(before)
