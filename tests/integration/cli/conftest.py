"""A stack in small: outbox, ledger, the rules between them, a Stripe stand-in, one directory."""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from jsonschema import Draft202012Validator

from streams.cli.main import run
from streams.core.meter_event import Cell, Origin, freeze_proven
from streams.core.observation import Answer
from tests.integration.cli.pipeline import Pipeline
from tests.support.postgres import Database
from tests.support.waiting import until

SCHEMAS = Path(__file__).parents[3] / "schemas" / "cli"

METERS = """
[meters.api_calls]
window = "minute"
close_delay = "0s"

[meters.exports]
publish = "event"
"""


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.out.strip().splitlines()[-1]


@dataclass
class Cli:
    """Runs commands against one directory, as a shell would."""

    directory: Path

    def __call__(self, *arguments: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([*arguments, "--dir", str(self.directory)])
        return Ran(code, out.getvalue(), err.getvalue())

    def json(self, schema: str, *arguments: str) -> dict[str, Any]:
        """Runs a read with --json; its document must keep its schema."""
        ran = self(*arguments, "--json")
        assert ran.code in {0, 1}, ran.err
        document = msgspec.json.decode(ran.out, type=dict[str, Any])
        rules = msgspec.json.decode((SCHEMAS / f"{schema}.json").read_bytes())
        Draft202012Validator(rules).validate(document)
        return document


@dataclass
class World:
    """The databases, the running pipeline, the command."""

    outbox: Database
    ledger: Database
    pipeline: Pipeline
    cli: Cli
    meters: Path
    keys: list[str] = field(default_factory=list)

    def add_fact(self, name: str, value: object) -> None:
        """One more thing that the sandbox says of itself."""
        file = self.cli.directory / "sandbox.json"
        facts = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        file.write_text(json.dumps({**facts, name: value}), encoding="utf-8")

    def record(
        self, tenant: str, key: str, *, metric: str = "api_calls", back: str = "10 min"
    ) -> str:
        """One usage row in a transaction of its own; its event id."""
        with self.outbox.connect() as conn:
            row = conn.execute(
                "SELECT event_id::text FROM metering.record_usage(%s, %s, 3, %s,"
                " now() - %s::interval)",
                (tenant, metric, key, back),
            ).fetchone()
        assert row is not None
        return str(row[0])

    def record_before(self, tenant: str, key: str, minutes: int) -> None:
        """One usage row as if it had been received so many minutes ago."""
        earlier = f"received_at - interval '{minutes} min'"
        wire = f"metering.wire_time({earlier})"
        with self.outbox.connect(autocommit=False) as conn:
            conn.execute(
                "SELECT metering.record_usage(%s, 'api_calls', 3, %s, now() - interval '1 hour')",
                (tenant, key),
            )
            # This row alone: what the audit itself wrote may stand in the minute before.
            conn.execute(
                f"UPDATE metering.usage_key SET received_at = {earlier}"
                " WHERE event_key = %s".encode(),
                (key,),
            )
            conn.execute(
                f"UPDATE metering.usage_outbox SET received_at = {earlier}, payload ="
                f" jsonb_set(payload, '{{received_at}}', to_jsonb({wire}))"
                " WHERE payload->>'event_key' = %s".encode(),
                (key,),
            )

    def foreign(self, customer: str, event_name: str, units: int, timestamp_s: int) -> None:
        """A meter event that somebody else sends to the same Stripe account."""
        event = freeze_proven(
            Origin("another", False, "another"),
            Cell(customer, event_name, 0, 60_000_000),
            units,
            new_key(),
            timestamp_s,
        )
        answer = self.pipeline.ask(self.pipeline.send(event))
        assert isinstance(answer, Answer)
        assert answer.status == 200

    def settled(self, units: int) -> None:
        """Waits until so many units are at Stripe."""
        with self.ledger.connect() as conn:
            until(f"{units} units settled", lambda: self._settled(conn) == units, deadline_s=20)

    def _settled(self, conn: psycopg.Connection) -> int:
        self.pipeline.check()
        row = conn.execute(
            "SELECT coalesce(sum(units), 0) FROM ledger.meter_event WHERE state = 'recorded'"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def value(self, database: Database, query: str) -> Any:
        with database.connect() as conn:
            row = conn.execute(query.encode()).fetchone()
        return None if row is None else row[0]


@pytest.fixture
def world(
    fresh_database: Callable[..., Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    """Two meters applied, nobody mapped, nothing recorded."""
    outbox, ledger = fresh_database("outbox"), fresh_database("ledger")
    ledger_dsn = ledger.dsn(ledger.login("ledger_service", "ledger_finance"))
    pipeline = Pipeline(outbox.dsn(), ledger_dsn, tmp_path / "stripe")
    pipeline.start()
    directory = tmp_path / "D"
    directory.mkdir()
    facts = {
        "postgres_dsn": outbox.dsn(),
        "ledger_owner_dsn": ledger.dsn(),
        "ledger_dsn": ledger_dsn,
        "stripe_url": pipeline.stripe_url,
        "settings": {"TAILRACE_SOURCE_DSN": outbox.dsn(outbox.login("metering_ops"))},
    }
    (directory / "sandbox.json").write_text(json.dumps(facts), encoding="utf-8")
    meters = tmp_path / "meters.toml"
    meters.write_text(METERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("TAILRACE_DIR", "TAILRACE_STACK"):
        monkeypatch.delenv(name, raising=False)
    seen = World(outbox, ledger, pipeline, Cli(directory), meters)
    try:
        applied = seen.cli("meters", "apply", str(meters))
        assert applied.code == 0, applied.err
        yield seen
    finally:
        pipeline.stop()


def new_key() -> str:
    return f"key-{uuid.uuid4().hex[:12]}"
