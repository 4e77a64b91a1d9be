"""A service's own tests, with the plugin, on a real outbox: nothing is committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.postgres import Database
from tests.support.stack import ROOT

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.postgres

CONNECTIONS: Final = {
    "psycopg": """
        import psycopg
        @pytest.fixture
        def conn():
            with psycopg.connect(URL) as opened:
                yield opened
                opened.rollback()
        def run(conn, sql):
            conn.execute(sql)
    """,
    "psycopg_dict": """
        import psycopg
        @pytest.fixture
        def conn():
            with psycopg.connect(URL, row_factory=psycopg.rows.dict_row) as opened:
                yield opened
                opened.rollback()
        def run(conn, sql):
            conn.execute(sql)
    """,
    "sqlalchemy": """
        from sqlalchemy import create_engine, text
        from sqlalchemy.orm import Session
        class OurSession(Session):
            pass
        @pytest.fixture
        def conn():
            engine = create_engine(URL.replace("postgresql", "postgresql+psycopg"))
            with OurSession(engine) as opened:
                yield opened
                opened.rollback()
            engine.dispose()
        def run(conn, sql):
            conn.execute(text(sql.replace(":", "\\\\:")))
    """,
    "django": """
        from urllib.parse import urlsplit
        import django
        from django.conf import settings
        place = urlsplit(URL)
        settings.configure(DATABASES={"default": {
            "ENGINE": "django.db.backends.postgresql", "NAME": place.path[1:],
            "HOST": place.hostname, "PORT": place.port, "USER": place.username}})
        django.setup()
        from django.db import connection, transaction
        @pytest.fixture
        def conn():
            with transaction.atomic():
                yield connection
                transaction.set_rollback(True)
            connection.close()
        def run(conn, sql):
            with conn.cursor() as cursor:
                cursor.execute(sql)
    """,
}
TESTS: Final = """
import os
from datetime import UTC, datetime
from decimal import Decimal
import pytest
URL = os.environ["DATABASE_URL"]
{connection}

def record(conn, key, quantity, at="NULL"):
    run(conn, f"SELECT metering.record_usage('acme', 'orders', {{quantity}}, '{{key}}', {{at}})")

def test_recorded(conn, usage_recorded):
    record(conn, "k1", "1.50", "'2026-11-29T15:01:09.817658Z'")
    row = usage_recorded(
        conn, "acme", "k1", metric="orders", quantity=Decimal("1.5"),
        occurred_at=datetime(2026, 11, 29, 15, 1, 9, 817658, UTC))
    assert row.quantity == Decimal("1.5")
    assert row.received_at.tzinfo is not None
    assert usage_recorded(conn, "acme", "k1", quantity="1.500") == row

def test_rolled_back_since(conn, usage_not_recorded):
    usage_not_recorded(conn, "acme", "k1")

def test_fails_as_nothing_is_there(conn, usage_recorded):
    usage_recorded(conn, "acme", "k1")

def test_fails_as_it_is_something_else(conn, usage_recorded):
    record(conn, "k1", 3)
    usage_recorded(conn, "acme", "k1", metric="exports", quantity=4)

def test_fails_as_there_is_a_conflict(conn, usage_recorded):
    record(conn, "k1", 3)
    record(conn, "k1", 4)
    usage_recorded(conn, "acme", "k1", quantity=3, conflicts=1)
    usage_recorded(conn, "acme", "k1", quantity=3)

def test_fails_as_it_is_there(conn, usage_not_recorded):
    record(conn, "k1", 3)
    usage_not_recorded(conn, "acme", "k1")
"""


@pytest.mark.parametrize("library", CONNECTIONS)
def test_a_service_s_own_tests_see_their_own_transaction(
    library: str,
    fresh_database: Callable[..., Database],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = fresh_database("outbox")
    login = database.login("metering_writer")
    url = f"postgresql://{login}@127.0.0.1:{database.server.port}/{database.name}"
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("PYTHONPATH", str(Path(ROOT, "clients", "pytest-tailrace")))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    connection = "\n".join(line[8:] for line in CONNECTIONS[library].splitlines())
    pytester.makepyfile(TESTS.format(connection=connection))
    result = pytester.runpytest_subprocess("-p", "pytest_tailrace")
    result.assert_outcomes(passed=2, failed=4)
    result.stdout.fnmatch_lines_random(
        [
            "E*no usage is recorded for 'acme' under the key 'k1'",
            "E*the key 'k1': metric is orders, not exports; quantity is 3, not 4",
            "E*the key 'k1': conflicts is 1, not 0",
            "E*the key 'k1' is recorded: 3 of orders",
        ]
    )
    with database.connect() as conn:
        (rows,) = conn.execute("SELECT count(*) FROM metering.usage_key").fetchone() or (None,)
    assert rows == 0, "nothing of it was committed"
