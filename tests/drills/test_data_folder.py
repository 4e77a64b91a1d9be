"""A worker is started with a data folder that is not its own: refused, held or caught up, by name.

Of a running worker: the second one ends and says who has it. Of another installation: its topic has
another id, so every partition is held and nothing is read. Of a worker that was stopped before more
was settled: it is read on from the packed log.
"""

import shutil
from typing import Final

import pytest

from tests.support import witness
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack, LiveWorker
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(400)]
EVENTS: Final = 150
PARTITIONS: Final = 12
REFUSED: Final = 78


def held(worker: LiveWorker) -> list[str]:
    return [line["reason"] for line in worker.said("partition_held")]


@pytest.mark.drill(name="data-folder-of-another", about="A worker is given another one's folder")
def test_a_folder_of_another_is_never_taken_for_ones_own(
    stack: LiveStack, own_stack: LiveStack
) -> None:
    foreign = Books()
    write(stack, scattered("foreign", EVENTS, seed=131), foreign)
    elsewhere = stack.start_worker("foreign")
    await_settled(stack, foreign)
    assert elsewhere.stop() == 0

    books = Books()
    write(own_stack, scattered("folder", EVENTS, seed=132), books)
    first = own_stack.start_worker("first")
    await_settled(own_stack, books)
    second = own_stack.start_worker("second", data_dir=first.data_dir)
    assert second.await_death() == REFUSED
    said = second.own_log().decode()
    assert f"{first.data_dir} is held by process {first.process.pid}" in said
    assert "give each worker its own" in said
    assert first.stop() == 0

    stale = own_stack.directory / "test-workers" / "stale"
    shutil.copytree(first.data_dir, stale)
    taken = own_stack.directory / "test-workers" / "taken"
    shutil.copytree(elsewhere.data_dir, taken)
    witness.did("the folder of a worker of another installation is copied here")
    write(own_stack, scattered("folder-b", EVENTS, seed=133), books)
    wrong = own_stack.start_worker("taken")
    until(
        lambda: f"all partitions to be held; {len(held(wrong))} are",
        lambda: len(held(wrong)) == PARTITIONS,
        60,
    )
    assert all("LogRecreated" in reason for reason in held(wrong))
    assert all("TAILRACE_DATA_DIR" in reason for reason in held(wrong)), held(wrong)[0]
    assert wrong.alive
    show_pending(own_stack, books)
    assert wrong.stop() == 0

    own_stack.start_worker("first")
    await_settled(own_stack, books)
    own_stack.stop_workers()
    write(own_stack, scattered("folder-c", EVENTS, seed=134), books)
    own_stack.start_worker("stale")
    await_settled(own_stack, books)
    assert_exact(own_stack, books)
    assert_exact(stack, foreign)
