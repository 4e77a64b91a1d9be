"""Workers come and go while usage flows: 1 → 3 → 1, once in order and once by SIGKILL."""

import pytest

from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack, LiveWorker
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
PART = 500


def assigned(worker: LiveWorker) -> bool:
    return b'"assigned"' in worker.own_log()


@pytest.mark.drill(name="workers-1-3-1")
@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.long), "kill"])
def test_one_to_three_to_one(stack: LiveStack, end: str) -> None:
    books = Books()
    first = stack.start_worker(f"{end}-1")
    write(stack, scattered(f"{end}-a", PART, tenants=24, seed=31), books)
    others = [stack.start_worker(f"{end}-2"), stack.start_worker(f"{end}-3")]
    write(stack, scattered(f"{end}-b", PART, tenants=24, seed=32), books)
    until("partitions for all three", lambda: all(assigned(w) for w in others), 60)
    write(stack, scattered(f"{end}-c", PART, tenants=24, seed=33), books)
    for worker in others:
        if end == "kill":
            worker.kill()
        else:
            assert worker.stop() == 0
    write(stack, scattered(f"{end}-d", PART, tenants=24, seed=34), books)
    show_pending(stack, books)  # most partitions have nobody yet
    await_settled(stack, books, 120)
    assert_exact(stack, books)
    assert first.alive
