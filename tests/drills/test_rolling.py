"""Three workers are restarted one after another while usage flows, as in every deployment."""

import signal
from collections.abc import Iterator
from itertools import islice
from typing import Final

import pytest

from tests.support.attempts import NOT_WHOLE, UNANSWERED, ask
from tests.support.books import (
    Books,
    Use,
    assert_exact,
    await_settled,
    scattered,
    show_pending,
    write,
)
from tests.support.live import LiveStack, LiveWorker
from tests.support.struck import IMPATIENT
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
PART: Final = 20
NAMES: Final = ("rolls-1", "rolls-2", "rolls-3")


def write_until_it_works(
    stack: LiveStack, worker: LiveWorker, uses: Iterator[Use], books: Books
) -> None:
    """Usage goes on being recorded until a worker that was started has been given something."""

    def works() -> bool:
        write(stack, islice(uses, PART), books)
        return bool(worker.said("recovered"))

    until(f"{worker.name} to be given partitions", works, 60)


@pytest.mark.drill(name="rolling-restart")
def test_workers_restarted_one_after_another_under_load(stack: LiveStack) -> None:
    books = Books()
    uses = scattered("rolling", 100 * PART, tenants=24, seed=35)
    workers = [stack.start_worker(name, **IMPATIENT) for name in NAMES]
    for worker in workers:
        write_until_it_works(stack, worker, uses, books)

    for number, name in enumerate(NAMES):
        leaving = workers[number]
        leaving.signal(signal.SIGTERM)
        write(stack, islice(uses, PART), books)
        assert leaving.process.wait(30) == 0
        write(stack, islice(uses, PART), books)
        show_pending(stack, books)
        workers[number] = stack.start_worker(name, **IMPATIENT)
        write_until_it_works(stack, workers[number], uses, books)

    await_settled(stack, books, 120)
    assert_exact(stack, books)
    assert ask(stack, NOT_WHOLE, books) == ask(stack, UNANSWERED, books) == 0
    assert all(worker.alive for worker in workers)
    audit = stack.tailrace("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
