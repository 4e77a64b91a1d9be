"""Migrations of a schema → SQL files for a migration tool of the service's own.

Each file is what `schemas.migrations.install` would run, with its parameters and its row in the
version table, so that afterwards both ways agree on what a database has. A file runs as a whole in
a transaction of its own, which is what migration tools do; one that does not is refused by the
file itself, because roles and parameters would be forgotten from one statement to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from schemas.migrations import NAMESPACE, PHASES, Migration, Phase, SchemaName, load

_HEAD: Final = """\
-- {title}: {schema}, written by `tailrace schema install {schema} --to`; do not edit.
-- Run in the order of names, each once, as a superuser, in a transaction of its own.
SELECT {settings};
DO $$
BEGIN
    IF coalesce(current_setting('tailrace.file', true), '') <> '{title}' THEN
        RAISE EXCEPTION '{title}: must run as a whole in one transaction'
            USING ERRCODE = '55000', HINT = 'turn off what commits after each statement';
    END IF;
END
$$;

"""
_VERSIONS: Final = """\
CREATE SCHEMA IF NOT EXISTS {namespace};
CREATE TABLE IF NOT EXISTS {namespace}.migration (
    name text PRIMARY KEY,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_by text NOT NULL DEFAULT session_user
);
"""
_ROW: Final = "INSERT INTO {namespace}.migration (name, sha256) VALUES ({name}, {sha256});\n"


@dataclass(frozen=True, slots=True)
class MigrationFile:
    """One file, as it is written."""

    name: str
    text: str


def migration_files(
    schema: SchemaName, parameters: Mapping[str, str | int], phases: Iterable[Phase] = PHASES
) -> list[MigrationFile]:
    """The files in the order in which they run: version table, migrations, and a last check.

    Args:
        schema: which of the two schemas.
        parameters: as `install` takes them; they stand in the files.
        phases: which phases are wanted; the version table and the check come with each.
    """
    wanted = frozenset(phases)
    migrations = [each for each in load(schema) if each.phase in wanted]
    namespace = NAMESPACE[schema]
    made = [
        _file(
            "00.00.00_00_pre_versions", schema, parameters, [_VERSIONS.format(namespace=namespace)]
        )
    ]
    made += [_migration(each, schema, parameters) for each in migrations]
    check = files("schemas").joinpath(schema, "verify.sql")
    if migrations and check.is_file():
        title = f"{migrations[-1].version}_99_{migrations[-1].phase}_verify"
        made.append(_file(title, schema, parameters, [check.read_text(encoding="utf-8")]))
    return made


def _migration(
    migration: Migration, schema: SchemaName, parameters: Mapping[str, str | int]
) -> MigrationFile:
    # Behind its text: a replication slot is made before its transaction has written anything.
    row = _ROW.format(
        namespace=NAMESPACE[schema],
        name=_literal(migration.name),
        sha256=_literal(migration.sha256),
    )
    return _file(migration.name, schema, parameters, [migration.sql, row])


def _file(
    title: str, schema: SchemaName, parameters: Mapping[str, str | int], parts: Iterable[str]
) -> MigrationFile:
    settings = ", ".join(
        f"set_config({_literal(name)}, {_literal(value)}, true)"
        for name, value in _settings(title, parameters)
    )
    head = _HEAD.format(title=title, schema=schema, settings=settings)
    return MigrationFile(f"{title}.sql", head + "\n".join(part.rstrip() + "\n" for part in parts))


def _settings(title: str, parameters: Mapping[str, str | int]) -> Iterator[tuple[str, str]]:
    yield "tailrace.file", title
    yield from ((f"tailrace.{name}", str(value)) for name, value in sorted(parameters.items()))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
