"""`tailrace audit` over real databases: quiet about what is in flight, exact about what is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.cli.conftest import World, new_key

pytestmark = pytest.mark.postgres


def test_a_stack_in_order_is_proven_and_its_minutes_are_sealed(world: World) -> None:
    for tenant in ("acme", "globex"):
        assert world.cli("customers", "map", tenant, f"cus_{tenant}").code == 0
        for _ in range(3):
            world.record(tenant, new_key())
        world.record(tenant, new_key(), metric="exports")
    world.record("acme", "late", back="30 hours")
    world.settled(24)

    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit
    document = world.cli.json("audit", "audit")
    assert document["registry"]["identities"] == 9
    assert document["verdicts"]["accepted"] == 8
    assert document["verdicts"]["review"] == 1
    assert document["stripe"]["equal"] >= 2
    assert document["ok"]


def test_minutes_gone_by_are_sealed_in_both_databases_once(world: World) -> None:
    world.record_before("acme", new_key(), 7)
    assert world.cli("audit").code == 0
    assert world.value(world.ledger, "SELECT count(*) FROM ledger.sealed_minute") == 1
    assert world.value(world.outbox, "SELECT sum(count) FROM metering.sealed_minute") == 1
    again = world.cli.json("audit", "audit")
    assert (again["registry"]["sealed_before"], again["registry"]["sealed_now"]) == (1, 0)


def test_a_sealed_minute_that_changed_is_a_finding(world: World) -> None:
    world.record_before("acme", new_key(), 7)
    assert world.cli("audit").code == 0
    with world.outbox.connect() as conn:
        conn.execute("DELETE FROM metering.usage_key")
    audit = world.cli("audit")
    assert audit.code == 1
    assert "seal: sealed minute" in audit.out
    assert audit.last == "lost 0 · double 1"


def test_a_row_that_never_arrived_is_named(world: World) -> None:
    world.pipeline.lose.add("swallowed")
    world.record("acme", new_key())
    world.record("acme", "swallowed")
    world.record("acme", new_key())

    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 1 · double 0"), audit
    assert "registry 3, verdicts 2: acme/swallowed" in audit.out
    [finding] = world.cli.json("audit", "audit")["findings"]
    assert finding["exact"]
    assert [i["event_key"] for i in finding["identities"]] == ["swallowed"]


def test_a_verdict_on_something_nobody_recorded_is_a_phantom(world: World) -> None:
    world.pipeline.invent.add("twice")
    world.record("acme", "twice")
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 0 · double 1"), audit


def test_an_open_transaction_raises_no_alarm_and_is_named_by_nothing_until_it_commits(
    world: World,
) -> None:
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 1, 'open', now())")
        audit = world.cli("audit")
        assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit
        conn.commit()
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, "lost 0 · double 0"), audit


def test_a_minute_that_could_still_change_is_never_sealed(world: World) -> None:
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute("SELECT 1")
        world.record("acme", new_key())
        assert world.cli("audit").code == 0
        sealed = world.value(world.ledger, "SELECT count(*) FROM ledger.sealed_minute")
        assert sealed == 0
        conn.rollback()


def test_usage_at_stripe_that_the_ledger_did_not_settle_is_double(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", new_key())
    world.settled(3)
    foreign = "UPDATE ledger.meter_event SET state = 'superseded' WHERE state = 'recorded'"
    with world.ledger.connect() as conn:
        conn.execute("ALTER TABLE ledger.meter_event DISABLE TRIGGER frozen")
        conn.execute(foreign.replace("'superseded'", "'pending', settled_at = NULL"))
        conn.execute("UPDATE ledger.meter_event SET first_attempt_at = NULL")
    world.pipeline.publishing = False
    audit = world.cli("audit")
    assert audit.code == 1
    assert "settled 0, Stripe says 3" in audit.out
    assert audit.last == "lost 0 · double 1"


def test_without_the_path_nothing_is_judged(world: World) -> None:
    world.record("acme", new_key())
    world.pipeline.stop()
    audit = world.cli("audit", "--wait-s", "1")
    assert audit.code == 75
    assert "canaries of partitions 0, 1, 2" in audit.err
    assert "nothing can be judged yet" in audit.err
    assert "next: see `tailrace connector status`" in audit.err


def test_writers_at_full_speed_during_the_audit_are_never_called_lost(world: World) -> None:
    stop = threading.Event()

    def write() -> int:
        written = 0
        with world.outbox.connect() as conn:
            while not stop.is_set():
                conn.execute(
                    "SELECT metering.record_usage('acme', 'api_calls', 1, %s)", (new_key(),)
                )
                written += 1
        return written

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            audits = [world.cli.json("audit", "audit") for _ in range(3)]
        finally:
            stop.set()
        assert writer.result() > 0
    assert [(a["lost"], a["double"], a["ok"]) for a in audits] == [(0, 0, True)] * 3
    assert any(a["registry"]["minutes_open"] for a in audits)
    settled = world.cli.json("audit", "audit")
    assert (settled["ok"], settled["registry"]["minutes_open"]) == (True, 0)
    assert settled["registry"]["identities"] == writer.result()
