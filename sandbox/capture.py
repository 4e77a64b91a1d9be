"""The sandbox's capture: its connector is applied, started, watched and released.

Each start is behind the slot guard, and every session with Connect is closed again.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import psycopg
import requests

from connectors import apply as capture_apply
from connectors import names
from connectors.capture import Capture
from connectors.connect_client import ConnectClient, Waiting
from connectors.guard_findings import GuardFinding, Severity, Start
from connectors.source_registry import expect, identify, register
from connectors.source_settings import SourceSettings
from sandbox import provision
from streams.adapters.ledger_catalogue import LedgerSources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.installation import Installation

FIRST_POSITION_S: Final = 30.0
PATIENCE_S: Final = 120.0
"""How long a request to Connect is repeated while the stack starts or runs."""
RELEASE_S: Final = 5.0
"""The same while it stops: a worker that does not answer is ended with its connector running."""
RELEASED_S: Final = 8.0
"""How long the connector may take to stop."""

UNDER_WAY: Final = """
SELECT extract(epoch FROM clock_timestamp() - min(sent.received_at))::float8
FROM metering.canary AS sent
LEFT JOIN unnest(%s::integer[], %s::timestamptz[]) AS came (partition, received_at)
    USING (partition)
WHERE came.received_at IS NULL OR sent.received_at > came.received_at
"""


def capture(installation: Installation) -> str:
    """Registers the source, applies the connector, and starts it behind the slot guard."""
    with capture_of(installation) as held:
        return _begin(installation, held)


def _begin(installation: Installation, held: Capture) -> str:
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

    prefix = names.topic_prefix(provision.SOURCE)

    def stored() -> bool | None:
        return held.client.offsets(held.name).of(prefix) is not None or None

    if held.client.waiting.until(stored, FIRST_POSITION_S) is None:
        message = f"no row came through capture within {FIRST_POSITION_S:.0f} s; see connect.log"
        raise RuntimeError(message)


def release_capture(installation: Installation) -> str:
    """Stops the connector before its worker, so that it ends with a stored position.

    Raises:
        ConnectError: Connect does not answer, or the connector does not stop, within seconds.
    """
    with connect_client(installation, RELEASE_S) as client:
        client.stop_and_wait(names.connector_name(provision.SOURCE), within_s=RELEASED_S)
    return "connector STOPPED"


def look(installation: Installation) -> str | None:
    """Heals the connector and looks at it through the guard.

    Returns:
        What is wrong, with the repair; None when rows flow, or when somebody stopped it on purpose.

    Raises:
        CaptureError: Connect is away, or the source is not registered.
        psycopg.Error: The database is away.
    """
    with capture_of(installation) as held:
        return _looked_at(installation, held)


def _looked_at(installation: Installation, held: Capture) -> str | None:
    with psycopg.connect(installation.dsn("ledger"), autocommit=True) as ledger:
        held = replace(held, identity=expect(LedgerSources(ledger), provision.SOURCE))
    healed = capture_apply.heal(held)
    if healed.health is capture_apply.Health.LEFT_ALONE:
        return None
    if healed.health is not capture_apply.Health.RUNNING:
        why = "; ".join(str(finding) for finding in healed.findings)
        return f"connector {healed.health.value} after {healed.restarts} restarts; {why}"
    findings = capture_apply.protect(held, canary_age_s(installation))
    return "; ".join(str(finding) for finding in findings if _is_news(finding)) or None


def _is_news(finding: GuardFinding) -> bool:
    """Refusals, and rows that do not arrive; a lag that grows is what `source guard` shows."""
    return finding.severity is Severity.REFUSE or finding.rule == "canary-old"


def canary_age_s(installation: Installation) -> float | None:
    """How long the oldest canary is under way that was sent and did not come through yet.

    Nobody here sends canaries at regular times, so the age of the last that arrived says nothing.

    Raises:
        psycopg.Error: One of the databases is away.
    """
    with psycopg.connect(installation.dsn("ledger"), autocommit=True) as ledger:
        came = ledger.execute(
            "SELECT partition, received_at FROM ledger.canary WHERE source = %s",
            (provision.SOURCE,),
        ).fetchall()
    with psycopg.connect(installation.dsn("service"), autocommit=True) as service:
        columns = [[row[0] for row in came], [row[1] for row in came]]
        row = service.execute(UNDER_WAY, columns).fetchone()
    return None if row is None else row[0]


@contextmanager
def capture_of(installation: Installation) -> Iterator[Capture]:
    """The sandbox's source, its connector, and how to reach both; the session is closed at the end.

    Raises:
        psycopg.Error: The database is away.
    """
    dsn = installation.dsn("service")
    settings = SourceSettings(
        source=provision.SOURCE,
        host=installation.database_of_connect.host,
        port=installation.database_of_connect.port,
        database="service",
        ssl_mode="disable",
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        identity = identify(connection, provision.SOURCE)
    with connect_client(installation, PATIENCE_S) as client:
        yield Capture(settings, identity, client, lambda: psycopg.connect(dsn, autocommit=True))


@contextmanager
def connect_client(installation: Installation, patience_s: float) -> Iterator[ConnectClient]:
    """The Connect worker; one request is repeated for so many seconds."""
    waiting = Waiting(time.sleep, time.monotonic, random.random, total_s=patience_s)
    with requests.Session() as session:
        yield ConnectClient(installation.connect_url, session, waiting)
