"""Capture is broken: its slot, its position, or what it sends; each time noticed and made good.

Debezium notices little of this by itself. The guard stops the connector before rows are passed
over, an audit lists what was passed over all the same, and one command sends it again.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
import pytest
import requests
from psycopg import sql

from connectors import names
from connectors.connect_client import ConnectClient
from connectors.waiting import Waiting
from sandbox.provision import SOURCE
from tests.drills.asked import (
    admitted,
    assert_none_arrived,
    assert_not_judged,
    assert_nothing_lost,
    audit,
    connector_state,
    guard,
    identities,
    repair,
)
from tests.integration.connectors.outbox import Outbox
from tests.support import witness
from tests.support.books import (
    Books,
    assert_exact,
    await_settled,
    map_customers,
    record,
    scattered,
    write,
)
from tests.support.live import LiveStack, live_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
CONNECTOR: Final = names.connector_name(SOURCE)
EVENTS: Final = 120


@pytest.fixture(scope="module")
def capture_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    with live_stack(tmp_path_factory.mktemp("capture") / "stack") as own:
        yield own


@pytest.fixture
def stack(capture_stack: LiveStack) -> Iterator[LiveStack]:
    """A stack of these drills' own: each one breaks its capture, and has to leave it repaired."""
    yield capture_stack
    capture_stack.stop_workers()


def outbox(stack: LiveStack) -> Outbox:
    return Outbox(stack.facts["postgres_dsn"], "service", names.SLOT, names.PUBLICATION)


@contextmanager
def connect(stack: LiveStack) -> Iterator[ConnectClient]:
    """Kafka Connect itself, past every guard: as somebody with curl reaches it."""
    waiting = Waiting(time.sleep, time.monotonic, random.random, total_s=60)
    with requests.Session() as session:
        yield ConnectClient(stack.facts["connect_url"], session, waiting)


def stop_connector(stack: LiveStack) -> None:
    with connect(stack) as client:
        client.stop_and_wait(CONNECTOR)
    witness.did("the connector is stopped over REST")
    until("the slot has no reader", lambda: not outbox(stack).active(), 30)


@contextmanager
def nothing_to_restart_from(stack: LiveStack) -> Iterator[None]:
    """The server notes no place to begin reading from, as it does every 15 s by its own clock.

    Noted within a gap, it would let go of the log before it when the slot is moved; Debezium then
    sees for itself that its position is gone, and rows could not flow past the gap.
    """
    with psycopg.connect(stack.facts["postgres_dsn"]) as server:
        row = server.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'"
        ).fetchone()
    assert row is not None
    os.kill(row[0], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(row[0], signal.SIGCONT)


def flowing(stack: LiveStack, name: str, seed: int) -> Books:
    """Usage has gone all the way, and a worker waits for more."""
    books = Books()
    stack.start_worker(name)
    write(stack, scattered(f"{name}-before", EVENTS // 2, tenants=4, seed=seed), books)
    await_settled(stack, books)
    return books


def gap(stack: LiveStack, name: str, seed: int) -> Books:
    """Usage that is recorded while capture is broken."""
    books = Books()
    write(stack, scattered(f"{name}-gap", EVENTS, tenants=6, seed=seed), books)
    return books


def assert_made_good(stack: LiveStack, *all_books: Books) -> None:
    for books in all_books:
        await_settled(stack, books)
    until("a stored position, and a guard that sees nothing", lambda: guard(stack) == set(), 30)
    assert connector_state(stack) == "RUNNING"
    assert_nothing_lost(stack)
    for books in all_books:
        await_settled(stack, books)
        assert_exact(stack, books)


@pytest.mark.drill(
    name="connect-restarted",
    about="Connect is restarted while a transaction is open: what commits afterwards is sent once",
)
def test_connect_restarts_in_order_while_a_transaction_is_open(stack: LiveStack) -> None:
    before, across, beside = flowing(stack, "open", 41), Books(), Books()
    uses = list(scattered("open-across", EVENTS, tenants=4, seed=42))
    with psycopg.connect(stack.facts["writer_dsn"]) as service, service.transaction():
        for use in uses[: EVENTS // 2]:
            record(service, use)
        # Committed and stored beyond what the open transaction has written so far.
        write(stack, scattered("open-beside", 40, tenants=4, seed=43), beside)
        await_settled(stack, beside)
        assert_nothing_lost(stack)  # nothing of it is committed yet
        for use in uses[EVENTS // 2 :]:
            record(service, use)
        stack.parts.stop("connect")
    for use in uses:
        across.note(use)
    assert_none_arrived(stack, across)
    assert_not_judged(stack)
    stack.parts.start("connect")
    map_customers(stack, across)
    assert_made_good(stack, before, across, beside)


@pytest.mark.drill(
    name="slot-dropped",
    about="The replication slot is dropped: the start is refused, the repair sends the gap",
)
def test_a_dropped_slot_is_refused_and_the_repair_sends_the_gap(stack: LiveStack) -> None:
    before = flowing(stack, "dropped", 51)
    stack.parts.stop("connect")
    until("the slot has no reader", lambda: not outbox(stack).active(), 30)
    outbox(stack).drop_slot()
    witness.did("the slot is dropped")
    missing = gap(stack, "dropped", 52)
    stack.parts.start("connect")
    # Connect starts its connectors itself; whoever keeps the stack looks after each such start.
    until("the connector is stopped", lambda: connector_state(stack) == "STOPPED", 60)
    assert guard(stack) & {"slot-missing", "slot-ahead"}
    assert_not_judged(stack)
    assert_none_arrived(stack, missing)
    assert repair(stack) >= len(missing.uses)
    assert_made_good(stack, before, missing)


@pytest.mark.drill(
    name="slot-advanced",
    about="The slot was moved past rows: the audit names each of them, the repair sends them",
)
def test_rows_that_a_slot_was_moved_past_are_named_and_sent_again(stack: LiveStack) -> None:
    with nothing_to_restart_from(stack):
        before, after = flowing(stack, "moved", 61), Books()
        stop_connector(stack)
        missing = gap(stack, "moved", 62)
        outbox(stack).advance()
        witness.did("the slot is moved past all of it")
    assert guard(stack) == {"slot-ahead"}
    refused = stack.tailrace("connector", "apply")
    assert refused.returncode != 0
    assert "slot-ahead" in refused.stderr
    assert connector_state(stack) == "STOPPED"
    assert_not_judged(stack)

    # Somebody starts it all the same, as often as it takes until rows flow from behind the gap.
    write(stack, scattered("moved-after", 40, tenants=4, seed=63), after)

    def insisted() -> bool:
        if connector_state(stack) == "STOPPED":
            with connect(stack) as client:
                client.resume(CONNECTOR)
            witness.did("the connector is started over REST, past the guard")
        return admitted(stack, after) == after.events

    until("rows to flow behind the gap", insisted, 90)
    # Once the stored position is behind the gap nobody sees it there.
    until("the guard to see nothing", lambda: guard(stack) == set(), 30)
    assert_none_arrived(stack, missing)
    found = audit(stack)
    conflicts = missing.review["conflict"]
    assert identities(found, "lost") == missing.uses.keys()
    assert (found["lost"], found["double"]) == (len(missing.uses) + conflicts, 0)
    witness.seen("identities the audit lists as lost, each by its name", found["lost"])
    assert all(finding["exact"] for finding in found["findings"])

    assert repair(stack, "--even-if-healthy") >= found["lost"]
    assert_made_good(stack, before, missing, after)


@pytest.mark.drill(
    name="slot-lost",
    about="The server gives the slot up, its log grew past the limit: refused, and repaired",
)
def test_a_slot_given_up_by_the_server_is_refused_and_repaired(stack: LiveStack) -> None:
    before = flowing(stack, "given-up", 71)
    stack.parts.stop("connect")
    missing = gap(stack, "given-up", 72)
    with keeping_little_wal(stack):
        until("the slot to be lost", lambda: written_until_lost(stack), 60)
    stack.parts.start("connect")
    until("the connector is stopped", lambda: connector_state(stack) == "STOPPED", 60)
    assert "slot-wal" in guard(stack)
    assert_not_judged(stack)
    assert_none_arrived(stack, missing)
    assert repair(stack) >= len(missing.uses)
    assert_made_good(stack, before, missing)


@contextmanager
def keeping_little_wal(stack: LiveStack) -> Iterator[None]:
    order = sql.SQL("ALTER SYSTEM SET max_slot_wal_keep_size = {}")
    with psycopg.connect(stack.facts["postgres_dsn"], autocommit=True) as server:
        usual = server.execute("SHOW max_slot_wal_keep_size").fetchone()
        assert usual is not None

        def keep(size: str) -> None:
            server.execute(order.format(sql.Literal(size)))
            server.execute("SELECT pg_reload_conf()")
            witness.did(f"the server keeps {size} of WAL for slots")

        keep("1MB")
        try:
            yield
        finally:
            keep(usual[0])


def written_until_lost(stack: LiveStack) -> bool:
    """Fills a segment of WAL; whether the server has given the slot up for it."""
    with psycopg.connect(stack.facts["postgres_dsn"], autocommit=True) as server:
        server.execute("SELECT pg_logical_emit_message(false, 'drill', repeat('x', 100000))")
        server.execute("SELECT pg_switch_wal()")
        server.execute("CHECKPOINT")
        row = server.execute(
            "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s", (names.SLOT,)
        ).fetchone()
    return row == ("lost",)


@pytest.mark.drill(
    name="offsets-wiped",
    about="Connect's stored position is wiped: refused; what comes again counts nothing",
)
def test_a_wiped_position_is_refused_and_what_comes_again_counts_nothing(stack: LiveStack) -> None:
    before = flowing(stack, "wiped", 81)
    stop_connector(stack)
    with connect(stack) as client:
        client.delete_offsets(CONNECTOR)
        assert client.offsets(CONNECTOR).offsets == []
    witness.did("Connect's stored position is deleted")
    missing = gap(stack, "wiped", 82)
    assert guard(stack) == {"position-missing"}
    refused = stack.tailrace("connector", "apply")
    assert refused.returncode != 0
    assert "position-missing" in refused.stderr
    assert_not_judged(stack)
    assert_none_arrived(stack, missing)
    again = repair(stack)
    assert again >= len(missing.uses) + len(before.uses), "none of it is sealed yet"
    assert_made_good(stack, before, missing)


@pytest.mark.drill(
    name="table-emitted-again",
    about="The whole outbox is sent twice more while usage flows: nothing counts again",
)
def test_the_whole_table_comes_twice_more_while_usage_flows(stack: LiveStack) -> None:
    before, during = flowing(stack, "again", 91), Books()
    everything = "SELECT metering.reemit(now() - interval '1 day', now(), 'drill: all of it again')"
    again = 0
    with psycopg.connect(stack.facts["source_dsn"], autocommit=True) as ops:
        for half in ("first", "second"):
            write(stack, scattered(f"again-{half}", EVENTS, tenants=6, seed=92), during)
            row = ops.execute(everything.encode()).fetchone()
            assert row is not None
            again += int(row[0])
            witness.did(f"the outbox sends {row[0]} rows again")
    assert again >= 2 * len(before.uses)
    witness.seen("rows came again", again)
    assert_made_good(stack, before, during)
