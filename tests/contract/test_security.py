"""What SECURITY.md names exists: roles, settings, commands."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from streams.cli.main import run
from streams.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
SQL = "".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "schemas").rglob("*_pre_roles.sql")
)
COMMANDS = sorted({" ".join(found.split()) for found in re.findall(r"tailrace ([a-z -]+)", TEXT)})


@pytest.mark.parametrize("role", sorted(set(re.findall(r"`((?:metering|ledger)_\w+)`", TEXT))))
def test_every_role_is_made_by_the_schema(role: str) -> None:
    assert re.search(rf"\b{role}\b", SQL)


def test_every_role_of_the_schema_is_told_of_but_for_the_owners() -> None:
    made = set(re.findall(r"\b((?:metering|ledger)_[a-z]+)\b", SQL))
    roles = {name for name in made if not name.endswith("_owner")}
    assert {role for role in roles if f"`{role}`" not in TEXT} == set()


def test_every_setting_exists() -> None:
    known = {f"{PREFIX}{field.name.upper()}" for field in fields(Settings)}
    named = set(re.findall(r"\bTAILRACE_[A-Z_]+", TEXT))
    named |= {f"{PREFIX}KAFKA{name}" for name in re.findall(r"`(_[A-Z_]+)`", TEXT)}
    assert len(named) > 8
    assert named <= known


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in command.split() if re.fullmatch(r"[a-z]+(-[a-z]+)*", word)]
    assert any(run([*words[:count], "--help"]) == 0 for count in (2, 1)), capsys.readouterr().err
