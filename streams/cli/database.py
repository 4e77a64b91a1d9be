"""Databases as commands use them: one short connection, named statements, rows by column name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from schemas.queries import Query, load_queries, parse
from streams.cli.errors import ConfigurationError, UnavailableError

Connection = psycopg.Connection[dict[str, Any]]

CONNECT_TIMEOUT_S: Final = 5
STATEMENT_TIMEOUT_MS: Final = 120_000
_PARTS: Final = ("catalogue", "audit", "facts", "pauses", "rejections", "carry")


@contextmanager
def connected(
    dsn: str,
    what: str,
    statement_ms: int = STATEMENT_TIMEOUT_MS,
    connect_s: int = CONNECT_TIMEOUT_S,
) -> Iterator[Connection]:
    """A connection in autocommit, closed at the end; times in UTC.

    Args:
        dsn: where; never shown.
        what: how errors name it, such as `the ledger`.
        statement_ms: how long one statement may take.
        connect_s: how long an address may take to answer.

    Raises:
        UnavailableError: nobody answers there.
        ConfigurationError: the DSN is none, or the login is refused.
    """
    connection = _connect(dsn, what, statement_ms, connect_s)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Everything that is read in it is of one moment; nothing can be written."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    with connection.transaction():
        yield


def login_of(connection: Connection) -> str:
    """Who acts: the login of the connection, whatever account of the machine types."""
    return connection.info.user


def plain(connection: Connection) -> psycopg.Connection[Any]:
    """The same connection for packages that read columns by position."""
    connection.row_factory = psycopg.rows.tuple_row  # type: ignore[assignment]  # a factory per connection
    return connection


def _connect(dsn: str, what: str, statement_ms: int, connect_s: int) -> Connection:
    options = f"-c timezone=UTC -c statement_timeout={statement_ms}"
    try:
        return psycopg.connect(
            dsn,
            autocommit=True,
            connect_timeout=connect_s,
            application_name="tailrace",
            options=options,
            row_factory=dict_row,
        )
    except psycopg.errors.ProgrammingError as error:
        # Its text would show the DSN, password included.
        raise ConfigurationError(
            f"{what}: its DSN is no PostgreSQL connection string",
            fix="give it as postgresql://user@host:port/database",
        ) from error
    except psycopg.OperationalError as error:
        raise UnavailableError(
            f"{what}: {_why_not(str(error))}",
            fix="see `tailrace sandbox status`, or check the DSN and that the server runs",
        ) from error


def _why_not(said: str) -> str:
    """What libpq says of a connection it did not get: the line that names the server's answer.

    It ends with advice on another line, and where a name has several addresses or there are several
    hosts each has a line of its own.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if " failed: " in line or "could not" in line]
    reason = "; ".join(dict.fromkeys(telling or lines[:1])) or "no answer"
    verb = "did not let us in" if "FATAL:" in reason else "is not reachable"
    return f"PostgreSQL {verb}: {reason.removeprefix('connection failed: ')}"


@cache
def statements(package: str) -> Mapping[str, Query]:
    """What a package asks, by name: the statements of its queries.sql."""
    text = files(package).joinpath("queries.sql").read_text(encoding="utf-8")
    return parse(text, origin=f"{package.replace('.', '/')}/queries.sql")


def rows(
    connection: Connection,
    name: str,
    values: Mapping[str, object] | None = None,
    package: str = "streams.cli",
) -> list[dict[str, Any]]:
    """Runs a statement of the commands' own, or of another package's.

    Raises:
        psycopg.Error: the database refused it or went away.
    """
    return _run(connection, statements(package)[name], values)


def row(
    connection: Connection, name: str, values: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """The only row of a statement that always gives one.

    Raises:
        psycopg.Error: the database refused it or went away.
    """
    return rows(connection, name, values)[0]


def decision_rows(
    connection: Connection, name: str, values: Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    """Runs a statement about what people decide.

    Raises:
        psycopg.Error: the ledger refused it or went away.
    """
    return _run(connection, load_queries("ledger", "queries_decisions.sql")[name], values)


def reconcile_rows(
    connection: Connection, name: str, values: Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    """Runs a statement about what Stripe's sums prove.

    Raises:
        psycopg.Error: the ledger refused it or went away.
    """
    return _run(connection, load_queries("ledger", "queries_reconcile.sql")[name], values)


def ledger_rows(
    connection: Connection, name: str, values: Mapping[str, object] | None = None
) -> list[tuple[Any, ...]]:
    """Runs one of the ledger's own statements; columns in their order.

    Raises:
        psycopg.Error: the database refused it or went away.
    """
    files_of = (load_queries("ledger", f"queries_{part}.sql") for part in _PARTS)
    query = next(queries[name] for queries in files_of if name in queries)
    with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute(query.statement, values or {})
        return cursor.fetchall() if cursor.description else []


def _run(
    connection: Connection, query: Query, values: Mapping[str, object] | None
) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(query.statement, values or {})
        return cursor.fetchall() if cursor.description else []
