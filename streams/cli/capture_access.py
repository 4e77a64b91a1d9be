"""A source's capture as a command reaches it: stack and options → `Capture`."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import requests
from psycopg.conninfo import conninfo_to_dict

from connectors.capture import Capture
from connectors.connect_client import ConnectClient, Waiting
from connectors.source_registry import SourceIdentity, expect, identify
from connectors.source_settings import SourceSettings
from streams.adapters.ledger_catalogue import LedgerSources
from streams.cli.database import connected, plain
from streams.cli.errors import ConfigurationError
from streams.cli.stack import Stack

PATIENCE_S: Final = 20.0
"""How long one request to Connect is repeated: a person waits for this command."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How the Connect worker reaches the service's database, where the DSN does not say it."""

    host: str | None = None
    port: int | None = None
    database: str | None = None
    ssl_mode: str | None = None


def source_settings(stack: Stack, reach: Reach) -> SourceSettings:
    """What the connector is told: taken from the source's DSN, option by option replaced.

    Raises:
        ConfigurationError: the DSN is missing or is none.
    """
    settings = stack.need("source_dsn")
    try:
        parts = conninfo_to_dict(settings.source_dsn)
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            "TAILRACE_SOURCE_DSN is no PostgreSQL connection string",
            fix="give it as postgresql://user@host:port/database",
        ) from error
    return SourceSettings(
        source=settings.source,
        host=reach.host or str(parts.get("host") or "localhost"),
        port=reach.port or int(parts.get("port") or 5432),
        database=reach.database or str(parts.get("dbname") or ""),
        # A sandbox listens on the loopback interface only and has no certificates.
        ssl_mode=reach.ssl_mode or ("disable" if stack.is_sandbox else "verify-full"),
    )


@contextmanager
def connect_client(stack: Stack, patience_s: float = PATIENCE_S) -> Iterator[ConnectClient]:
    """The Connect cluster; its session is closed at the end.

    Args:
        stack: whose.
        patience_s: how long one request is repeated.

    Raises:
        ConfigurationError: its address is not set.
    """
    settings = stack.need("connect_url")
    waiting = Waiting(time.sleep, time.monotonic, random.random, total_s=patience_s)
    with requests.Session() as session:
        yield ConnectClient(settings.connect_url, session, waiting)


@contextmanager
def sources(stack: Stack) -> Iterator[LedgerSources]:
    """Where registered sources are remembered: the ledger."""
    settings = stack.need("ledger_dsn")
    with connected(settings.ledger_dsn, "the ledger") as connection:
        yield LedgerSources(plain(connection))


def seen_identity(stack: Stack) -> SourceIdentity:
    """Which cluster and timeline answers under the source's DSN now."""
    settings = stack.need("source_dsn")
    with connected(settings.source_dsn, "the service's database") as connection:
        return identify(plain(connection), settings.source)


@contextmanager
def capture_of(stack: Stack, reach: Reach, patience_s: float = PATIENCE_S) -> Iterator[Capture]:
    """Everything needed to look at a source's capture and to change it.

    Args:
        stack: whose source.
        reach: how Connect reaches the database.
        patience_s: how long one request to Connect is repeated.

    Raises:
        SourceUnknownError: the source was never registered.
    """
    wanted = source_settings(stack, reach)
    dsn = stack.settings.source_dsn
    with sources(stack) as store:
        identity = expect(store, wanted.source)

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(dsn, autocommit=True, connect_timeout=5)

    with connect_client(stack, patience_s) as client:
        yield Capture(wanted, identity, client, connect)
