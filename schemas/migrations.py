"""Versioned SQL of the two databases: files → what is missing → what was applied.

A migration is a file `VV.VV.VV_NN_{pre|post}_what.sql` in the folder of its schema. `pre` runs
before the code of its release starts, `post` once no older code runs any more. A file whose first
line is `-- transaction: none` holds one statement that PostgreSQL refuses inside a transaction that
has written (a replication slot); it must be repeatable, because a crash may come between it and its
version row.

Parameters reach the SQL as settings `tailrace.<name>`, so the text, and with it the checksum,
never depends on an installation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal

import psycopg
from psycopg.pq import TransactionStatus

from schemas.errors import ContractMissingError, InstallRefusedError, MigrationChangedError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SchemaName = Literal["outbox", "ledger"]
Phase = Literal["pre", "post"]

PHASES: Final[tuple[Phase, ...]] = ("pre", "post")

#: Name of each schema inside its database.
NAMESPACE: Final[Mapping[SchemaName, str]] = {"outbox": "metering", "ledger": "ledger"}

_FILE = re.compile(r"^(\d{2}\.\d{2}\.\d{2})_(\d{2})_(pre|post)_([a-z0-9_]+)\.sql$")
_PARAMETER = re.compile(r"^[a-z][a-z0-9_]{0,62}$")
_NO_TRANSACTION = "-- transaction: none"
_LOCK_WAIT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration file."""

    #: File name without `.sql`; the key of the version table.
    name: str
    #: Release that brings it, `VV.VV.VV`.
    version: str
    #: Before or after the code of that release.
    phase: Phase
    #: The whole file.
    sql: str
    #: Hex SHA-256 of the file's UTF-8 bytes.
    sha256: str
    #: False for a statement that has to run on its own.
    transactional: bool


def load(schema: SchemaName) -> tuple[Migration, ...]:
    """All migrations of a schema in the order they are applied.

    Raises:
        ContractMissingError: the folder holds no migration, or a file whose name follows no rule.
    """
    folder = files("schemas").joinpath(schema)
    found = sorted(_named(folder.iterdir()), key=lambda item: item[0])
    if not found:
        raise ContractMissingError(
            f"schemas/{schema}: no migration found; install the package again"
        )
    return tuple(_read(schema, name, entry) for name, entry in found)


def missing(conn: psycopg.Connection, schema: SchemaName) -> list[str]:
    """Names of the migrations of this release that the database does not have, in order.

    Raises:
        MigrationChangedError: one that it has was made from another text.
    """
    return [m.name for m in _missing(conn, schema)]


def install(
    conn: psycopg.Connection,
    schema: SchemaName,
    *,
    parameters: Mapping[str, str | int],
    phases: Iterable[Phase] = PHASES,
) -> list[str]:
    """Apply what is missing, in order, and return the names of what was applied.

    Repeating it changes nothing; two at a time wait for each other. Each migration commits with
    its version row. At the end `verify.sql` of the schema checks that the database is the one the
    parameters describe.

    Args:
        conn: a superuser's connection, with no transaction open.
        schema: which of the two schemas.
        parameters: seen by the SQL as settings `tailrace.<name>`.
        phases: which phases to apply.

    Raises:
        MigrationChangedError: an applied migration was made from another text.
        InstallRefusedError: a transaction is open, a parameter's name is not usable, or
            `verify.sql` or a migration refused with SQLSTATE 22023 or 55000; the text says what
            to change.
        psycopg.Error: the database failed otherwise; the migrations before the failing one stay.
    """
    if conn.info.transaction_status is not TransactionStatus.IDLE:
        raise InstallRefusedError("connection: a transaction is open; commit it before installing")
    wanted = frozenset(phases)
    with _autocommit(conn), _installing(conn, schema, parameters):
        applied = [
            m.name for m in _missing(conn, schema) if m.phase in wanted and _apply(conn, schema, m)
        ]
        _verify(conn, schema)
    return applied


def _named(entries: Iterable[Traversable]) -> Iterator[tuple[str, Traversable]]:
    for entry in entries:
        if entry.name.endswith(".sql") and entry.name[:1].isdigit():
            yield entry.name, entry


def _read(schema: SchemaName, name: str, entry: Traversable) -> Migration:
    matched = _FILE.match(name)
    if matched is None:
        raise ContractMissingError(
            f"schemas/{schema}/{name}: not VV.VV.VV_NN_(pre|post)_what.sql; rename the file"
        )
    raw = entry.read_bytes()
    sql = raw.decode()
    return Migration(
        name=name.removesuffix(".sql"),
        version=matched[1],
        phase="pre" if matched[3] == "pre" else "post",
        sql=sql,
        sha256=hashlib.sha256(raw).hexdigest(),
        transactional=not sql.startswith(_NO_TRANSACTION),
    )


def _missing(conn: psycopg.Connection, schema: SchemaName) -> list[Migration]:
    applied = _applied(conn, schema)
    result = []
    for migration in load(schema):
        known = applied.get(migration.name)
        if known is None:
            result.append(migration)
        elif known != migration.sha256:
            raise MigrationChangedError(
                f"{migration.name}: applied with checksum {known[:12]}…, but this release holds "
                f"{migration.sha256[:12]}…; install the release that applied it, then add a new "
                "migration"
            )
    return result


def _applied(conn: psycopg.Connection, schema: SchemaName) -> dict[str, str]:
    namespace = NAMESPACE[schema]
    present = conn.execute("SELECT to_regclass(%s)", (f"{namespace}.migration",)).fetchone()
    if present is None or present[0] is None:
        return {}
    rows = conn.execute(
        psycopg.sql.SQL("SELECT name, sha256 FROM {}.migration").format(
            psycopg.sql.Identifier(namespace)
        )
    )
    return {str(name): str(sha256) for name, sha256 in rows}


def _apply(conn: psycopg.Connection, schema: SchemaName, migration: Migration) -> bool:
    record = psycopg.sql.SQL("INSERT INTO {}.migration (name, sha256) VALUES (%s, %s)").format(
        psycopg.sql.Identifier(NAMESPACE[schema])
    )
    with _refusals():
        if migration.transactional:
            with conn.transaction():
                conn.execute(migration.sql.encode())
                conn.execute(record, (migration.name, migration.sha256))
        else:
            conn.execute(migration.sql.encode())
            conn.execute(record, (migration.name, migration.sha256))
    return True


def _verify(conn: psycopg.Connection, schema: SchemaName) -> None:
    check = files("schemas").joinpath(schema, "verify.sql")
    if check.is_file():
        with _refusals():
            conn.execute(check.read_bytes())


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what our own SQL refuses into the error that carries its text and its hint."""
    try:
        yield
    except (
        psycopg.errors.InvalidParameterValue,
        psycopg.errors.ObjectNotInPrerequisiteState,
    ) as error:
        hint = f"; {error.diag.message_hint}" if error.diag.message_hint else ""
        raise InstallRefusedError(f"{error.diag.message_primary}{hint}") from error


@contextmanager
def _autocommit(conn: psycopg.Connection) -> Iterator[None]:
    before = conn.autocommit
    conn.autocommit = True
    try:
        yield
    finally:
        if not conn.closed:
            conn.autocommit = before


@contextmanager
def _installing(
    conn: psycopg.Connection, schema: SchemaName, parameters: Mapping[str, str | int]
) -> Iterator[None]:
    """Hold the installation lock, with the version table present and the parameters set."""
    namespace = psycopg.sql.Identifier(NAMESPACE[schema])
    names = _settings(parameters)
    key = f"tailrace.install.{schema}"
    with conn.transaction():  # the wait for another installer is bounded, the lock outlives this
        conn.execute("SELECT set_config('lock_timeout', %s, true)", (f"{_LOCK_WAIT_MS}ms",))
        conn.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (key,))
    try:
        for name, value in names.items():
            conn.execute("SELECT set_config(%s, %s, false)", (name, value))
        with conn.transaction():
            conn.execute("SET LOCAL client_min_messages = warning")
            conn.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(namespace))
            conn.execute(
                psycopg.sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {}.migration (name text PRIMARY KEY,"
                    " sha256 text NOT NULL,"
                    " applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),"
                    " applied_by text NOT NULL DEFAULT session_user)"
                ).format(namespace)
            )
        yield
    finally:
        if not conn.closed:
            for name in names:
                conn.execute("SELECT set_config(%s, '', false)", (name,))
            conn.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", (key,))


def _settings(parameters: Mapping[str, str | int]) -> dict[str, str]:
    for name in parameters:
        if _PARAMETER.match(name) is None:
            raise InstallRefusedError(f"parameter {name!r}: use lower-case letters, digits and _")
    return {f"tailrace.{name}": str(value) for name, value in parameters.items()}
