"""The supervisor on the real stack: starts, restarts, leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # its stubs are a package of their own
import psycopg
import pytest
import requests

from sandbox import process
from sandbox.control import running
from sandbox.paths import Paths
from tests.support.stack import NativeStack, open_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 120.0


def sandbox(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandbox", *arguments, "--dir", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def still_there(directory: Path) -> list[tuple[str, process.ProcessRef]]:
    return list(process.left_behind(Paths(directory)))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeStack]:
    directory = tmp_path_factory.mktemp("native") / "box"
    with open_stack(directory, {}, workers=1) as opened:
        assert isinstance(opened, NativeStack)
        yield opened
    assert still_there(directory) == []
    assert not (directory / "sandbox.json").exists()


def canaries_arrive(stack: NativeStack) -> None:
    """One canary per partition, from the outbox to the ledger."""
    with psycopg.connect(stack.facts["postgres_dsn"]) as service:
        sent = service.execute(
            "SELECT count(*), min(received_at) FROM metering.emit_canaries()"
        ).fetchone()
    assert sent is not None

    def arrived() -> bool:
        with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
            row = ledger.execute(
                "SELECT count(*) FROM ledger.canary WHERE received_at >= %s", (sent[1],)
            ).fetchone()
        return row is not None and row[0] == sent[0]

    until("canaries in the ledger", arrived, DEADLINE_S)


def test_every_address_answers(stack: NativeStack) -> None:
    facts = stack.facts
    assert facts["state"] == "ready"
    for name, login in (("writer_dsn", "service_writer"), ("ledger_dsn", "ledger_worker")):
        with psycopg.connect(facts[name]) as connection:
            assert connection.info.user == login
    assert requests.get(f"{facts['connect_url']}/connectors", timeout=10).json()
    assert requests.get(f"{facts['stripe_url']}/healthz", timeout=10).ok
    assert requests.get(f"{facts['pids']['workers'][0]['metrics_url']}/ready", timeout=10).ok
    canaries_arrive(stack)


def test_only_loopback_is_listened_on(stack: NativeStack) -> None:
    pids = {ref.pid for _, ref in still_there(stack.directory)}
    ours = {
        connection.laddr.ip
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid in pids
    }
    assert ours
    assert ours <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_a_second_up_attaches_and_says_how_it_differs(stack: NativeStack) -> None:
    before = stack.facts
    done = sandbox(stack.directory, "up", "--workers", "3")
    assert done.returncode == 0
    assert "already running" in done.stdout
    assert "differs: workers: 1 run, 3 asked" in done.stdout
    assert stack.facts["pids"] == before["pids"]


@pytest.mark.parametrize("part", ["stripe", "webhook", "postgres", "kafka", "connect", "worker-0"])
def test_a_killed_part_comes_back_under_a_new_pid_and_rows_flow(
    stack: NativeStack, part: str
) -> None:
    before = stack.facts["parts"][part]["restarts"]
    stack.kill(part)
    until(
        f"{part} back",
        lambda: (
            stack.facts["parts"][part]["restarts"] > before
            and stack.facts["parts"][part]["state"] == "ready"
        ),
        DEADLINE_S,
    )
    canaries_arrive(stack)


def test_an_outage_lasts_until_it_is_ended(stack: NativeStack) -> None:
    stack.stop("stripe")
    assert stack.facts["pids"]["stripe"] is None
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{stack.facts['stripe_url']}/healthz", timeout=5)
    stack.start("stripe")
    assert requests.get(f"{stack.facts['stripe_url']}/healthz", timeout=10).ok


def test_what_the_stand_in_takes_back_is_told_without_a_sweep(stack: NativeStack) -> None:
    facts = stack.facts
    assert facts["parts"]["webhook"]["state"] == "ready"
    assert facts["webhook_url"] in sandbox(stack.directory, "status").stdout
    with psycopg.connect(facts["writer_dsn"], autocommit=True) as service:
        service.execute(
            "SELECT metering.record_usage('told', 'exports', 1, 'told-1', now() - interval '1 h')"
        )
    with psycopg.connect(facts["ledger_owner_dsn"], autocommit=True) as ledger:
        # Nobody sweeps meanwhile: a sweep was begun in the far future.
        ledger.execute(
            "INSERT INTO ledger.report_sweep (claimed_at) VALUES (now() + interval '1 day')"
            " ON CONFLICT (singleton) DO UPDATE SET claimed_at = excluded.claimed_at"
        )
        control = f"{facts['stripe_url']}/_sandbox"
        settings = {"report_lag_s": -10}
        assert requests.post(f"{control}/settings", json=settings, timeout=10).ok
        fault = {"kind": "reject", "count": 1, "code": "archived_meter"}
        assert requests.post(f"{control}/faults", json=fault, timeout=10).ok
        ledger.execute(
            "SELECT ledger.map_customer_v1('told', 'cus_told', NULL, NULL, NULL, NULL, 'tests')"
        )

        def noted() -> list[tuple[str]]:
            return ledger.execute("SELECT noted_by FROM ledger.error_report").fetchall()

        until("the report in the ledger", lambda: bool(noted()), DEADLINE_S)
        assert noted() == [("webhook",)]
        ledger.execute("UPDATE ledger.report_sweep SET claimed_at = now()")


def test_workers_are_scaled_up_and_down(stack: NativeStack) -> None:
    stack.scale(2)
    assert len(stack.facts["pids"]["workers"]) == 2
    stack.scale(1)
    assert len(stack.facts["pids"]["workers"]) == 1
    canaries_arrive(stack)


def test_a_cut_database_session_of_capture_heals(stack: NativeStack) -> None:
    with psycopg.connect(stack.facts["postgres_dsn"], autocommit=True) as service:
        service.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
        )
    canaries_arrive(stack)


def test_a_killed_supervisor_leaves_orphans_that_down_ends_and_data_that_up_continues(
    stack: NativeStack,
) -> None:
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        recorded = service.execute(
            "SELECT event_id FROM metering.record_usage('kept', 'api_calls', 1, 'once')"
        ).fetchone()
    supervisor = running(Paths(stack.directory))
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    until("the supervisor's death", lambda: not process.alive(supervisor), DEADLINE_S)
    assert len(still_there(stack.directory)) == 6
    seen = sandbox(stack.directory, "status")
    assert seen.returncode == 1
    for part in ("postgres", "kafka", "connect", "stripe", "webhook", "worker-0"):
        assert f"{part} (process " in seen.stderr
    assert f"`tailrace sandbox down --dir {stack.directory}` ends them" in seen.stderr
    done = sandbox(stack.directory, "down")
    assert done.returncode == 0
    assert (done.stdout + done.stderr).count("was left behind; ended by") == 6
    assert still_there(stack.directory) == []
    stack.up("--workers", "1")
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        again = service.execute(
            "SELECT event_id, status FROM metering.record_usage('kept', 'api_calls', 1, 'once')"
        ).fetchone()
    assert recorded is not None
    assert again == (recorded[0], "duplicate")
    canaries_arrive(stack)


def test_a_suspended_connect_does_not_keep_the_stack_from_stopping(stack: NativeStack) -> None:
    stack.kill("connect", signal.SIGSTOP)
    began_s = time.monotonic()
    done = sandbox(stack.directory, "down")
    assert done.returncode == 0
    assert time.monotonic() - began_s < 40
    assert "connect stopped SIGTERM" in done.stdout
    assert still_there(stack.directory) == []
    stack.up("--workers", "1")
    canaries_arrive(stack)


def as_in_a_terminal() -> None:
    """A shell's background job inherits SIGINT ignored; what Ctrl-C reaches never does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_start_stops_in_order_and_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "box"
    with subprocess.Popen(
        [sys.executable, "-m", "sandbox", "up", "--dir", str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=as_in_a_terminal,  # noqa: PLW1509 - this test has no threads
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("postgres ready"):
                break
        child.send_signal(signal.SIGINT)
        said = child.stdout.read()
        assert child.wait(DEADLINE_S) == 130
    assert "stopping in order" in said
    assert said.rstrip().endswith("stack stopped")
    assert still_there(directory) == []
    assert running(Paths(directory)) is None


def test_the_clock_of_a_shifted_stack_moves_everywhere_and_rows_still_flow(tmp_path: Path) -> None:
    with open_stack(tmp_path / "box", {}, workers=1, shift_clock=True) as opened:
        assert isinstance(opened, NativeStack)
        with psycopg.connect(opened.facts["postgres_dsn"], autocommit=True) as service:

            def ahead_s() -> float:
                row = service.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
                assert row is not None
                return float(row[0]) - time.time()  # noqa: TID251 - the machine's clock is the oracle

            assert abs(ahead_s()) < 10
            done = sandbox(opened.directory, "clock", "+26h")
            assert done.stdout.strip() == "+93600 s"
            assert abs(ahead_s() - 93_600) < 10
        canaries_arrive(opened)
