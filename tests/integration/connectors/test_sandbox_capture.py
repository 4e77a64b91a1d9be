"""The sandbox's own capture: what it watches, what it leaves open, and how long it waits."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psycopg
import pytest
import requests

from connectors.errors import ConnectUnavailableError
from sandbox import capture
from sandbox.installation import Address, Installation
from sandbox.secrets import same
from schemas.migrations import install
from tests.support.postgres import Database, PostgresServer
from tests.unit.connectors.fake_connect import FakeConnect, serving

pytestmark = pytest.mark.postgres
NAME = "outbox-sandbox"


@dataclass(frozen=True, slots=True)
class Here(Installation):
    """The two databases of a test, where the sandbox has its own."""

    databases: Mapping[str, Database]

    def dsn(self, database: str, login: str = "postgres", password: str | None = None) -> str:
        del password  # the server of the tests asks for none
        return self.databases[database].dsn(login)


@pytest.fixture
def fake() -> FakeConnect:
    return FakeConnect()


@pytest.fixture
def here(postgres_server: PostgresServer, fake: FakeConnect) -> Iterator[Here]:
    ledger = postgres_server.create("ledger")
    with postgres_server.admin.connect() as admin:
        admin.execute("CREATE DATABASE service")
    # The guard compares the name with the one that the connector is told.
    service = Database(postgres_server, "service")
    try:
        with service.connect() as connection:
            install(connection, "outbox", parameters={"source": "sandbox", "partitions": 3})
        address = Address("127.0.0.1", postgres_server.port)
        databases = {"service": service, "ledger": ledger}
        with serving(fake) as url:
            yield Here(address, address, same("secret"), "none", url, databases)
    finally:
        postgres_server.drop(service)
        postgres_server.drop(ledger)


def sent(here: Here) -> None:
    with here.databases["service"].connect() as service:
        service.execute("SELECT metering.emit_canaries()")


def arrived(here: Here, *partitions: int) -> None:
    """The newest canaries of these partitions come through."""
    with here.databases["service"].connect() as service:
        rows = service.execute(
            "SELECT DISTINCT ON (partition) partition, received_at FROM metering.canary"
            " ORDER BY partition, received_at DESC"
        ).fetchall()
    with here.databases["ledger"].connect() as ledger:
        for partition, received_at in rows:
            if partition in partitions:
                ledger.execute(
                    "INSERT INTO ledger.canary VALUES ('sandbox', %s, %s, 'token',"
                    " gen_random_uuid(), 1, now()) ON CONFLICT (source, partition)"
                    " DO UPDATE SET received_at = excluded.received_at",
                    (partition, received_at),
                )


def test_a_canary_is_old_only_while_it_is_under_way(here: Here) -> None:
    assert capture.canary_age_s(here) is None
    sent(here)
    age_s = capture.canary_age_s(here)
    assert age_s is not None
    assert age_s >= 0
    arrived(here, 0, 1)
    age_s = capture.canary_age_s(here)
    assert age_s is not None
    arrived(here, 2)
    assert capture.canary_age_s(here) is None


def test_the_watch_says_that_a_canary_does_not_come_through(
    here: Here, fake: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with here.databases["service"].connect() as service:
        confirmed = service.execute(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots"
            " WHERE slot_name = 'metering_outbox'"
        ).fetchone()
    assert confirmed is not None
    monkeypatch.setattr(capture, "_first_position", lambda *_: None)
    capture.capture(here)
    offset = {"lsn_commit": confirmed[0]}
    fake.offsets[NAME] = [{"partition": {"server": "src.sandbox"}, "offset": offset}]
    assert capture.look(here) is None
    with here.databases["service"].connect() as service:
        service.execute("SELECT metering.emit_canaries()")
        service.execute("UPDATE metering.canary SET received_at = received_at - interval '5 min'")
    wrong = capture.look(here)
    assert wrong is not None
    assert wrong.startswith("canary-old: the freshest canary is 30")
    arrived(here, 0, 1, 2)
    assert capture.look(here) is None


def test_the_session_with_connect_is_closed_again(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_now: set[requests.Session] = set()

    class Counted(requests.Session):
        def __init__(self) -> None:
            super().__init__()
            open_now.add(self)

        def close(self) -> None:
            super().close()
            open_now.discard(self)

    monkeypatch.setattr(requests, "Session", Counted)
    with capture.capture_of(here) as held:
        held.client.worker()
        assert len(open_now) == 1
    assert open_now == set()


def test_a_connect_that_does_not_answer_delays_the_stop_by_seconds_only(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "RELEASE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        hung = Here(
            here.database,
            here.database_of_connect,
            here.secrets,
            here.bootstrap,
            f"http://127.0.0.1:{port}",
            here.databases,
        )
        with pytest.raises(ConnectUnavailableError, match="ReadTimeout"):
            capture.release_capture(hung)


def test_the_databases_are_away_by_name(here: Here) -> None:
    gone = Here(
        here.database,
        here.database_of_connect,
        here.secrets,
        here.bootstrap,
        here.connect_url,
        {**here.databases, "ledger": Database(here.databases["ledger"].server, "gone")},
    )
    with pytest.raises(psycopg.OperationalError, match="gone"):
        capture.canary_age_s(gone)
