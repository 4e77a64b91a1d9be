"""What turns running processes into a stack: schemas, logins, topics, meters, capture.

Every step is repeatable: the next start runs it again over the kept data and changes nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import psycopg
import requests
from psycopg import sql

from connectors import apply as capture_apply
from connectors import names
from connectors.capture import Capture
from connectors.connect_client import ConnectClient, Waiting
from connectors.guard_findings import Start, must_stop
from connectors.source_registry import expect, identify, register
from connectors.source_settings import SourceSettings
from sandbox.stripe import METERS_FILE
from schemas.errors import MigrationChangedError
from schemas.migrations import install
from streams import topics
from streams.adapters.ledger import open_ledger
from streams.adapters.ledger_catalogue import LedgerSources
from streams.core.meters_file import parse, plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.install import Installation
    from schemas.migrations import SchemaName
    from streams.core.catalogue import MeterVersion

SOURCE: Final = "sandbox"
PARTITIONS: Final = 12
CORRECTION_LIMIT: Final = 100
ACTOR: Final = "sandbox"
FIRST_POSITION_S: Final = 30.0


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
        message = f"{problem}; or start afresh, without the kept data: `sandbox down --wipe`"
        raise KeptDataError(message) from problem


def topics_step(installation: Installation) -> str:
    """The topics, with their partition count for ever."""
    done = topics.apply(installation.bootstrap, partitions=PARTITIONS, replication=1)
    return f"{len(topics.TOPICS)} topics, {PARTITIONS} partitions" + (
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


def capture(installation: Installation) -> str:
    """Registers the source, applies the connector, and starts it behind the slot guard."""
    held = capture_of(installation)
    with psycopg.connect(installation.dsn("ledger"), autocommit=True) as ledger:
        new = register(LedgerSources(ledger), held.identity)
    done = capture_apply.apply(held)
    # Without a stored position a start is only harmless before a row could have been captured; a
    # connector that is new to Connect may only mean that Kafka's data was deleted.
    first = new or _nothing_recorded(installation)
    status = capture_apply.start(held, Start.FIRST if first else Start.GO_ON)
    if first:
        _first_position(installation, held)
    return f"connector {status.state}, {done.outcome.value}"


def _nothing_recorded(installation: Installation) -> bool:
    with psycopg.connect(installation.dsn("service"), autocommit=True) as service:
        row = service.execute(
            "SELECT EXISTS (SELECT FROM metering.usage_outbox)"
            " OR EXISTS (SELECT FROM metering.usage_key)"
        ).fetchone()
    return row == (False,)


def _first_position(installation: Installation, held: Capture) -> None:
    """Lets the first rows through, so that from now on a missing position means a lost one."""
    with psycopg.connect(installation.dsn("service"), autocommit=True) as service:
        service.execute("SELECT metering.emit_canaries()")

    def stored() -> bool | None:
        return held.client.offsets(held.name).of(names.topic_prefix(SOURCE)) is not None or None

    if held.client.waiting.until(stored, FIRST_POSITION_S) is None:
        message = f"no row came through capture within {FIRST_POSITION_S:.0f} s; see connect.log"
        raise RuntimeError(message)


def release_capture(installation: Installation) -> str:
    """Stops the connector before its worker, so that it ends with a stored position."""
    held = capture_of(installation)
    held.client.stop_and_wait(held.name, within_s=20.0)
    return "connector STOPPED"


def look(installation: Installation) -> str | None:
    """Heals the connector and looks at it through the guard.

    Returns:
        What is wrong, with the repair; None when rows flow, or when somebody stopped it on purpose.

    Raises:
        CaptureError: Connect is away, or the source is not registered.
        psycopg.Error: The database is away.
    """
    held = capture_of(installation)
    with psycopg.connect(installation.dsn("ledger"), autocommit=True) as ledger:
        held = replace(held, identity=expect(LedgerSources(ledger), SOURCE))
    healed = capture_apply.heal(held)
    if healed.health is capture_apply.Health.LEFT_ALONE:
        return None
    if healed.health is not capture_apply.Health.RUNNING:
        why = "; ".join(str(finding) for finding in healed.findings)
        return f"connector {healed.health.value} after {healed.restarts} restarts; {why}"
    refused = must_stop(capture_apply.protect(held))
    return "; ".join(str(finding) for finding in refused) or None


def capture_of(installation: Installation) -> Capture:
    """The sandbox's source, its connector, and how to reach both."""
    dsn = installation.dsn("service")
    settings = SourceSettings(
        source=SOURCE,
        host=installation.database_of_connect.host,
        port=installation.database_of_connect.port,
        database="service",
        ssl_mode="disable",
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        identity = identify(connection, SOURCE)
    client = ConnectClient(
        installation.connect_url,
        requests.Session(),
        Waiting(sleep=time.sleep, monotonic=time.monotonic, random=random.random),
    )
    return Capture(settings, identity, client, lambda: psycopg.connect(dsn, autocommit=True))


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
