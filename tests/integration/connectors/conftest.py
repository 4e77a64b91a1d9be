from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest

from connectors.capture import Capture
from connectors.connect_client import ConnectClient
from connectors.source_config import SourceSettings
from connectors.source_registry import identify
from tests.integration.connectors.outbox import Outbox, install
from tests.support.postgres import PostgresServer
from tests.unit.connectors.fake_connect import FakeConnect, FakeTime, connected


@pytest.fixture
def outbox(postgres_server: PostgresServer) -> Iterator[Outbox]:
    """An outbox with its slot, in a database of its own; the slot goes with it."""
    database = postgres_server.create()
    yield install(database.dsn(), database.name, f"capture_{database.name}")
    postgres_server.drop(database)


@pytest.fixture
def fake() -> FakeConnect:
    return FakeConnect()


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def client(fake: FakeConnect, time: FakeTime) -> Iterator[ConnectClient]:
    with connected(fake, time) as made:
        yield made


@pytest.fixture
def capture(outbox: Outbox, client: ConnectClient) -> Capture:
    """A registered source whose connector runs on a Connect that the test plays."""
    settings = settings_of(outbox, "shop")
    with outbox.connect() as connection:
        identity = identify(connection, "shop")
    return Capture(settings, identity, client, outbox.connect)


def settings_of(outbox: Outbox, source: str) -> SourceSettings:
    info = psycopg.conninfo.conninfo_to_dict(outbox.dsn)
    return SourceSettings(
        source=source,
        host=str(info["host"]),
        port=int(str(info["port"])),
        database=outbox.database,
        ssl_mode="disable",
        slot=outbox.slot,
        publication=outbox.publication,
    )


def fresh_name(prefix: str) -> str:
    """A name no other run uses."""
    return f"{prefix}{random.SystemRandom().randrange(1 << 40):x}"
