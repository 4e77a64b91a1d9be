"""Commands of capture, against a real outbox with its slot and a Connect that the test plays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli
from tests.support.postgres import Database, PostgresServer
from tests.unit.connectors.fake_connect import FakeConnect, serving

pytestmark = pytest.mark.postgres
NAME = "outbox-sandbox"


@dataclass
class Captured:
    cli: Cli
    connect: FakeConnect
    outbox: Database
    ledger: Database


@pytest.fixture
def captured(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Captured]:
    """Both schemas installed by the command itself, so the slot has its real name."""
    outbox, ledger = postgres_server.create(), postgres_server.create()
    connect = FakeConnect()
    directory = tmp_path / "D"
    directory.mkdir()
    monkeypatch.chdir(tmp_path)
    try:
        with serving(connect) as url:
            facts = {
                "postgres_dsn": outbox.dsn(),
                "ledger_dsn": ledger.dsn(),
                "connect_url": url,
            }
            (directory / "sandbox.json").write_text(json.dumps(facts), encoding="utf-8")
            cli = Cli(directory)
            for schema in ("outbox", "ledger"):
                installed = cli("schema", "install", schema)
                assert installed.code == 0, installed.err
            yield Captured(cli, connect, outbox, ledger)
    finally:
        postgres_server.drop(outbox)
        postgres_server.drop(ledger)


def test_a_source_is_registered_applied_and_guarded(captured: Captured) -> None:
    cli = captured.cli
    unknown = cli("connector", "apply")
    assert unknown.code == 78
    assert "next: register it with `tailrace source register`" in unknown.err
    first = cli("source", "register")
    assert (first.code, "source sandbox: registered" in first.out) == (0, True)
    assert "was registered before" in cli("source", "register").out

    assert cli.json("connector_diff", "connector", "diff")["changes"] != []
    applied = cli("connector", "apply", "--first", "--stopped")
    assert applied.code == 0, applied.err
    assert f"{NAME}: config created" in applied.out
    assert cli.json("connector_diff", "connector", "diff")["changes"] == []
    again = cli("connector", "apply", "--first", "--stopped")
    assert f"{NAME}: config unchanged" in again.out


def test_a_stopped_connector_is_a_finding_and_healing_respects_it(captured: Captured) -> None:
    cli = captured.cli
    cli("source", "register")
    cli("connector", "apply", "--first", "--stopped")
    document = cli.json("connector_status", "connector", "status")
    assert (document["state"], document["running"]) == ("STOPPED", False)
    assert cli("connector", "status").code == 1
    healed = cli("connector", "heal")
    assert healed.code == 78
    assert "somebody stopped it" in healed.err


def started(captured: Captured) -> None:
    """Registered, applied and running, with a position."""
    captured.cli("source", "register")
    assert captured.cli("connector", "apply", "--first").code == 0
    has_delivered(captured)


def test_a_connector_is_stopped_once_and_started_again_where_it_stopped(
    captured: Captured,
) -> None:
    started(captured)
    position = captured.connect.offsets[NAME]
    stopped = captured.cli("connector", "stop")
    assert (stopped.code, stopped.out) == (0, f"{NAME}: connector STOPPED, no tasks\n")
    assert "next: `tailrace connector apply` starts it again, from where it st" in stopped.err
    wrote = list(captured.connect.wrote())
    again = captured.cli("connector", "stop")
    said = f"{NAME}: nothing to do, connector STOPPED, no tasks\n"
    assert (again.code, again.out, again.err) == (0, said, stopped.err)
    assert captured.connect.wrote() == wrote

    applied = captured.cli("connector", "apply")
    assert applied.code == 0, applied.err
    assert f"{NAME}: config unchanged\n{NAME}: connector RUNNING, task 0 RUNNING" in applied.out
    assert captured.connect.offsets[NAME] == position


def test_a_paused_connector_is_stopped_too_for_its_task_holds_the_slot(captured: Captured) -> None:
    started(captured)
    captured.connect.states[NAME] = captured.connect.task_states[NAME] = "PAUSED"
    assert captured.cli("connector", "stop").out == f"{NAME}: connector STOPPED, no tasks\n"


def test_a_connector_that_does_not_stop_is_said_with_what_it_does(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(captured)
    captured.connect.ignores_stop = True
    monkeypatch.setattr("streams.cli.connector.STOP_WITHIN_S", 0.2)
    stuck = captured.cli("connector", "stop")
    assert (stuck.code, stuck.out) == (75, "")
    assert "not stopped within 0 s, it is connector RUNNING, task 0 RUNNING" in stuck.err


def test_where_there_is_no_connector_nothing_is_stopped(captured: Captured) -> None:
    unknown = captured.cli("connector", "stop")
    assert (unknown.code, unknown.out) == (78, "")
    assert "next: apply it with `tailrace connector apply`" in unknown.err


def test_the_status_of_a_stopped_connector_says_that_it_stays_so_and_who_starts_it(
    captured: Captured,
) -> None:
    started(captured)
    assert "stopped it" not in captured.cli("connector", "status").err
    for state in ("STOPPED", "PAUSED"):
        captured.connect.states[NAME] = state
        shown = captured.cli("connector", "status")
        assert shown.code == 1
        assert "a person or the slot guard stopped it, and nothing starts it" in shown.err
        assert "next: `tailrace connector apply`" in shown.err


def test_the_guard_names_what_is_wrong_and_its_repair(captured: Captured) -> None:
    cli = captured.cli
    cli("source", "register")
    cli("connector", "apply", "--first", "--stopped")
    assert cli.json("source_guard", "source", "guard", "--first")["safe"]
    document = cli.json("source_guard", "source", "guard")
    assert not document["safe"]  # nothing was ever delivered, and this is no first start
    shown = cli("source", "guard")
    assert shown.code == 1
    assert shown.out.startswith("refuse: ")


@dataclass
class Gap:
    """A source with a slot that was advanced past one row; an earlier one is sealed."""

    captured: Captured

    @property
    def waiting(self) -> int:
        """Rows that the slot holds."""
        with self.captured.outbox.connect() as conn:
            row = conn.execute(
                "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('metering_outbox', NULL,"
                " NULL, 'proto_version', '1', 'publication_names', 'metering_outbox')"
                " WHERE get_byte(data, 0) = 73"
            ).fetchone()
        assert row is not None
        return int(row[0])


def confirmed(outbox: Database) -> int:
    with outbox.connect() as conn:
        row = conn.execute(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots"
            " WHERE slot_name = 'metering_outbox'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def has_delivered(captured: Captured) -> None:
    """Connect holds a position that is the slot's own."""
    offset = {"lsn_commit": confirmed(captured.outbox)}
    stored = {"partition": {"server": "src.sandbox"}, "offset": offset}
    captured.connect.offsets[NAME] = [stored]


@pytest.fixture
def gap(captured: Captured) -> Gap:
    cli = captured.cli
    assert cli("source", "register").code == 0
    assert cli("connector", "apply", "--first", "--stopped").code == 0
    has_delivered(captured)
    earlier = "received_at - interval '1 hour'"
    with captured.outbox.connect() as conn:
        conn.execute("SELECT metering.record_usage('acme', 'm', 1, 'proven')")
        conn.execute(f"UPDATE metering.usage_key SET received_at = {earlier}".encode())
        conn.execute("SELECT metering.seal(array_agg(received_at)) FROM metering.usage_key")
        conn.execute("SELECT metering.record_usage('acme', 'm', 1, 'in-the-gap')")
        conn.execute(
            "SELECT pg_replication_slot_advance('metering_outbox', pg_current_wal_insert_lsn())"
        )
    return Gap(captured)


def test_a_repair_shows_its_plan_and_touches_nothing_before_somebody_says_yes(gap: Gap) -> None:
    captured = gap.captured
    before, wrote = confirmed(captured.outbox), list(captured.connect.wrote())
    asked = captured.cli("connector", "repair", "--reason", "slot advanced by hand")
    assert asked.code == 2
    assert "refused now: slot-ahead: the slot was confirmed" in asked.err
    for number, step in enumerate(("stop", "delete", "drop", "create", "re-emit", "look"), 1):
        assert f"plan {number}. {step}" in asked.err
    assert "next: read the plan above, then `tailrace connector repair … --yes`" in asked.err
    assert asked.out == ""
    assert confirmed(captured.outbox) == before
    assert captured.connect.wrote() == wrote


def test_a_repair_sends_again_what_no_audit_has_sealed_and_starts_the_connector(gap: Gap) -> None:
    captured = gap.captured
    done = captured.cli("connector", "repair", "--reason", "slot advanced by hand", "--yes")
    assert done.code == 0, done.err
    assert "new slot from " in done.out
    assert "1 rows sent again, received from " in done.out
    assert f"{NAME}: connector RUNNING" in done.out
    assert "next: `tailrace audit`" in done.err
    assert gap.waiting == 1
    with captured.outbox.connect() as conn:
        noted = conn.execute("SELECT reason, usage_rows FROM metering.reemission").fetchall()
    assert noted == [("slot advanced by hand", 1)]


def test_a_repair_is_one_document_for_programs(gap: Gap) -> None:
    repair = ("connector", "repair", "--reason", "by a program", "--yes")
    document = gap.captured.cli.json("connector_repair", *repair)
    assert [finding["rule"] for finding in document["findings"]] == ["slot-ahead"]
    assert (document["done"]["rows"], document["done"]["state"]) == (1, "RUNNING")
    has_delivered(gap.captured)
    again = gap.captured.cli.json("connector_repair", *repair)
    assert (again["findings"], again["done"]) == ([], None)


def test_a_row_that_is_not_committed_yet_is_in_the_range_of_a_repair(gap: Gap) -> None:
    with gap.captured.outbox.connect() as conn:
        conn.execute(
            "INSERT INTO metering.sealed_minute SELECT date_trunc('minute', received_at,"
            " 'UTC'), 'usage', 1, 0 FROM metering.usage_key ON CONFLICT DO NOTHING"
        )
    with gap.captured.outbox.connect(autocommit=False) as writer:
        began = writer.execute("SELECT now()").fetchone()
        assert began is not None
        asked = gap.captured.cli("connector", "repair", "--reason", "while somebody writes")
        writer.rollback()
    shown = began[0].strftime("%Y-%m-%dT%H:%M")
    assert f"re-emit what was received from {shown}" in asked.err


def test_a_repair_refuses_what_workers_know_no_more_before_it_touches_anything(gap: Gap) -> None:
    wrote = list(gap.captured.connect.wrote())
    old = ("--from", "2020-01-01T00:00:00Z", "--yes")
    asked = gap.captured.cli("connector", "repair", "--reason", "all of it", *old)
    assert asked.code == 2
    assert "--from: must not lie before" in asked.err
    assert gap.captured.connect.wrote() == wrote


def test_a_healthy_source_is_not_repaired(captured: Captured) -> None:
    cli = captured.cli
    cli("source", "register")
    cli("connector", "apply", "--first", "--stopped")
    has_delivered(captured)
    done = cli("connector", "repair", "--reason", "to be sure", "--yes")
    assert done.code == 0
    assert "nothing to repair: the guard refuses nothing" in done.out


def test_the_linter_passes_our_own_config_and_names_an_old_plugin(captured: Captured) -> None:
    assert captured.cli.json("connector_lint", "connector", "lint")["findings"] == []
    captured.connect.plugins[0]["version"] = "3.6.0.Final"
    shown = captured.cli("connector", "lint")
    assert shown.code == 1
    assert "3.7.0.Final" in shown.out


def test_an_unknown_connector_and_an_absent_connect_have_their_own_words(
    captured: Captured,
) -> None:
    unknown = captured.cli("connector", "status")
    assert unknown.code == 78
    assert "next: apply it with `tailrace connector apply`" in unknown.err
