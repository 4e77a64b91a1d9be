"""Parts are killed while usage flows: nothing is lost, nothing counts twice."""

import psycopg
import pytest

from tests.drills.asked import admitted, assert_nothing_lost
from tests.support import witness
from tests.support.books import (
    Books,
    Use,
    assert_exact,
    await_settled,
    map_customers,
    record,
    scattered,
    show_pending,
    write,
)
from tests.support.live import LiveStack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
EVENTS = 900


@pytest.mark.drill(name="killed", about="SIGKILL to Connect or the broker while usage flows")
@pytest.mark.parametrize("part", ["connect", "kafka"])
def test_killed_mid_stream(stack: LiveStack, part: str) -> None:
    books = Books()
    stack.start_worker("beside")
    pid = 0
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        for number, use in enumerate(scattered(f"part-{part}", EVENTS, seed=21)):
            record(service, use)
            books.note(use)
            if number == EVENTS // 3:
                map_customers(stack, books)
                await_settled(stack, books)
                pid = stack.kill_part(part)
    map_customers(stack, books)
    show_pending(stack, books)  # all of it was recorded while the part was gone
    stack.await_restart(part, pid)
    await_settled(stack, books, 150)
    assert_nothing_lost(stack)
    await_settled(stack, books)
    assert_exact(stack, books)


@pytest.mark.long
@pytest.mark.drill(
    name="postgres-crash", about="SIGKILL to the server of the service's database and the ledger"
)
def test_both_databases_crash_under_load(stack: LiveStack) -> None:
    books = Books()
    stack.start_worker("crashed")
    uses = scattered("crashed", EVENTS, seed=22)
    write(stack, (next(uses) for _ in range(EVENTS // 3)), books)
    await_settled(stack, books)
    pid, refused = 0, 0
    for number, use in enumerate(uses):
        if number == EVENTS // 6:
            pid = stack.kill_part("postgres")
        refused += recorded_in_the_end(stack, use)
        books.note(use)
    witness.seen("transactions of the service were refused", refused)
    stack.await_restart("postgres", pid)
    assert "automatic recovery in progress" in stack.parts.logs("postgres")
    map_customers(stack, books)
    await_settled(stack, books, 150)
    assert_nothing_lost(stack)
    await_settled(stack, books)
    assert_exact(stack, books)


def recorded_in_the_end(stack: LiveStack, use: Use) -> int:
    """Records as a service does that tries again until it was told; how often it was refused.

    A commit whose answer was lost may have happened: the second call finds the same event key.
    """
    refused = 0

    def done() -> bool:
        nonlocal refused
        try:
            with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
                record(service, use)
        except psycopg.OperationalError:
            refused += 1
            return False
        return True

    until("the service's database to take it", done, 60)
    return refused


@pytest.mark.long
@pytest.mark.drill(
    name="broker-killed-mid-chunk",
    about="SIGKILL to the broker while a worker has a chunk in hand",
)
def test_the_broker_is_killed_with_a_chunk_in_hand(stack: LiveStack) -> None:
    books = Books()
    write(stack, scattered("in-hand", 3 * EVENTS, seed=23), books)
    # So few records a chunk that the worker has one in hand all the time.
    worker = stack.start_worker("in-hand", chunk_records=5)
    until("some of it to be admitted", lambda: admitted(stack, books) > 0, 60)
    pid = stack.kill_part("kafka")
    missing = books.events - admitted(stack, books)
    witness.seen("usage events are recorded and not in the ledger", missing)
    stack.await_restart("kafka", pid)
    await_settled(stack, books, 150)
    assert_nothing_lost(stack)
    await_settled(stack, books)
    assert worker.alive
    assert_exact(stack, books)
