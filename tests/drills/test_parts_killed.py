"""Connect and the broker are killed while usage flows: nothing is lost, nothing counts twice."""

import psycopg
import pytest

from tests.support.books import Books, assert_exact, await_settled, map_customers, record, scattered
from tests.support.live import LiveStack

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
                pid = stack.kill_part(part)
    map_customers(stack, books)
    stack.await_restart(part, pid)
    await_settled(stack, books, 150)
    assert_exact(stack, books)
    audit = stack.tailrace("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
