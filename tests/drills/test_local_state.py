"""A worker's own state is deleted or damaged, at rest and under it: rebuilt, and exact.

Everything that was recorded is sent out again after the loss. A state that forgot an id, or read a
damaged block as one that does not hold it, would count that usage a second time.
"""

import shutil
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.support import witness
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack, LiveWorker
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 250
LATER: Final = 60
IN_A_BLOCK: Final = 16
"""The first block of every file holds keys; what follows the blocks is read for other reasons."""


def tables(worker: LiveWorker) -> Path:
    return worker.data_dir / "tables"


def send_all_again(stack: LiveStack) -> int:
    """Copies of everything that was recorded in the last hour, as after a repair; how many."""
    with psycopg.connect(stack.facts["source_dsn"], autocommit=True) as ops:
        row = ops.execute(
            "SELECT metering.reemit(now() - interval '1 hour', now(), 'drill: all of it again')"
        ).fetchone()
    assert row is not None
    witness.did(f"{row[0]} recorded rows are sent again")
    return int(row[0])


def flip(worker: LiveWorker) -> Path:
    """Another byte in the largest of the files that hold ids; which it was."""
    files = (f for f in tables(worker).rglob("*.sst") if b"seen-" in f.read_bytes())
    file = max(files, key=lambda found: found.stat().st_size)
    with file.open("r+b") as handle:
        handle.seek(IN_A_BLOCK)
        byte = handle.read(1)[0]
        handle.seek(IN_A_BLOCK)
        handle.write(bytes([byte ^ 1]))
    witness.did(f"one bit of {file.relative_to(worker.data_dir)} is flipped")
    return file


def with_files(stack: LiveStack, name: str, seed: int) -> tuple[LiveWorker, Books]:
    """A worker that has settled usage and has its state in files, not in RocksDB's log alone."""
    books = Books()
    write(stack, scattered(name, EVENTS, seed=seed), books)
    first = stack.start_worker(name)
    await_settled(stack, books)
    assert first.stop() == 0
    worker = stack.start_worker(name)
    serving(worker)
    return worker, books


def serving(worker: LiveWorker) -> None:
    """Waits until it has read the state of every partition since its start."""
    until(
        lambda: f"12 partitions to be read; {len(worker.said('recovered'))} were",
        lambda: len(worker.said("recovered")) >= 12,
        60,
    )


def assert_exact_at_the_end(stack: LiveStack, books: Books) -> None:
    """Behind the last copy: an audit's canaries come through after all that was sent before."""
    await_settled(stack, books)
    audit = stack.tailrace("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    await_settled(stack, books)
    assert_exact(stack, books)


@pytest.mark.drill(name="state-deleted", about="A worker's RocksDB is removed: rebuilt, exact")
@pytest.mark.parametrize("when", ["stopped", "running"])
def test_deleted_state_is_rebuilt_from_the_packed_log(stack: LiveStack, when: str) -> None:
    worker, books = with_files(stack, f"deleted-{when}", seed=111)
    if when == "stopped":
        assert worker.stop() == 0
    shutil.rmtree(tables(worker))
    witness.did(f"its tables are removed while it is {when}")
    stack.stand_in.arm(kind="outage")
    write(stack, scattered(f"later-{when}", LATER, seed=112), books)
    send_all_again(stack)
    if when == "running":
        # It goes on with what it has open, and its next start finds nothing.
        assert worker.stop() == 0
    assert not list(tables(worker).glob("*/CURRENT"))
    show_pending(stack, books)
    serving(stack.start_worker(worker.name))
    stack.stand_in.clear_faults()
    assert_exact_at_the_end(stack, books)


@pytest.mark.drill(name="sst-flipped", about="One byte of a state file is wrong: seen, rebuilt")
@pytest.mark.parametrize("when", ["stopped", "running"])
def test_a_flipped_byte_is_noticed_before_it_is_believed(stack: LiveStack, when: str) -> None:
    worker, books = with_files(stack, f"flipped-{when}", seed=113)
    if when == "stopped":
        assert worker.stop() == 0
    file = flip(worker)
    write(stack, scattered(f"after-{when}", LATER, seed=114), books)
    send_all_again(stack)
    if when == "stopped":
        worker = stack.start_worker(worker.name)
    until("the damage to be noticed", lambda: bool(worker.said("state_quarantined")), 60)
    (noticed,) = worker.said("state_quarantined")
    witness.seen("damaged states set aside", 1)
    assert "checksum" in noticed["reason"], noticed
    aside = file.parent.with_name(f"{file.parent.name}.corrupt-1")
    assert (aside / file.name).exists()
    assert_exact_at_the_end(stack, books)
    assert worker.alive
