"""One outbox per test, and a connection of each role to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.support.postgres import Database

Row = dict[str, Any]
Connect = Callable[..., psycopg.Connection[Row]]


@pytest.fixture
def outbox(fresh_database: Callable[..., Database]) -> Database:
    return fresh_database("outbox")


@pytest.fixture
def connect(outbox: Database) -> Iterator[Connect]:
    """Opens connections as a member of the given roles (none: the superuser)."""
    opened: list[psycopg.Connection[Row]] = []

    def open_one(*roles: str, autocommit: bool = True) -> psycopg.Connection[Row]:
        user = outbox.login(*roles) if roles else "postgres"
        opened.append(
            psycopg.connect(
                outbox.dsn(user), autocommit=autocommit, row_factory=psycopg.rows.dict_row
            )
        )
        return opened[-1]

    yield open_one
    for conn in opened:
        conn.close()


@pytest.fixture
def writer(connect: Connect) -> psycopg.Connection[Row]:
    return connect("metering_writer")


@pytest.fixture
def corrector(connect: Connect) -> psycopg.Connection[Row]:
    return connect("metering_corrector")


@pytest.fixture
def ops(connect: Connect) -> psycopg.Connection[Row]:
    return connect("metering_ops")


@pytest.fixture
def admin(connect: Connect) -> psycopg.Connection[Row]:
    return connect()
