"""`tailrace doctor`: faults are planted in a real installation, named, mended by its own words."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from streams.adapters.clock import SystemClock
from streams.cli.checkup import machine
from streams.cli.checkup.patient import Patient
from streams.topics import TopicFinding
from tests.integration.cli.conftest import METERS, Cli
from tests.integration.cli.pipeline import Pipeline
from tests.integration.cli.test_capture import NAME, has_delivered
from tests.support.postgres import Database, PostgresServer
from tests.support.waiting import until
from tests.unit.connectors.fake_connect import FakeConnect, serving

pytestmark = pytest.mark.postgres
FIELD = "--data-urlencode"
KEY = {"Authorization": "Bearer sk_test_sandbox"}


@dataclass
class Ward:
    """A whole installation but Kafka; what is broken in it is mended again by each test."""

    cli: Cli
    outbox: Database
    ledger: Database
    connect: FakeConnect
    pipeline: Pipeline
    login: str
    ops: str

    def check(self, name: str) -> dict[str, Any]:
        """One check's part of the document."""
        (found,) = self.cli.json("doctor", "doctor", name)["checks"]
        assert found["name"] == name
        return dict(found)

    def sql(self, database: Database, *statements: str) -> None:
        with database.connect() as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def paste(self, fix: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Does what a person would do who copies a fix to where it belongs."""
        where, text = fix["where"], fix["paste"].partition("  # ")[0]
        if where == "service's database":
            self.sql(self.outbox, *text.split("; "))
        elif where == "ledger":
            self.sql(self.ledger, text)
        elif where == "settings":
            monkeypatch.setenv(*text.split("=", 1))
        elif text.startswith("curl"):
            self._curl(shlex.split(text))
        elif text.startswith("tailrace"):
            for command in text.replace("cus_…", "cus_acme").split(" && "):
                done = self.cli(*shlex.split(command)[1:])
                assert done.code == 0, done.err
        else:
            subprocess.run(["bash", "-c", text], check=True)

    def _curl(self, words: list[str]) -> None:
        assert words[:3] == ["curl", "-H", "@-"], "the key is no argument"
        url = next(word for word in words if word.startswith("http"))
        fields = [words[n + 1].split("=", 1) for n, word in enumerate(words) if word == FIELD]
        answer = requests.post(url, data=dict(fields), headers=KEY, timeout=10)
        assert answer.ok, answer.text

    def stripe(self, path: str, **fields: str) -> dict[str, Any]:
        url = f"{self.pipeline.stripe_url}/v1/billing/meters{path}"
        answer = requests.post(url, data=fields, headers=KEY, timeout=10)
        assert answer.ok, answer.text
        return dict(answer.json())

    def meter(self, event_name: str) -> str:
        """Id of the active meter of an event name."""
        url = f"{self.pipeline.stripe_url}/v1/billing/meters"
        listed = requests.get(url, params={"limit": 100}, headers=KEY, timeout=10).json()["data"]
        (found,) = (
            m["id"] for m in listed if m["event_name"] == event_name and m["status"] == "active"
        )
        return str(found)


@pytest.fixture(scope="module")
def ward(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ward]:
    """Everything installed and applied by the commands themselves; nothing is wrong yet."""
    home = tmp_path_factory.mktemp("ward")
    outbox, ledger = postgres_server.create(), postgres_server.create()
    connect, directory = FakeConnect(), home / "D"
    directory.mkdir()
    cli = Cli(directory)
    facts: dict[str, object] = {"postgres_dsn": outbox.dsn(), "ledger_owner_dsn": ledger.dsn()}

    def write(**more: object) -> None:
        facts.update(more)
        (directory / "sandbox.json").write_text(json.dumps(facts), encoding="utf-8")

    with serving(connect) as url, pytest.MonkeyPatch.context() as patch:
        for name in ("TAILRACE_DIR", "TAILRACE_STACK"):
            patch.delenv(name, raising=False)
        patch.chdir(home)
        write(ledger_dsn=ledger.dsn(), connect_url=url)
        for schema in ("outbox", "ledger"):
            installed = cli("schema", "install", schema)
            assert installed.code == 0, installed.err
        login, ops = ledger.login("ledger_service", "ledger_finance"), outbox.login("metering_ops")
        pipeline = Pipeline(outbox.dsn(), ledger.dsn(login), home / "stripe")
        pipeline.start()
        write(
            ledger_dsn=ledger.dsn(login),
            stripe_url=pipeline.stripe_url,
            settings={"TAILRACE_SOURCE_DSN": outbox.dsn(ops)},
        )
        try:
            meters = home / "meters.toml"
            meters.write_text(METERS, encoding="utf-8")
            for command in (
                ("meters", "apply", str(meters)),
                ("source", "register"),
                ("connector", "apply", "--first"),
            ):
                done = cli(*command)
                assert done.code == 0, done.err
            built = Ward(cli, outbox, ledger, connect, pipeline, login, ops)
            has_delivered_to(built)
            yield built
        finally:
            pipeline.stop()
            postgres_server.drop(outbox)
            postgres_server.drop(ledger)


def has_delivered_to(ward: Ward) -> None:
    has_delivered(ward)  # type: ignore[arg-type]  # of it outbox and connect are looked at


def test_nothing_is_wrong_with_a_fresh_installation(ward: Ward) -> None:
    document = ward.cli.json("doctor", "doctor")
    # The Connect that a test plays reads no slot; of the broker nobody told.
    unusual = {c["name"]: c["said"] for c in document["checks"] if c["state"] != "ok"}
    assert unusual.pop("slot-reader").startswith("connector RUNNING")
    assert unusual.pop("workers").startswith("no sandbox lists its workers")
    assert set(unusual.values()) <= {
        "TAILRACE_KAFKA_BOOTSTRAP not set",
        "no worker's data directory is on this computer: TAILRACE_DATA_DIR not set",
    }
    assert len(document["checks"]) - len(unusual) >= 30


IN_THE_OUTBOX: dict[str, tuple[str, str, str]] = {
    "publication with updates": (
        "publication",
        "ALTER PUBLICATION metering_outbox SET (publish = 'insert, update')",
        "sends updates",
    ),
    "publication of partitions": (
        "publication",
        "ALTER PUBLICATION metering_outbox SET (publish_via_partition_root = false)",
        "does not send partitions under their root's name",
    ),
    "no publication": (
        "publication",
        "DROP PUBLICATION metering_outbox",
        "publication metering_outbox does not exist",
    ),
    "cdc role without login": (
        "cdc-role",
        "ALTER ROLE metering_cdc NOLOGIN",
        "role metering_cdc cannot log in and replicate",
    ),
    "cdc role makes databases": (
        "cdc-role",
        "ALTER ROLE metering_cdc CREATEDB",
        "role metering_cdc may do more than read the WAL: createdb",
    ),
    "cdc role reads tables": (
        "cdc-role",
        "GRANT pg_read_all_data TO metering_cdc",
        "role metering_cdc is a member of pg_read_all_data",
    ),
    "writer past the functions": (
        "writer-roles",
        "GRANT INSERT ON metering.usage_outbox TO metering_writer",
        "metering_writer may write metering.usage_outbox past its functions",
    ),
    "everybody past the functions": (
        "writer-roles",
        "GRANT UPDATE ON metering.usage_key TO PUBLIC",
        "PUBLIC may write metering.usage_key past its functions",
    ),
    "meter unknown": (
        "metrics-known",
        "DELETE FROM metering.metric WHERE name = 'exports'",
        "was not told of the meter exports",
    ),
}


@pytest.mark.parametrize("fault", IN_THE_OUTBOX)
def test_a_fault_in_the_service_s_database_is_named_and_mended_by_its_fix(
    fault: str, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, statement, said = IN_THE_OUTBOX[fault]
    assert ward.check(check)["state"] == "ok"
    ward.sql(ward.outbox, statement)
    mended(ward, check, said, monkeypatch)


def mended(ward: Ward, check: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check names what was planted; its fixes, pasted, end it."""
    found = ward.check(check)
    assert found["state"] == "trouble", found
    told = [trouble["what"] for trouble in found["troubles"]]
    assert any(said in text for text in told), told
    assert ward.cli("doctor", check).code == 1
    for trouble in found["troubles"]:
        ward.paste(trouble["fix"], monkeypatch)
    assert ward.check(check)["state"] == "ok"
    assert ward.cli("doctor", check).code == 0


def test_an_operator_without_its_role_is_named_and_gets_it(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.sql(ward.outbox, f'REVOKE metering_ops FROM "{ward.ops}"')
    ward.sql(ward.outbox, f'GRANT USAGE ON SCHEMA metering TO "{ward.ops}"')
    ward.sql(ward.outbox, f'GRANT SELECT ON metering.source TO "{ward.ops}"')
    mended(ward, "ops-role", "may not send canaries and read minutes", monkeypatch)


def test_an_outbox_without_partitions_for_tomorrow_is_named(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ward.outbox.connect() as conn:
        ahead = conn.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = 'metering.usage_outbox'::regclass"
            r" AND c.relname ~ '^usage_outbox_p\d{8}$'"
            " AND to_date(right(c.relname, 8), 'YYYYMMDD') > (now() AT TIME ZONE 'UTC')::date"
        ).fetchall()
    ward.sql(ward.outbox, *(f"DROP TABLE metering.{name}" for (name,) in ahead))
    mended(ward, "outbox-partitions", "has partitions for 0 more days", monkeypatch)


@pytest.mark.parametrize(
    ("check", "plant", "said"),
    [
        ("ledger-role", "GRANT ledger_owner TO {login}", "owns the ledger's tables"),
        (
            "ledger-append-only",
            "GRANT UPDATE ON ledger.meter_log TO ledger_service",
            "ledger_service may UPDATE entries",
        ),
        (
            "ledger-append-only",
            "GRANT DELETE ON ledger.meter_log TO PUBLIC",
            "PUBLIC may DELETE entries",
        ),
        ("source-registered", "DELETE FROM ledger.source", "source sandbox is not registered"),
    ],
)
def test_a_fault_in_the_ledger_is_named_and_mended_by_its_fix(
    check: str, plant: str, said: str, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.sql(ward.ledger, plant.format(login=f'"{ward.login}"'))
    mended(ward, check, said, monkeypatch)


def test_a_superuser_is_named_and_keeps_its_rights(ward: Ward) -> None:
    ward.sql(ward.ledger, f'ALTER ROLE "{ward.login}" SUPERUSER')
    try:
        found = ward.check("ledger-role")
    finally:
        ward.sql(ward.ledger, f'ALTER ROLE "{ward.login}" NOSUPERUSER')
    assert "is a superuser" in found["said"]
    assert [trouble["fix"]["where"] for trouble in found["troubles"]] == ["settings"]
    assert ward.check("ledger-role")["state"] == "ok"


def test_usage_of_a_tenant_without_a_customer_is_named_with_the_command(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.sql(
        ward.outbox,
        "SELECT metering.record_usage('acme', 'exports', 3, 'k', now() - interval '5 min')",
    )
    until("the usage waits", lambda: ward.check("customers")["state"] == "trouble", 20)
    mended(ward, "customers", "1 entries of tenant acme have no customer", monkeypatch)


def config(ward: Ward) -> dict[str, str]:
    return ward.connect.configs[NAME]


def forget(connect: FakeConnect) -> None:
    for known in (connect.configs, connect.states, connect.task_states):
        known.pop(NAME, None)


CONNECT: dict[str, tuple[str, Callable[[Ward], object], str]] = {
    "drift": (
        "connector-drift",
        lambda w: config(w).update({"max.batch.size": "1024"}),
        "~ max.batch.size = 1024 -> ",
    ),
    "unsafe": (
        "connector-options",
        lambda w: config(w).update({"snapshot.mode": "initial"}),
        "snapshot.mode is 'initial'",
    ),
    "converter": (
        "converter",
        lambda w: config(w).update(
            {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
        ),
        "value.converter is 'org.apache.kafka.connect.json.JsonConverter'",
    ),
    "gone": ("connector", lambda w: forget(w.connect), "Connect has no connector"),
    "stopped": (
        "connector-running",
        lambda w: w.connect.states.update({NAME: "STOPPED"}),
        "connector STOPPED, no tasks, by a person or by the slot guard, and nothing starts it",
    ),
    "failed": (
        "connector-running",
        lambda w: w.connect.task_states.update({NAME: "FAILED"}),
        "task 0 FAILED",
    ),
}


@pytest.mark.parametrize("fault", CONNECT)
def test_a_fault_of_the_connector_is_named_and_mended_by_its_fix(
    fault: str, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_delivered_to(ward)
    check, plant, said = CONNECT[fault]
    plant(ward)
    mended(ward, check, said, monkeypatch)


def test_an_old_plugin_is_named_until_a_newer_one_is_in_its_place(ward: Ward) -> None:
    installed = ward.connect.plugins[0]
    newer, installed["version"] = installed["version"], "3.6.0.Final"
    found = ward.check("connector-plugin")
    assert "version 3.6.0.Final is not a final release" in found["said"]
    assert "install 3.7.0.Final" in found["troubles"][0]["fix"]["paste"]
    installed["version"] = newer
    assert ward.check("connector-plugin")["state"] == "ok"


def test_a_slot_that_is_gone_is_named_and_repaired(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_delivered_to(ward)
    ward.sql(ward.outbox, "SELECT pg_drop_replication_slot('metering_outbox')")
    mended(ward, "slot", "slot metering_outbox does not exist", monkeypatch)


def test_a_slot_that_was_advanced_past_rows_is_named_and_repaired(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_delivered_to(ward)
    ward.sql(
        ward.outbox,
        "SELECT metering.emit_canaries()",
        "SELECT pg_replication_slot_advance('metering_outbox', pg_current_wal_insert_lsn())",
    )
    found = ward.check("slot-position")
    assert "somebody advanced it" in found["said"]
    ward.paste(found["troubles"][0]["fix"], monkeypatch)
    has_delivered_to(ward)  # the Connect that a test plays delivers nothing by itself
    assert ward.check("slot-position")["state"] == "ok"


def test_an_archived_meter_is_named_and_reactivated(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.stripe(f"/{ward.meter('exports')}/deactivate")
    mended(ward, "meter-active", "exports: the meter is archived", monkeypatch)


def test_a_meter_that_stripe_lacks_is_named_and_created(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = Path("more.toml")
    more.write_text(METERS + '\n[meters.reports]\npublish = "event"\n', encoding="utf-8")
    assert ward.cli("meters", "apply", str(more)).code == 0
    mended(ward, "meter-active", "reports: the meter does not exist", monkeypatch)
    assert ward.check("meter-formula")["state"] == "ok"
    assert ward.check("meter-keys")["state"] == "ok"


@pytest.mark.parametrize(
    ("check", "wrong", "said"),
    [
        (
            "meter-formula",
            {"default_aggregation[formula]": "count"},
            "exports: formula is count, not sum",
        ),
        (
            "meter-keys",
            {"customer_mapping[event_payload_key]": "customer"},
            "exports: finds the customer under 'customer', not 'stripe_customer_id'",
        ),
    ],
)
def test_a_meter_that_counts_otherwise_is_named_until_another_is_in_its_place(
    check: str, wrong: dict[str, str], said: str, ward: Ward
) -> None:
    right = ward.meter("exports")
    ward.stripe(f"/{right}/deactivate")
    fields = {
        "display_name": "exports",
        "event_name": "exports",
        "default_aggregation[formula]": "sum",
        "customer_mapping[type]": "by_id",
        "customer_mapping[event_payload_key]": "stripe_customer_id",
        "value_settings[event_payload_key]": "value",
    }
    made = ward.stripe("", **(fields | wrong))
    try:
        found = ward.check(check)
        assert [trouble["what"] for trouble in found["troubles"]] == [said]
        assert "Stripe never changes one" in found["troubles"][0]["fix"]["paste"]
    finally:
        ward.stripe(f"/{made['id']}/deactivate")
        ward.stripe(f"/{right}/reactivate")
    assert ward.check(check)["state"] == "ok"


@pytest.mark.parametrize(
    ("check", "variable", "value", "said"),
    [
        ("source-settings", "TAILRACE_PARTITIONS", "8", "this outbox has 12"),
        ("source-settings", "TAILRACE_PARTITIONS", "6", "this outbox has 12"),
        ("source-settings", "TAILRACE_PARTITIONS", "24", "this outbox has 12"),
        ("source-settings", "TAILRACE_SOURCE", "shop", "this outbox has sandbox"),
        ("stripe-key", "TAILRACE_LIVE", "1", "TAILRACE_LIVE is 1 with a test key"),
    ],
)
def test_a_setting_that_does_not_fit_is_named_with_the_one_that_does(
    check: str,
    variable: str,
    value: str,
    said: str,
    ward: Ward,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, value)
    mended(ward, check, said, monkeypatch)


def settings_fix(ward: Ward) -> dict[str, str]:
    (trouble,) = ward.check("source-settings")["troubles"]
    assert trouble["what"] == "TAILRACE_PARTITIONS is 24, this outbox has 12"
    return dict(trouble["fix"])


def test_an_outbox_that_did_not_grow_with_the_topics_is_named_with_the_command_that_grows_it(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow = "tailrace source grow --partitions 24"
    monkeypatch.setenv("TAILRACE_PARTITIONS", "24")
    unknown = settings_fix(ward)["paste"]
    assert unknown == f"TAILRACE_PARTITIONS=12  # if the topics have more: `{grow}`"
    monkeypatch.setattr(Patient, "topics", lambda _: [])
    assert settings_fix(ward) == {"where": "shell", "paste": f"{grow} --yes"}
    other = TopicFinding("usage.events", "has 12 partitions, …", "", fatal=True)
    monkeypatch.setattr(Patient, "topics", lambda _: [other])
    assert settings_fix(ward) == {"where": "settings", "paste": "TAILRACE_PARTITIONS=12"}


def test_a_database_without_the_outbox_is_named_and_gets_it(
    ward: Ward, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = postgres_server.create()
    try:
        monkeypatch.setenv("TAILRACE_LEDGER_DSN", empty.dsn())
        mended(ward, "ledger-schema", "the ledger lacks ", monkeypatch)
    finally:
        postgres_server.drop(empty)


@pytest.mark.parametrize(
    ("check", "variable", "value"),
    [
        ("service-database", "TAILRACE_SOURCE_DSN", "host=127.0.0.1 port=1 user=x dbname=x"),
        ("ledger", "TAILRACE_LEDGER_DSN", "host=127.0.0.1 port=1 user=x dbname=x"),
        ("connect", "TAILRACE_CONNECT_URL", "http://127.0.0.1:1"),
        ("stripe", "TAILRACE_STRIPE_API_BASE", "http://127.0.0.1:1"),
        ("broker", "TAILRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1"),
    ],
)
def test_what_does_not_answer_is_named_and_the_exit_code_says_so(
    check: str, variable: str, value: str, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    shown = ward.cli("doctor", check)
    assert shown.code == 69
    assert f"TROUBLE   {check}  " in shown.out
    assert "Traceback" not in shown.out + shown.err


def test_without_connect_slot_and_publication_are_looked_at_all_the_same(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_CONNECT_URL", "http://127.0.0.1:1")
    shown = ward.cli("doctor", "publication", "slot", "slot-position")
    assert shown.code == 69
    assert [line.split()[0] for line in shown.out.splitlines()[:3]] == ["ok", "ok", "not"]


@pytest.mark.parametrize("check", ["clock-ledger", "clock-service"])
@pytest.mark.parametrize("off_us", [-5_000_000, 5_000_000])
def test_a_clock_that_is_off_is_named(
    check: str, off_us: int, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = SystemClock.now_us
    monkeypatch.setattr(SystemClock, "now_us", lambda clock: right(clock) + off_us)
    found = ward.check(check)
    assert found["said"].endswith("differ by 5.0 s")
    monkeypatch.setattr(SystemClock, "now_us", right)
    assert ward.check(check)["state"] == "ok"


def test_a_sandbox_that_shifts_its_clock_is_told_how_to_end_that(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = SystemClock.now_us
    monkeypatch.setattr(SystemClock, "now_us", lambda clock: right(clock) - 5_000_000)
    offset = ward.cli.directory / "clock"
    for advice in ("sudo chronyc ", "tailrace sandbox clock 0  # "):
        (trouble,) = ward.check("clock-ledger")["troubles"]
        assert trouble["fix"]["paste"].startswith(advice)
        offset.write_bytes(bytes(8))
    offset.unlink()


def test_another_program_s_folder_and_a_full_disk_are_named(
    ward: Ward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "worker"
    (folder / "other.db").mkdir(parents=True)
    monkeypatch.setenv("TAILRACE_DATA_DIR", str(folder))
    mended(ward, "data-dir", "holds other.db, which no worker of tailrace writes", monkeypatch)
    assert ward.check("disk")["state"] == "ok"
    monkeypatch.setattr(machine, "FREE_BYTES_MIN", 1 << 60)
    assert "MiB are free where" in ward.check("disk")["said"]
    assert ward.cli("doctor", "disk").code == 1
