"""Settings: environment over file, all problems at once, nothing secret shown."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import pytest

from streams.engine.settings import EngineSettings
from streams.settings import REQUIRED_BY_WORKER, Settings, SettingsError, describe, load, read_file
from streams.worker import engine_settings

COMPLETE: Final = {
    "TAILRACE_KAFKA_BOOTSTRAP": "broker:9092",
    "TAILRACE_LEDGER_DSN": "postgresql://ledger:hush@db/ledger",
    "TAILRACE_DATA_DIR": "/var/lib/worker",
    "TAILRACE_STRIPE_API_KEY": "rk_test_hush",
}


def problems_of(environment: dict[str, str], file_text: str | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load(environment, file_text, required=REQUIRED_BY_WORKER)
    assert str(refused.value).splitlines() == refused.value.problems
    return refused.value.problems


def test_without_anything_the_defaults_are_in_force() -> None:
    assert load({}) == Settings()


def test_a_complete_environment_is_enough_for_a_worker() -> None:
    settings = load(COMPLETE, required=REQUIRED_BY_WORKER)
    assert settings.kafka_bootstrap == "broker:9092"
    assert settings.partitions == 12


def test_the_environment_wins_over_the_file() -> None:
    text = 'partitions = 48\ngroup = "from-file"\nlive = true\n'
    settings = load({"TAILRACE_PARTITIONS": "24"}, text)
    assert (settings.partitions, settings.group, settings.live) == (24, "from-file", 1)


def test_other_programs_variables_are_left_alone() -> None:
    environment = {"PATH": "/bin", "TAILRACE_DIR": "/x", "TAILRACE_STACK": "x", "partitions": "x"}
    assert load(environment) == Settings()


def test_every_problem_is_told_at_once() -> None:
    problems = problems_of(
        {
            "TAILRACE_PARTITIONS": "none",
            "TAILRACE_REPLICATION": "0",
            "TAILRACE_INVENTED": "1",
            "TAILRACE_CONNECT_URL": "connect:8083",
            "TAILRACE_LOG_LEVEL": "loud",
            "TAILRACE_HEARTBEAT_MS": "9000",
            "TAILRACE_STRIPE_API_KEY": "sk_live_hush",
        },
        'horizon_h = 1\nsurprise = "x"\n[meters]\n',
    )
    starts = sorted(problem.split(":")[0] for problem in problems)
    assert starts == sorted(
        [
            "TAILRACE_PARTITIONS",
            "TAILRACE_REPLICATION",
            "TAILRACE_INVENTED",
            "TAILRACE_CONNECT_URL",
            "TAILRACE_LOG_LEVEL",
            "TAILRACE_HEARTBEAT_MS",
            "TAILRACE_STRIPE_API_KEY",
            "tailrace.toml horizon_h",
            "tailrace.toml surprise",
            "tailrace.toml meters",
            "TAILRACE_KAFKA_BOOTSTRAP",
            "TAILRACE_LEDGER_DSN",
            "TAILRACE_DATA_DIR",
        ]
    )


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("PARTITIONS", "", "whole number from 1 to 4096"),
        ("PARTITIONS", "4097", "whole number from 1 to 4096"),
        ("PARTITIONS", "-1", "whole number"),
        ("PARTITIONS", "1.5", "whole number"),
        ("PARTITIONS", " 12", "whole number"),
        ("PARTITIONS", "١٢", "whole number"),
        ("HORIZON_H", "47", "whole number from 48"),
        ("SETTLE_DEADLINE_S", "45", "whole number from 46 to 299"),
        ("SETTLE_DEADLINE_S", "300", "whole number from 46 to 299"),
        ("GROUP_PROTOCOL", "static", "one of classic, consumer"),
        ("STRIPE_API_BASE", "api.stripe.com", "http:// or https://"),
    ],
)
def test_a_value_is_refused_by_name_and_rule(name: str, value: str, rule: str) -> None:
    (problem,) = problems_of(COMPLETE | {f"TAILRACE_{name}": value})
    assert problem.startswith(f"TAILRACE_{name}: ")
    assert rule in problem
    assert repr(value) in problem


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"TAILRACE_SESSION_TIMEOUT_MS": "2999"},
            "TAILRACE_HEARTBEAT_MS: must be at most a third of the session timeout",
        ),
        (
            {"TAILRACE_GROUP_PROTOCOL": "consumer", "TAILRACE_GROUP_INSTANCE_ID": "w1"},
            "TAILRACE_GROUP_INSTANCE_ID",
        ),
        (
            {"TAILRACE_PUBLISH_LEASE_S": "25"},
            "TAILRACE_PUBLISH_LEASE_S: must be twice the connect and read timeouts",
        ),
        (
            {"TAILRACE_STRIPE_API_KEY": "sk_live_hush"},
            "TAILRACE_STRIPE_API_KEY: is a live key; say --live, or TAILRACE_LIVE=1, to mean it",
        ),
        (
            {"TAILRACE_STRIPE_API_KEY": "rk_live_hush"},
            "TAILRACE_STRIPE_API_KEY: is a live key; say --live, or TAILRACE_LIVE=1, to mean it",
        ),
    ],
)
def test_contradictions_are_refused(changes: dict[str, str], problem: str) -> None:
    (found,) = problems_of(COMPLETE | changes)
    assert found.startswith(problem)
    assert "hush" not in found


@pytest.mark.parametrize(
    "changes",
    [
        {"TAILRACE_SESSION_TIMEOUT_MS": "3000"},
        {"TAILRACE_PUBLISH_LEASE_S": "26"},
        {"TAILRACE_STRIPE_API_KEY": "sk_live_hush", "TAILRACE_LIVE": "1"},
        {"TAILRACE_GROUP_PROTOCOL": "consumer"},
    ],
)
def test_on_the_other_side_of_the_rule_it_is_accepted(changes: dict[str, str]) -> None:
    load(COMPLETE | changes, required=REQUIRED_BY_WORKER)


@pytest.mark.parametrize("name", ["SETTLE_DEADLINE_S", "HORIZON_H", "CHUNK_RECORDS"])
@pytest.mark.parametrize("end", ["least", "most"])
def test_what_settings_allow_the_engine_takes(name: str, end: str) -> None:
    """Or a worker would refuse at its start what `config show` had called good."""
    bounds = {
        "SETTLE_DEADLINE_S": (46, 299),
        "HORIZON_H": (48, 24 * 366),
        "CHUNK_RECORDS": (1, 100_000),
    }
    value = bounds[name][end == "most"]
    settings = load(COMPLETE | {f"TAILRACE_{name}": str(value)})
    assert isinstance(engine_settings(settings, "w"), EngineSettings)


def test_a_file_that_is_not_toml_is_one_problem_among_others() -> None:
    problems = problems_of({}, "partitions = = 1")
    assert problems[0].startswith("tailrace.toml: is not TOML")
    assert len(problems) == 1 + len(REQUIRED_BY_WORKER)


@pytest.mark.parametrize("value", ['["a:1", "b:2"]', "1.5", "{ a = 1 }", "2026-11-29"])
def test_only_texts_and_whole_numbers_stand_in_the_file(value: str) -> None:
    (problem,) = problems_of(COMPLETE, f"kafka_bootstrap = {value}")
    assert problem == "tailrace.toml kafka_bootstrap: must be a text or a whole number"


def test_secrets_are_never_shown() -> None:
    settings = load(COMPLETE | {"TAILRACE_SOURCE_DSN": "postgresql://ops:hush@db/service"})
    rows = {name: shown for name, shown, _ in describe(settings)}
    assert "hush" not in str(rows)
    for name in ("LEDGER_DSN", "SOURCE_DSN", "STRIPE_API_KEY"):
        assert rows[f"TAILRACE_{name}"] == "***"
    unset = {name: shown for name, shown, _ in describe(Settings())}
    assert unset["TAILRACE_LEDGER_DSN"] == "", "whether it is set is no secret"


def test_every_setting_is_described_under_the_name_it_is_set_by() -> None:
    rows = describe(Settings())
    assert [name for name, _, _ in rows] == [f"TAILRACE_{f.name.upper()}" for f in fields(Settings)]
    assert all(meaning for _, _, meaning in rows)


@pytest.mark.parametrize("setting", [f.name for f in fields(Settings)])
def test_a_default_passes_its_own_parser(setting: str) -> None:
    field = next(f for f in fields(Settings) if f.name == setting)
    if field.default != "":
        assert field.metadata["parse"](str(field.default)) == field.default


def test_an_address_loses_its_last_slash() -> None:
    assert load({"TAILRACE_CONNECT_URL": "http://c:8083/"}).connect_url == "http://c:8083"


def test_settings_are_one_frozen_value() -> None:
    assert replace(Settings(), partitions=3) != Settings()
    with pytest.raises(AttributeError):
        Settings().partitions = 3  # type: ignore[misc]  # the point of the test


def test_the_file_is_read_where_there_is_one(tmp_path: Path) -> None:
    assert read_file(tmp_path) is None
    (tmp_path / "tailrace.toml").write_text('group = "größe"\n', encoding="utf-8")
    assert load({}, read_file(tmp_path)).group == "größe"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("LEDGER_DSN", "garbage", "is no PostgreSQL connection string; give it as postgresql://"),
        ("SOURCE_DSN", "colour=red", "is no PostgreSQL connection string"),
        ("STRIPE_ACCOUNT", "x y", "must have 1 to 100 of A-Z a-z 0-9 _ . : -"),
        ("SOURCE", "a/b", "must have 1 to 63 of a-z 0-9 _ - and begin with a letter"),
        ("KAFKA_BOOTSTRAP", "broker", "must be host:port, several separated by commas"),
        ("KAFKA_BOOTSTRAP", "a:9092,,b:9092", "must be host:port"),
        ("CRASH_AT", "foo", "crash point 'foo': one of fetched, decided"),
        ("CRASH_AT", "decided:0", "the number after ':' is 1 or more"),
    ],
)
def test_a_form_is_checked_where_settings_are_read(name: str, value: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=f"TAILRACE_{name}: ") as refused:
        load({f"TAILRACE_{name}": value})
    [problem] = refused.value.problems
    assert expected in problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEDGER_DSN", "host=/run/pg dbname=ledger user=x"),
        ("LEDGER_DSN", "postgresql://ledger:hush@db:5432/ledger?sslmode=require"),
        ("KAFKA_BOOTSTRAP", "a.example:9092, [::1]:9093"),
        ("CRASH_AT", "decided:3"),
    ],
)
def test_every_usual_form_is_taken(name: str, value: str) -> None:
    assert getattr(load({f"TAILRACE_{name}": value}), name.lower()) == value


def test_secrets_are_not_in_the_text_of_the_whole_value() -> None:
    settings = load(COMPLETE | {"TAILRACE_STRIPE_WEBHOOK_SECRET": "whsec_hush"})
    assert "hush" not in repr(settings)
    engine = engine_settings(load(COMPLETE | SECURED), "name")
    assert engine.security["sasl.password"] == "hush"
    assert "hush" not in repr(engine)


SECURED: Final = {
    "TAILRACE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "TAILRACE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "TAILRACE_KAFKA_SASL_USERNAME": "tailrace",
    "TAILRACE_KAFKA_SASL_PASSWORD": "hush",
    "TAILRACE_KAFKA_CA_FILE": "/etc/ca.pem",
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"TAILRACE_KAFKA_SASL_PASSWORD": ""}, "KAFKA_SASL_PASSWORD: is not set, and"),
        ({"TAILRACE_KAFKA_SASL_MECHANISM": ""}, "KAFKA_SASL_MECHANISM: is not set, and"),
        ({"TAILRACE_KAFKA_SECURITY_PROTOCOL": "SSL"}, "KAFKA_SASL_USERNAME: is set, and"),
        (
            {"TAILRACE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT"},
            "KAFKA_CA_FILE: is set, and TAILRACE_KAFKA_SECURITY_PROTOCOL is SASL_PLAINTEXT, which "
            "encrypts nothing",
        ),
        ({"TAILRACE_KAFKA_KEY_FILE": "/k.pem"}, "certificate and key are given together"),
        ({"TAILRACE_KAFKA_SECURITY_PROTOCOL": "TLS"}, "must be one of PLAINTEXT"),
        ({"TAILRACE_KAFKA_SASL_MECHANISM": "GSSAPI"}, "must be one of "),
    ],
)
def test_half_a_way_to_secured_brokers_is_refused(changes: dict[str, str], said: str) -> None:
    assert load(SECURED)
    assert any(said in problem for problem in problems_of(COMPLETE | SECURED | changes))
