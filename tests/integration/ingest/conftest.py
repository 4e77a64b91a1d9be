"""One outbox a test, or one for all where tests keep out of each other's way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.integration.ingest.endpoint import Endpoint, serving
from tests.support.postgres import Database, PostgresServer

Row = dict[str, Any]
Conn = psycopg.Connection[Row]


@pytest.fixture
def outbox(fresh_database: Callable[..., Database]) -> Database:
    return fresh_database("outbox")


@pytest.fixture
def dsn(outbox: Database) -> str:
    """Of a writer."""
    return outbox.dsn(outbox.login("metering_writer"))


@pytest.fixture
def admin(outbox: Database) -> Iterator[Conn]:
    with psycopg.connect(outbox.dsn(), autocommit=True, row_factory=psycopg.rows.dict_row) as conn:
        yield conn


@pytest.fixture(scope="module")
def common(postgres_server: PostgresServer) -> Iterator[Database]:
    """For tests that record under keys of their own and break nothing."""
    database = postgres_server.create("outbox")
    yield database
    postgres_server.drop(database)


@pytest.fixture(scope="module")
def shop(common: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A producer of the common outbox."""
    folder = tmp_path_factory.mktemp("ingest")
    with serving(common.dsn(common.login("metering_writer")), folder) as endpoint:
        yield endpoint


@pytest.fixture
def books(common: Database) -> Iterator[Conn]:
    """The common outbox as its superuser sees it."""
    with psycopg.connect(common.dsn(), autocommit=True, row_factory=psycopg.rows.dict_row) as conn:
        yield conn
