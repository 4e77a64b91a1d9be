"""Whatever changes money leaves a row: who, what, and why; nobody can take it away again."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.integration.cli.conftest import World, new_key
from tests.support.waiting import until

pytestmark = pytest.mark.postgres


def logged(world: World, *options: str) -> list[dict[str, Any]]:
    return list(world.cli.json("ledger_log", "ledger", "log", *options)["log"])


def parked(world: World, count: int) -> None:
    until(
        f"{count} items are parked",
        lambda: world.value(world.ledger, "SELECT count(*) FROM ledger.parked") == count,
        20,
    )


def did(world: World, *words: str) -> None:
    done = world.cli(*words)
    assert done.code == 0, done.err


def test_every_decision_is_in_the_log_with_its_actor_and_reason(world: World) -> None:
    did(world, "customers", "map", "acme", "cus_acme")
    world.pipeline.refuse = "no_meter"
    key = new_key()
    world.record("acme", key, metric="exports")
    parked(world, 1)
    world.pipeline.refuse = None
    world.record("acme", "late-1", metric="exports", back="30 hours")
    parked(world, 2)
    world.record("acme", "late-2", metric="exports", back="31 hours")
    parked(world, 3)
    did(world, "dead", "redrive", "1", "--reason", "the meter exists now", "--yes")
    did(world, "review", "approve", "2", "--reason", "the customer confirmed", "--yes")
    did(world, "review", "reject", "3", "--reason", "a test", "--yes")
    target = ("--tenant", "acme", "--event-key", key, "--delta", "-1", "--key", "t-1")
    did(world, "correct", *target, "--reason", "measured twice", "--yes")
    did(world, "pause", "--all", "--reason", "deploy", "--yes")
    did(world, "resume", "--all", "--reason", "done", "--yes")

    login = "login_ledger_service_ledger_finance"
    told = [(row["action"], row["why"]) for row in logged(world, "--actor", login)]
    assert told == [
        ("resume", "done"),
        ("pause", "deploy"),
        ("correct", "measured twice"),
        ("reject", "a test"),
        ("approve", "the customer confirmed"),
        ("redrive", "the meter exists now"),
        ("map_customer", None),
        ("add_meter", None),
        ("add_meter", None),
    ]
    (correction,) = logged(world, "--action", "correct")
    assert correction["subject"] == f"entry {correction['detail']['entry']}"
    assert logged(world, "--from", "2200-01-01T00:00:00Z") == []
    shown = world.cli("ledger", "log", "--limit", "2")
    assert [line.split()[3] for line in shown.out.splitlines()[1:]] == ["resume", "pause"]
    assert shown.err == "2 of 9\n"


def test_done_twice_it_is_in_the_log_once(world: World) -> None:
    world.record("acme", "late", metric="exports", back="30 hours")
    parked(world, 1)
    for _ in range(2):
        did(world, "review", "reject", "1", "--reason", "a test", "--yes")
    assert len(logged(world, "--action", "reject")) == 1


def test_nobody_changes_the_log(world: World) -> None:
    for statement in ("UPDATE ledger.audit_log SET actor = 'x'", "DELETE FROM ledger.audit_log"):
        with world.ledger.connect() as conn, pytest.raises(psycopg.errors.RestrictViolation):
            conn.execute(statement.encode())
