"""What an audit must find to the row, and what must never alarm it."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.integration.cli.conftest import World, new_key
from tests.integration.cli.test_adoption import copy_database
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

EQUAL = "lost 0 · double 0"


def receive_at(conn: psycopg.Connection, key: str, instant: str) -> None:
    """Dates a row of this very transaction as the source's clock would have."""
    conn.execute(
        f"UPDATE metering.usage_key SET received_at = {instant} WHERE event_key = %s".encode(),
        (key,),
    )
    conn.execute(
        f"UPDATE metering.usage_outbox SET received_at = {instant}, payload = jsonb_set(payload,"
        f" '{{received_at}}', to_jsonb(metering.wire_time({instant})))"
        " WHERE payload ->> 'event_key' = %s".encode(),
        (key,),
    )


def named(world: World, *options: str) -> list[str]:
    """Event keys that the audit names, exactly."""
    keys = []
    for finding in world.cli.json("audit", "audit", *options)["findings"]:
        assert finding["exact"], finding
        keys += [identity["event_key"] for identity in finding["identities"]]
    return keys


def test_seven_rows_that_a_moved_slot_skipped_are_listed_exactly(world: World) -> None:
    """A slot that moved past rows skips what was committed in a row, whosever it is."""
    keys = [f"row-{n}" for n in range(40)]
    skipped = keys[20:27]
    world.pipeline.lose.update(skipped)
    for n, key in enumerate(keys):
        world.record(f"tenant-{n % 3}", key)
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 7 · double 0"), audit
    assert sorted(named(world)) == sorted(skipped)
    assert world.cli("audit").last == "lost 7 · double 0", "and found again"


def test_three_entries_missing_from_a_restored_ledger_are_listed_exactly(
    world: World, fresh_database: Callable[..., Database]
) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    for _ in range(5):
        world.record("acme", new_key(), metric="exports")
    world.settled(15)
    backup = fresh_database()
    copy_database(world, world.ledger, backup.name)
    missing = [new_key() for _ in range(3)]
    for key in missing:
        world.record("acme", key, metric="exports")
    world.settled(24)
    # The workers' memory is gone as well: nobody but the audit can know.
    world.pipeline.forget()
    copy_database(world, backup, world.ledger.name)
    audit = world.cli("audit", "--no-stripe")
    assert (audit.code, audit.last) == (1, "lost 3 · double 0"), audit
    assert sorted(named(world, "--no-stripe")) == sorted(missing)
    with_stripe = world.cli("audit")
    assert "settled 15, Stripe says 24" in with_stripe.out


def test_two_foreign_meter_events_are_found_in_their_hours(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    for back in ("10 min", "3 hours"):
        world.record("acme", new_key(), metric="exports", back=back)
    world.settled(6)
    assert world.cli("audit").last == EQUAL
    dates = world.value(
        world.ledger, "SELECT array_agg(timestamp_s ORDER BY 1) FROM ledger.meter_event"
    )
    for number, timestamp_s in enumerate(dates):
        world.foreign("cus_acme", "exports", 5 + number, int(timestamp_s))
    document = world.cli.json("audit", "audit")
    assert (document["lost"], document["double"]) == (0, 2)
    texts = sorted(finding["text"] for finding in document["findings"])
    assert "settled 3, Stripe says 8" in texts[0] or "settled 3, Stripe says 9" in texts[0]
    assert all("does anyone else write there?" in text for text in texts)
    assert len(texts) == 2


def test_foreign_usage_in_an_hour_of_its_own_is_found(world: World) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    world.record("acme", new_key(), metric="exports")
    world.settled(3)
    dated = world.value(world.ledger, "SELECT timestamp_s FROM ledger.meter_event")
    world.foreign("cus_acme", "exports", 7, int(dated) - 5 * 3600)
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (1, "lost 0 · double 1")
    assert "settled 0, Stripe says 7" in audit.out


def test_verdicts_of_a_source_that_nobody_registered_are_a_finding(world: World) -> None:
    world.record("acme", new_key())
    assert world.cli("audit").code == 0
    with world.ledger.connect() as admin:
        admin.execute("UPDATE ledger.cell SET source = 'staging' WHERE verdict_class <> 'canary'")
        admin.execute(
            "INSERT INTO ledger.source (source, system_identifier, timeline)"
            " VALUES ('registered', '7', 1)"
        )
    audit = world.cli("audit")
    assert "source staging: 1 identities were judged" in audit.out
    with world.ledger.connect() as admin:
        admin.execute("UPDATE ledger.cell SET source = 'registered' WHERE source = 'staging'")
    assert "identities were judged" not in world.cli("audit").out


def test_a_transaction_held_open_for_minutes_alarms_nobody(world: World) -> None:
    """Its rows were received minutes before it commits; nothing of the kind is ever lost."""
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 1, 'held', now())")
        receive_at(conn, "held", "now() - interval '9 min'")
        world.record("acme", new_key())
        for _ in range(2):
            audit = world.cli("audit")
            assert (audit.code, audit.last) == (0, EQUAL), audit
        conn.commit()
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, EQUAL), audit


@pytest.mark.parametrize("step", ["-10 min", "10 min"])
def test_a_clock_step_of_the_source_alarms_nobody(world: World, step: str) -> None:
    world.record("acme", new_key())
    assert world.cli("audit").last == EQUAL
    with world.outbox.connect(autocommit=False) as conn:
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 1, 'stepped', now())")
        receive_at(conn, "stepped", f"now() + interval '{step}'")
    world.record("acme", new_key())
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, EQUAL), audit


def test_a_stopped_connector_is_no_loss_and_the_audit_proves_it_afterwards(world: World) -> None:
    world.pipeline.capturing = False
    for _ in range(5):
        world.record("acme", new_key())
    stopped = world.cli("audit", "--wait-s", "1")
    assert stopped.code == 75
    assert "nothing can be judged yet" in stopped.err
    assert "lost" not in stopped.out
    world.pipeline.capturing = True
    audit = world.cli("audit")
    assert (audit.code, audit.last) == (0, EQUAL), audit
    figures = world.cli.json("status", "status")["audits"]
    assert [(each["lost"], each["double"]) for each in figures] == [(0, 0)]


def test_the_metric_says_how_old_the_last_audit_is_and_what_it_found(world: World) -> None:
    world.pipeline.lose.add("swallowed")
    world.record("acme", "swallowed")
    assert world.cli("audit").code == 1
    (note,) = world.pipeline.ask(world.pipeline.last_audits())
    assert (note.source, note.lost, note.double, note.findings) == ("sandbox", 1, 0, 1)
    assert 0 <= note.age_us < 60_000_000
