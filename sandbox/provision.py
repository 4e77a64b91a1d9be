"""What turns running processes into a stack: schemas, logins, topics, meters.

Every step is repeatable: the next start runs it again over the kept data and changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from sandbox.stripe import METERS_FILE
from schemas.errors import MigrationChangedError
from schemas.migrations import install
from streams import topics
from streams.adapters.ledger import open_ledger
from streams.core.meters_file import parse, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.installation import Installation
    from schemas.migrations import SchemaName
    from streams.core.catalogue import MeterVersion

SOURCE: Final = "sandbox"
PARTITIONS: Final = 12
CORRECTION_LIMIT: Final = 100
ACTOR: Final = "sandbox"


class KeptDataError(Exception):
    """The data of an earlier sandbox does not fit this version. The message names both ways on."""


def outbox_schema(installation: Installation) -> str:
    """The service's side: outbox, publication, slot, and who may use what."""
    with psycopg.connect(installation.dsn("service"), autocommit=True) as connection:
        parameters: dict[str, str | int] = {"source": SOURCE, "partitions": PARTITIONS}
        applied = _install(connection, "outbox", parameters)
        _grant(connection, installation.writer_login, "metering_writer", "metering_corrector")
        _grant(connection, installation.ops_login, "metering_ops")
        _set_password(connection, "metering_cdc", installation.secrets.cdc)
    return _said(applied)


def ledger_schema(installation: Installation) -> str:
    """The ledger's side."""
    with psycopg.connect(installation.dsn("ledger"), autocommit=True) as connection:
        applied = _install(connection, "ledger", {})
        _grant(connection, installation.ledger_login, "ledger_service", "ledger_finance")
    return _said(applied)


def _install(
    connection: psycopg.Connection, schema: SchemaName, parameters: Mapping[str, str | int]
) -> list[str]:
    """Installs a schema.

    Raises:
        KeptDataError: The kept data was made by another version of the migrations.
    """
    try:
        return install(connection, schema, parameters=parameters)
    except MigrationChangedError as problem:
        message = (
            f"{problem}; or start afresh, without the kept data: `tailrace sandbox down --wipe`"
        )
        raise KeptDataError(message) from problem


def topics_step(installation: Installation, note_partitions: Callable[[int], None]) -> str:
    """The topics, with as many partitions as they have grown to."""
    partitions = topics.counts(installation.bootstrap).get(topics.EVENTS, PARTITIONS)
    done = topics.apply(installation.bootstrap, partitions=partitions, replication=1)
    note_partitions(partitions)
    return f"{len(topics.TOPICS)} topics, {partitions} partitions" + (
        "" if done else ", as they were"
    )


def meters(installation: Installation) -> str:
    """The meters: into the ledger's catalogue, then to the service, which refuses others."""
    added = asyncio.run(_append_meters(installation))
    with psycopg.connect(installation.dsn("service"), autocommit=True) as connection:
        for name, scale in sorted(added.items()):
            connection.execute(
                "INSERT INTO metering.metric (name, scale, correction_limit) VALUES (%s, %s, %s)"
                " ON CONFLICT (name) DO NOTHING",
                (name, scale, CORRECTION_LIMIT),
            )
    return ", ".join(sorted(added))


async def _append_meters(installation: Installation) -> dict[str, int]:
    wanted = parse(METERS_FILE.read_text(encoding="utf-8"))
    async with open_ledger(installation.ledger_dsn) as ledger:
        history, now_us = await ledger.load_catalogue()
        known = {line.metric for line in history}
        # A running sandbox keeps the rule book it was given; `tailrace meters apply` changes it.
        additions, problems = plan(history, wanted, now_us, await ledger.catalogue.notice_us())
        first: list[MeterVersion] = [line for line in additions if line.metric not in known]
        if problems or not wanted.wanted:
            message = "; ".join(str(problem) for problem in (*wanted.problems, *problems))
            raise ValueError(message)
        if first:
            await ledger.catalogue.append_meters(first, ACTOR)
        lines, _ = await ledger.load_catalogue()
    return {line.metric: line.scale for line in lines}


def _grant(connection: psycopg.Connection, login: str, *roles: str) -> None:
    for role in roles:
        connection.execute(
            sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(login))
        )


def _set_password(connection: psycopg.Connection, login: str, password: str) -> None:
    connection.execute(
        sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(login), sql.Literal(password))
    )


def _said(applied: list[str]) -> str:
    return f"{len(applied)} migrations applied" if applied else "up to date"
