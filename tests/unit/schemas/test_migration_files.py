"""Migrations as files for another tool: the same text, the same names, written once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from schemas.migration_files import migration_files
from schemas.migrations import PHASES, Phase, SchemaName, load
from streams.cli.main import run

SHOP: Final[Mapping[str, str | int]] = {"source": "shop", "partitions": 12}


@pytest.mark.parametrize("schema", ["outbox", "ledger"])
def test_files_hold_every_migration_in_its_order_with_its_checksum(schema: SchemaName) -> None:
    made = migration_files(schema, SHOP)
    names = [each.name for each in made]
    assert names == sorted(names)
    assert names[0] == "00.00.00_00_pre_versions.sql"
    by_name = {each.name: each.text for each in made}
    for migration in load(schema):
        text = by_name[f"{migration.name}.sql"]
        assert migration.sql in text
        assert text.rstrip().endswith(f"VALUES ('{migration.name}', '{migration.sha256}');")


def test_parameters_stand_in_every_file_as_literals() -> None:
    for each in migration_files("outbox", {"source": "it's", "partitions": 12}):
        assert "set_config('tailrace.source', 'it''s', true)" in each.text
        assert "set_config('tailrace.partitions', '12', true)" in each.text


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_has_its_own_files_and_no_others(phase: Phase) -> None:
    names = {each.name for each in migration_files("outbox", SHOP, [phase])}
    wanted = {f"{each.name}.sql" for each in load("outbox") if each.phase == phase}
    extra = names - wanted
    assert wanted <= names
    assert all(name.endswith(("_versions.sql", "_verify.sql")) for name in extra)


def test_writing_twice_changes_nothing_and_other_parameters_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["schema", "install", "outbox", "--to", "db/migrations", "--source"]
    assert run([*command, "shop"]) == 0
    files = {path.name: path.read_bytes() for path in Path("db/migrations").iterdir()}
    assert capsys.readouterr().out.splitlines() == [f"written {name}" for name in sorted(files)]
    assert run([*command, "shop"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"unchanged {name}" for name in sorted(files)]
    assert run([*command, "other"]) == 2
    assert "are never changed" in capsys.readouterr().err
    assert files == {path.name: path.read_bytes() for path in Path("db/migrations").iterdir()}


def test_a_folder_that_cannot_be_written_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert run(["schema", "install", "outbox", "--to", "file"]) == 78
    assert "file: cannot be written" in capsys.readouterr().err


def test_roles_are_those_of_the_outbox(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "check", "ledger", "--role", "writer", "--dsn", "host=none"]) == 2
    assert "is a role of the outbox" in capsys.readouterr().err
