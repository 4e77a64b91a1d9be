"""Which stack a command talks to: option, environment, files, in that order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streams.cli.errors import ConfigurationError
from streams.cli.main import run
from streams.cli.stack import find_stack, overridden_text, resolve
from streams.settings import SettingsError

FACTS = {
    "postgres_dsn": "postgresql://p@h/service",
    "ledger_dsn": "postgresql://l@h/ledger",
    "kafka_bootstrap": "h:9092",
    "connect_url": "http://h:8083",
    "stripe_url": "http://h:4242",
    "pids": {"postgres": 1, "workers": []},
}


def sandbox(directory: Path, **more: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sandbox.json").write_text(json.dumps({**FACTS, **more}), encoding="utf-8")
    return directory


@pytest.mark.parametrize("named", ["option", "variable", "default"])
def test_a_sandbox_is_found_by_option_variable_and_default(tmp_path: Path, named: str) -> None:
    for name in ("option", "variable", "default"):
        where = tmp_path / (".tailrace" if name == "default" else name)
        sandbox(where, ledger_dsn=f"postgresql://{name}@h/ledger")
    option = Path("option") if named == "option" else None
    variables = {} if named == "default" else {"TAILRACE_DIR": "variable"}
    stack = find_stack(option, variables, tmp_path)
    assert stack.settings.ledger_dsn == f"postgresql://{named}@h/ledger"
    assert stack.is_sandbox


def test_every_address_of_a_sandbox_becomes_a_setting(tmp_path: Path) -> None:
    stack = find_stack(sandbox(tmp_path / "D"), {}, tmp_path)
    settings = stack.settings
    assert settings.source_dsn == FACTS["postgres_dsn"]
    assert settings.ledger_dsn == FACTS["ledger_dsn"]
    assert settings.kafka_bootstrap == FACTS["kafka_bootstrap"]
    assert settings.connect_url == FACTS["connect_url"]
    assert settings.stripe_api_base == FACTS["stripe_url"]
    assert settings.stripe_api_key == "sk_test_sandbox"
    assert settings.replication == 1
    assert stack.overridden == ()


def test_what_a_sandbox_lists_itself_wins_over_what_its_addresses_say(tmp_path: Path) -> None:
    listed = {"TAILRACE_SOURCE_DSN": "postgresql://ops@h/service", "TAILRACE_PARTITIONS": "6"}
    stack = find_stack(sandbox(tmp_path / "D", settings=listed), {}, tmp_path)
    assert stack.settings.source_dsn == "postgresql://ops@h/service"
    assert stack.settings.partitions == 6


def test_explicit_settings_win_one_by_one_and_are_named(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text('connect_url = "http://file:1"\n', encoding="utf-8")
    variables = {"TAILRACE_LEDGER_DSN": "postgresql://mine@h/ledger"}
    stack = find_stack(sandbox(tmp_path / "D"), variables, tmp_path)
    assert stack.settings.ledger_dsn == "postgresql://mine@h/ledger"
    assert stack.settings.connect_url == "http://file:1"
    assert stack.settings.kafka_bootstrap == FACTS["kafka_bootstrap"]
    assert stack.overridden == ("TAILRACE_CONNECT_URL", "TAILRACE_LEDGER_DSN")


def test_settings_stand_alone_where_there_is_no_sandbox(tmp_path: Path) -> None:
    stack = find_stack(None, {"TAILRACE_LEDGER_DSN": "postgresql://l@h/ledger"}, tmp_path)
    assert not stack.is_sandbox
    assert stack.settings.ledger_dsn == "postgresql://l@h/ledger"
    assert stack.settings.replication == 3


def test_a_named_sandbox_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no sandbox runs there") as caught:
        find_stack(Path("gone"), {}, tmp_path)
    assert caught.value.fix == "`tailrace sandbox up --dir gone`"
    with pytest.raises(ConfigurationError, match="no sandbox runs there"):
        find_stack(None, {"TAILRACE_DIR": "gone"}, tmp_path)


def test_a_damaged_sandbox_file_is_named(tmp_path: Path) -> None:
    directory = sandbox(tmp_path / "D")
    (directory / "sandbox.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"sandbox\.json: cannot be read"):
        find_stack(directory, {}, tmp_path)


def test_every_missing_setting_is_named_at_once(tmp_path: Path) -> None:
    stack = find_stack(None, {}, tmp_path)
    with pytest.raises(ConfigurationError, match="TAILRACE_LEDGER_DSN, TAILRACE_CONNECT_URL") as e:
        stack.need("ledger_dsn", "connect_url")
    assert "tailrace sandbox up" in e.value.fix


def test_problems_of_the_settings_come_through(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text("partitions = [", encoding="utf-8")
    with pytest.raises(SettingsError, match="is not TOML"):
        find_stack(None, {}, tmp_path)


def test_the_superusers_way_in_is_the_sandboxs_unless_a_dsn_was_given(tmp_path: Path) -> None:
    directory = sandbox(tmp_path / "D", ledger_owner_dsn="postgresql://super@h/ledger")
    assert find_stack(directory, {}, tmp_path).admin_dsn("ledger") == "postgresql://super@h/ledger"
    given = {"TAILRACE_LEDGER_DSN": "postgresql://mine@h/ledger"}
    assert (
        find_stack(directory, given, tmp_path).admin_dsn("ledger") == given["TAILRACE_LEDGER_DSN"]
    )
    assert find_stack(directory, {}, tmp_path).admin_dsn("outbox") == FACTS["postgres_dsn"]


def test_a_live_key_is_refused_unless_somebody_says_that_it_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILRACE_DIR", raising=False)
    monkeypatch.delenv("TAILRACE_LIVE", raising=False)
    monkeypatch.setenv("TAILRACE_STRIPE_API_KEY", "rk_live_hush")
    with pytest.raises(SettingsError, match="is a live key; say --live"):
        resolve(None)
    assert resolve(None, live=True).settings.livemode


@pytest.mark.parametrize("command", ["worker", "webhook"])
def test_what_sends_takes_the_word_for_it(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILRACE_DIR", raising=False)
    monkeypatch.setenv("TAILRACE_STRIPE_API_KEY", "rk_live_hush")
    assert run([command]) == 78
    assert "is a live key" in capsys.readouterr().err
    assert run([command, "--live"]) == 78
    said = capsys.readouterr().err
    assert "is a live key" not in said
    assert "TAILRACE_LEDGER_DSN" in said, "something else is missing"


def test_of_many_settings_that_replace_the_sandboxs_the_first_are_named() -> None:
    assert overridden_text(("A",)) == "A"
    assert overridden_text(("A", "B", "C", "D")) == "A, B, C, D"
    assert overridden_text(("A", "B", "C", "D", "E")) == "A, B, C and 2 more"
