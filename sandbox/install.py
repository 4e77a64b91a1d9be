"""What is installed once the processes run: databases, schemas, topics, connector → named steps.

Every step is repeatable: the next start runs it again over the kept data and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from sandbox import capture, provision
from sandbox.installation import LEDGER, OPS, WRITER
from sandbox.postgres import DATABASES
from sandbox.runner import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.installation import Installation


def steps(installation: Installation, note_partitions: Callable[[int], None]) -> list[Step]:
    """The steps in order; each names the parts and steps it needs.

    Args:
        installation: addresses and passwords.
        note_partitions: told how many partitions the topics have, once that is known.
    """
    return [
        Step("databases", lambda: databases(installation), after=("postgres",)),
        Step("outbox", lambda: provision.outbox_schema(installation), after=("databases",)),
        # Not beside the outbox: PostgreSQL fails to create a logical slot inside a block while
        # another database's catalogue changes ("snapshot reference is not owned").
        Step("ledger", lambda: provision.ledger_schema(installation), after=("outbox",)),
        Step(
            "topics",
            lambda: provision.topics_step(installation, note_partitions),
            after=("kafka",),
        ),
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
    for step in steps(installation, _note_nowhere):
        say(f"{step.name}: {step.run()}")


def _note_nowhere(_partitions: int) -> None:
    """Whoever runs that stack says it to the workers."""


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
