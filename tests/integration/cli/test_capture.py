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
