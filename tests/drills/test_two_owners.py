"""Two workers are made to own the same partitions: nothing is counted twice.

The guard of the data directory refuses the second, the group ends the first. Where both believe
the same at the same time, for hours, with no guard between them, amounts do not depend on one:
both fold the same log, and the ledger takes each fact once.
"""

import shutil
from typing import Final

import psycopg
import pytest

from streams.engine.fail_stop import ExitCode
from tests.drills.asked import assert_nothing_lost
from tests.support import witness
from tests.support.attempts import NOT_WHOLE, ask
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack, LiveWorker
from tests.support.struck import IMPATIENT
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 150


def owned(worker: LiveWorker) -> set[int]:
    """Partitions that it was given and has read the state of."""
    return {said["partition"] for said in worker.said("recovered")}


@pytest.mark.drill(
    name="two-owners-one-directory", about="a second worker is started on the first one's data"
)
def test_a_second_worker_on_the_same_directory_is_refused(stack: LiveStack) -> None:
    books = Books()
    first = stack.start_worker("twice", **IMPATIENT)
    write(stack, scattered("twice-dir", EVENTS, seed=61), books)
    until("partitions for the first", lambda: bool(owned(first)), 60)
    second = stack.start_worker("twice", **IMPATIENT)
    assert second.await_death() == ExitCode.REFUSED
    witness.seen("worker was refused the directory of another", 1)
    await_settled(stack, books)
    assert_exact(stack, books)
    assert first.alive


@pytest.mark.drill(
    name="two-owners-one-instance", about="a second worker is started under the first one's name"
)
def test_a_second_worker_of_the_same_name_ends_the_first(stack: LiveStack) -> None:
    books = Books()
    first = stack.start_worker("namesake-1", group_instance_id="namesake", **IMPATIENT)
    write(stack, scattered("twice-name", EVENTS, seed=62), books)
    until("partitions for the first", lambda: bool(owned(first)), 60)
    second = stack.start_worker("namesake-2", group_instance_id="namesake", **IMPATIENT)
    write(stack, scattered("twice-name-more", EVENTS, seed=63), books)
    show_pending(stack, books)
    assert first.await_death() == ExitCode.CONSUMER_FATAL
    until("all partitions for the second", lambda: owned(first) <= owned(second), 60)
    await_settled(stack, books)
    assert_exact(stack, books)
    assert second.alive


@pytest.mark.drill(
    name="two-owners",
    about="two workers own every partition at the same time, and nothing keeps them apart",
)
def test_two_owners_of_everything_count_nothing_twice(stack: LiveStack) -> None:
    books = Books()
    write(stack, scattered("owners", EVENTS, seed=64), books)
    owners = [
        stack.start_worker(f"owner-{group}", group=f"drill-owner-{group}", **IMPATIENT)
        for group in ("a", "b")
    ]
    partitions = set(range(int(stack.facts["settings"]["TAILRACE_PARTITIONS"])))
    until("both to own all", lambda: all(owned(each) == partitions for each in owners), 90)
    witness.seen("partitions have two owners", len(owned(owners[0]) & owned(owners[1])))
    write(stack, scattered("owners-more", EVENTS, seed=65), books)
    await_settled(stack, books)
    assert_exact(stack, books)
    assert all(each.alive for each in owners)

    # Both have written the packed log: who reads it afterwards knows every identity.
    for each in owners:
        each.kill()
        shutil.rmtree(each.data_dir)
    with psycopg.connect(stack.facts["source_dsn"], autocommit=True) as ops:
        ops.execute(
            "SELECT metering.reemit(now() - interval '1 hour', now(), 'drill: all of it again')"
        )
    write(stack, scattered("owners-after", EVENTS, seed=66), books)
    show_pending(stack, books)
    stack.start_worker("owner-after", **IMPATIENT)
    await_settled(stack, books)
    assert_nothing_lost(stack)
    await_settled(stack, books)
    assert_exact(stack, books)
    assert ask(stack, NOT_WHOLE, books) == 0
