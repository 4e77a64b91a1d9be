"""No answer before the commit, and none that a crash takes back."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from tests.integration.ingest.conftest import Conn
from tests.integration.ingest.endpoint import EVENT, Endpoint, serving
from tests.support.outbox import all_of
from tests.support.postgres import Database, lock_waiters
from tests.support.proxy import proxied
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

AT_COMMIT = """
    CREATE FUNCTION public.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN {what} RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON metering.usage_key
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.at_commit();
"""


def at_commit(admin: Conn, what: str) -> None:
    """Has every recording do this while it commits."""
    admin.execute(AT_COMMIT.format(what=what).encode())


@contextmanager
def held(outbox: Database) -> Iterator[Conn]:
    """Commits wait until this connection lets go of the lock."""
    with psycopg.connect(outbox.dsn(), autocommit=True, row_factory=psycopg.rows.dict_row) as conn:
        at_commit(conn, "PERFORM pg_advisory_xact_lock(7);")
        conn.execute("SELECT pg_advisory_lock(7)")
        yield conn


def let_go(conn: Conn) -> None:
    conn.execute("SELECT pg_advisory_unlock(7)")


def rows(conn: Conn) -> int:
    return len(all_of(conn, "SELECT 1 FROM metering.usage_outbox", ()))


def started(pool: ThreadPoolExecutor, admin: Conn, call: Any) -> Future[Any]:
    """The call is on its way; returns once its transaction waits."""
    future = pool.submit(call)
    until("a transaction waits to commit", lambda: lock_waiters(admin) == 1)
    return future


def test_nothing_is_answered_before_the_commit(
    outbox: Database, dsn: str, admin: Conn, tmp_path: Path
) -> None:
    with (
        serving(dsn, tmp_path) as shop,
        held(outbox) as lock,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = started(pool, admin, lambda: shop.post(EVENT))
        # The process's own word, for its answer takes a while until it is here.
        assert "usage_ingest_calls_waiting 1.0" in shop.metrics()
        assert not answer.done()
        assert rows(admin) == 0
        let_go(lock)
        assert answer.result(30).status_code == 201
        assert rows(admin) == 1


def test_a_commit_that_fails_is_no_recording(dsn: str, admin: Conn, tmp_path: Path) -> None:
    at_commit(admin, "RAISE EXCEPTION 'not today';")
    with serving(dsn, tmp_path) as shop:
        answer = shop.post([EVENT, {**EVENT, "event_key": "k2"}])
        assert answer.status_code == 500
        assert "again" in answer.json()["fix"]
        assert rows(admin) == 0
        admin.execute("DROP TRIGGER at_commit ON metering.usage_key")
        assert shop.post(EVENT).status_code == 201


def test_commits_wait_for_the_disk_whatever_the_role_says(
    dsn: str, admin: Conn, outbox: Database, tmp_path: Path
) -> None:
    admin.execute("CREATE TABLE public.seen (mode text); GRANT INSERT ON public.seen TO public")
    at_commit(admin, "INSERT INTO public.seen VALUES (current_setting('synchronous_commit'));")
    login = outbox.login("metering_writer")
    admin.execute(f"ALTER ROLE {login} SET synchronous_commit = off".encode())
    try:
        with serving(dsn, tmp_path) as shop:
            assert shop.post(EVENT).status_code == 201
    finally:
        admin.execute(f"ALTER ROLE {login} RESET synchronous_commit".encode())
    assert all_of(admin, "SELECT mode FROM public.seen", ()) == [{"mode": "on"}]


def test_a_process_that_is_told_to_stop_answers_what_it_has_begun(
    outbox: Database, dsn: str, admin: Conn, tmp_path: Path
) -> None:
    with (
        serving(dsn, tmp_path) as shop,
        held(outbox) as lock,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = started(pool, admin, lambda: shop.post(EVENT))
        shop.process.send_signal(signal.SIGTERM)
        until("it takes no new calls", lambda: refused(shop.address))
        assert not answer.done()
        let_go(lock)
        assert answer.result(30).status_code == 201
        assert shop.process.wait(30) == 0
    assert rows(admin) == 1


def failures(shop: Endpoint) -> dict[str, int]:
    """Calls that were not recorded, by what Prometheus is told of their causes."""
    told = re.findall(
        r'^usage_ingest_failures_total\{why="(\w+)"\} (\d+)', shop.metrics(), re.MULTILINE
    )
    return {why: int(count) for why, count in told if int(count)}


def refused(address: str) -> bool:
    try:
        requests.get(f"{address}/health", timeout=5)
    except requests.ConnectionError:
        return True
    return False


def test_what_a_killed_process_did_not_answer_counts_once_when_repeated(
    outbox: Database, dsn: str, admin: Conn, tmp_path: Path
) -> None:
    event = {**EVENT, "event_key": "killed"}
    with held(outbox) as lock, ThreadPoolExecutor(1) as pool:
        with serving(dsn, tmp_path) as shop:
            answer = started(pool, admin, lambda: shop.post(event))
            shop.process.kill()
            with pytest.raises(requests.ConnectionError):
                answer.result(30)
            assert shop.process.wait(30) == -signal.SIGKILL
        let_go(lock)
        until("its transaction has ended", lambda: lock_waiters(admin) == 0)
    with serving(dsn, tmp_path, "again") as shop:
        assert shop.post(event).status_code in {200, 201}
        assert shop.post(event).status_code == 200
    assert rows(admin) == 1


def test_a_commit_whose_answer_is_lost_is_in_doubt_and_repeating_ends_it(
    outbox: Database, admin: Conn, tmp_path: Path
) -> None:
    login = outbox.login("metering_writer")
    with proxied(f"postgresql://127.0.0.1:{outbox.server.port}") as network:
        dsn = f"{network.url.replace('//', f'//{login}@')}/{outbox.name}"
        with (
            serving(dsn, tmp_path, TAILRACE_INGEST_TIMEOUT_S="6") as shop,
            held(outbox) as lock,
            ThreadPoolExecutor(1) as pool,
        ):
            answer = started(pool, admin, lambda: shop.post(EVENT))
            network.cut()
            let_go(lock)
            until("it is committed", lambda: rows(admin) == 1)
            doubtful = answer.result(30)
            assert doubtful.status_code == 503
            assert doubtful.headers["Retry-After"] == "1"
            network.mend()
            until("it is back", lambda: shop.post(EVENT).status_code != 503, 30)
            assert shop.post(EVENT).status_code == 200
    assert rows(admin) == 1


def test_connections_that_died_are_replaced_unnoticed(
    dsn: str, admin: Conn, tmp_path: Path
) -> None:
    with serving(dsn, tmp_path) as shop:
        for number in range(5):
            assert shop.post({**EVENT, "event_key": str(number)}).status_code == 201
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE application_name = 'tailrace-ingest' AND datname = current_database()"
            )


def test_a_key_that_another_transaction_holds_is_waited_for_and_then_told(
    outbox: Database, dsn: str, admin: Conn, tmp_path: Path
) -> None:
    login = outbox.login("metering_writer")
    admin.execute(f"ALTER ROLE {login} SET metering.lock_timeout = '200ms'".encode())
    try:
        with serving(dsn, tmp_path) as shop, outbox.connect(login, autocommit=False) as other:
            other.execute("SELECT metering.record_usage('acme', 'api_calls', 3, 'k1')")
            answer = shop.post([EVENT, {**EVENT, "event_key": "k2"}])
            assert answer.status_code == 503
            assert "another transaction" in answer.json()["error"]
            assert failures(shop) == {"held": 1}
            other.commit()
            again = shop.post([EVENT, {**EVENT, "event_key": "k2"}])
            assert [each["status"] for each in again.json()["results"]] == ["duplicate", "recorded"]
    finally:
        admin.execute(f"ALTER ROLE {login} RESET metering.lock_timeout".encode())


def test_two_processes_and_many_producers_record_each_event_once(
    dsn: str, admin: Conn, tmp_path: Path
) -> None:
    events = [
        {**EVENT, "tenant_id": ("acme", "beta")[number % 2], "event_key": f"k{number:03}"}
        for number in range(200)
    ]
    with serving(dsn, tmp_path, "one") as one, serving(dsn, tmp_path, "two") as two:

        def bring(turn: int) -> list[Any]:
            shop = (one, two)[turn % 2]
            step = (1, -1)[turn // 2 % 2]  # opposite orders, so that a wrong one would deadlock
            answer = shop.post(events[::step])
            assert answer.status_code in {200, 201}, answer.text
            return [each["status"] for each in answer.json()["results"]][::step]

        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(bring, range(16)))
    for number in range(200):
        statuses = sorted(each[number] for each in told)
        assert statuses == ["duplicate"] * 15 + ["recorded"]
    assert rows(admin) == 200
    assert (
        len({row["event_id"] for row in all_of(admin, "SELECT * FROM metering.usage_key", ())})
        == 200
    )


def test_it_starts_while_the_database_is_away_and_says_so(tmp_path: Path) -> None:
    dsn = "postgresql://nobody@127.0.0.1:1/none"
    with serving(dsn, tmp_path, TAILRACE_INGEST_TIMEOUT_S="6") as shop:
        ready = shop.get("/ready")
        assert (ready.status_code, ready.text) == (
            503,
            "not ready: the outbox did not answer in time\n",
        )
        answer = shop.post(EVENT)
        assert answer.status_code == 503
        assert "nobody" not in answer.text
        assert failures(shop) == {"late": 1}


def test_a_login_that_may_not_record_is_told_apart(outbox: Database, tmp_path: Path) -> None:
    dsn = outbox.dsn(outbox.login("metering_corrector"))
    with serving(dsn, tmp_path) as shop:
        assert shop.post(EVENT).status_code == 503
        assert shop.get("/ready").text.startswith("not ready: this login may not record")
        assert failures(shop) == {"not_whole": 1}


def test_a_database_without_the_outbox_is_told_apart(fresh_database: Any, tmp_path: Path) -> None:
    with serving(fresh_database().dsn(), tmp_path) as shop:
        answer = shop.post(EVENT)
        assert answer.status_code == 503
        assert "not installed" in answer.json()["error"]
        assert shop.get("/ready").status_code == 503


def test_a_port_that_is_taken_is_said_before_anything_else(dsn: str, tmp_path: Path) -> None:
    with serving(dsn, tmp_path) as shop:
        port = shop.address.rpartition(":")[2]
        with (
            pytest.raises(AssertionError, match=f"TAILRACE_INGEST_PORT {port}: Address already"),
            serving(dsn, tmp_path, "second", TAILRACE_INGEST_PORT=port),
        ):
            pass
        assert shop.post(EVENT).status_code == 201
