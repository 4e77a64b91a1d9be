"""The same order service in six languages: an order and its usage are both there, or neither."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.integration.examples.service import EXAMPLES, OTHERS, PYTHON, Service, running
from tests.support.postgres import Database, PostgresServer

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]
Conn = psycopg.Connection[tuple[Any, ...]]

NAMES = [
    *(pytest.param(name, id=name) for name in PYTHON),
    *(pytest.param(name, id=name, marks=pytest.mark.downloads) for name in OTHERS),
]
CALL = re.compile(r"metering begins\n(.*?metering ends)", re.DOTALL)


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    made = postgres_server.create("outbox")
    login = made.login("metering_writer")
    with made.connect() as conn:
        conn.execute((EXAMPLES / "orders.sql").read_bytes())
        conn.execute(f"ALTER TABLE orders OWNER TO {login}".encode())
    yield made
    postgres_server.drop(made)


@pytest.fixture(scope="module", params=NAMES)
def service(request: pytest.FixtureRequest, database: Database) -> Iterator[Service]:
    with running(request.param, database, database.login("metering_writer")) as started:
        yield started


@pytest.fixture
def conn(database: Database) -> Iterator[Conn]:
    with database.connect() as opened:
        yield opened


def ordered(conn: Conn, order: str) -> list[tuple[Any, ...]]:
    """What the service has of an order."""
    return conn.execute("SELECT tenant_id, items FROM orders WHERE id = %s", (order,)).fetchall()


def counted(conn: Conn, order: str) -> list[tuple[Any, ...]]:
    """What goes to the bill of it: every row that is sent, joined with its identity."""
    return conn.execute(
        "SELECT k.tenant_id, k.metric, k.quantity::integer FROM metering.usage_key AS k"
        " JOIN metering.usage_outbox AS o USING (event_id) WHERE k.event_key = %s",
        (order,),
    ).fetchall()


def test_what_is_committed_counts_once(service: Service, conn: Conn) -> None:
    order = f"{service.name}-1"
    assert service.place(f"{order} acme 3")[0] == "recorded"
    assert ordered(conn, order) == [("acme", 3)]
    assert counted(conn, order) == [("acme", "orders", 3)]


def test_what_is_rolled_back_counts_nothing(service: Service, conn: Conn) -> None:
    order = f"{service.name}-2"
    status, text = service.place(f"{order} acme 3 fail")
    assert (status, "on fire" in text) == ("rolled", True)
    assert (ordered(conn, order), counted(conn, order)) == ([], [])
    assert service.place(f"{order} acme 3")[0] == "recorded", "the key is still free"
    assert counted(conn, order) == [("acme", "orders", 3)]


def test_a_second_call_with_the_same_key_returns_the_first_row(
    service: Service, conn: Conn
) -> None:
    order = f"{service.name}-3"
    status, first = service.place(f"{order} acme 3")
    assert status == "recorded"
    assert service.place(f"{order} acme 3") == ("duplicate", first)
    assert counted(conn, order) == [("acme", "orders", 3)]


def test_other_content_under_the_same_key_is_a_clear_error_and_changes_nothing(
    service: Service, conn: Conn
) -> None:
    order = f"{service.name}-4"
    service.place(f"{order} acme 3")
    status, text = service.place(f"{order} acme 4")
    assert status == "rolled"
    assert "event_key: already recorded with other content" in text
    assert ordered(conn, order) == [("acme", 3)]
    assert counted(conn, order) == [("acme", "orders", 3)]
    assert service.place(f"{order} acme 3")[0] == "duplicate", "the service goes on"


@pytest.mark.parametrize("name", [*PYTHON, *OTHERS])
def test_the_metering_call_is_at_most_five_lines(name: str) -> None:
    folder = EXAMPLES / name
    sources = [*folder.glob("orders.*"), *folder.glob("main.go"), *folder.rglob("Orders.java")]
    (call,) = [found for path in sources for found in CALL.findall(path.read_text("utf-8"))]
    assert len(call.splitlines()) <= 5


def test_every_example_is_run_and_says_how(conn: Conn) -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == {*PYTHON, *OTHERS}
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for name in folders:
        assert f"`{name}`" in listed
        assert len((EXAMPLES / name / "README.md").read_text("utf-8").splitlines()) <= 10
