"""What is installed once the processes run: databases, schemas, topics, connector → named steps.

Every step is repeatable: the next start runs it again over the kept data and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from sandbox import capture, provision
from sandbox.postgres import DATABASES, SUPERUSER
from sandbox.runner import Step
from streams.cli.errors import UsageProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.secrets import Secrets

WRITER = "service_writer"
OPS = "service_ops"
LEDGER = "ledger_worker"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int


def address(text: str) -> Address:
    """The address in `HOST:PORT`.

    Raises:
        UsageProblemError: The text has another form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        fix = "write it as 127.0.0.1:5432"
        raise UsageProblemError(f"address {text!r}: expected HOST:PORT", fix=fix)
    return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class Installation:
    """The addresses and passwords the steps work with."""

    database: Address
    """The database server, as seen from here."""
    database_of_connect: Address
    """The same, as seen from Connect."""
    secrets: Secrets
    bootstrap: str
    connect_url: str

    def dsn(self, database: str, login: str = SUPERUSER, password: str | None = None) -> str:
        """A connection string of the URL form; the superuser's unless a login is named."""
        secret = password or self.secrets.superuser
        where = f"{self.database.host}:{self.database.port}"
        return f"postgresql://{login}:{secret}@{where}/{database}"

    @property
    def writer_login(self) -> str:
        """Who records usage."""
        return WRITER

    @property
    def ops_login(self) -> str:
        """Who audits the service's database."""
        return OPS

    @property
    def ledger_login(self) -> str:
        """Who the workers are in the ledger."""
        return LEDGER

    @property
    def writer_dsn(self) -> str:
        """The login of the service that records usage."""
        return self.dsn("service", WRITER, self.secrets.writer)

    @property
    def ops_dsn(self) -> str:
        """The login of workers and auditors to the service's database."""
        return self.dsn("service", OPS, self.secrets.ops)

    @property
    def ledger_dsn(self) -> str:
        """The login of workers to the ledger."""
        return self.dsn("ledger", LEDGER, self.secrets.ledger)


def steps(installation: Installation) -> list[Step]:
    """The steps in order; each names the parts and steps it needs."""
    return [
        Step("databases", lambda: databases(installation), after=("postgres",)),
        Step("outbox", lambda: provision.outbox_schema(installation), after=("databases",)),
        # Not beside the outbox: PostgreSQL fails to create a logical slot inside a block while
        # another database's catalogue changes ("snapshot reference is not owned").
        Step("ledger", lambda: provision.ledger_schema(installation), after=("outbox",)),
        Step("topics", lambda: provision.topics_step(installation), after=("kafka",)),
        Step("meters", lambda: provision.meters(installation), after=("ledger", "outbox")),
        Step(
            "capture",
            lambda: capture.capture(installation),
            after=("connect", "outbox", "ledger", "topics"),
            undo=lambda: capture.release_capture(installation),
        ),
    ]


def run_all(installation: Installation, say: Callable[[str], None]) -> None:
    """Does every step, one after the other: for a stack that somebody else runs.

    Raises:
        Exception: Whatever a step raises; the steps before it are done and harmless to repeat.
    """
    for step in steps(installation):
        say(f"{step.name}: {step.run()}")


def databases(installation: Installation) -> str:
    """Creates the two databases and the logins."""
    logins = {
        WRITER: installation.secrets.writer,
        OPS: installation.secrets.ops,
        LEDGER: installation.secrets.ledger,
    }
    with psycopg.connect(installation.dsn("postgres"), autocommit=True) as connection:
        for database in DATABASES:
            if not _exists(connection, "SELECT 1 FROM pg_database WHERE datname = %s", database):
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        for login, password in logins.items():
            if not _exists(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", login):
                connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(login)))
            connection.execute(
                sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(
                    sql.Identifier(login), sql.Literal(password)
                )
            )
    return ", ".join(DATABASES)


def _exists(connection: psycopg.Connection, question: str, name: str) -> bool:
    return connection.execute(question.encode(), (name,)).fetchone() is not None
