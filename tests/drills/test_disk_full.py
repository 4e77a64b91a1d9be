"""The disk under a worker's state is full: it stops by name, nothing is lost, and it goes on."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from streams.engine.fail_stop import ExitCode
from tests.support import witness
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack, LiveWorker
from tests.support.not_run import not_run

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 200
DISK_MB: Final = 16
"""Too small for RocksDB to reserve room ahead: what is written next needs a free page."""


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of its own, in memory, at that place."""
    place.mkdir(parents=True, exist_ok=True)
    order = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(place)]
    try:
        done = subprocess.run(order, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        not_run("there is no `mount` here, so no small disk can be had")
    if done.returncode != 0:
        not_run(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    witness.did(f"a disk of {DISK_MB} MiB is mounted for the worker's state")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> Path:
    """Another program takes all that is free; the file it has."""
    file = place / "of-another-program"
    with file.open("wb", buffering=0) as handle:
        for size in (1 << 16, 1 << 12, 1):
            while True:
                try:
                    handle.write(bytes(size))
                except OSError:
                    break
    witness.did(f"the disk is full: {shutil.disk_usage(place).free} bytes are free")
    return file


def stopped_for_want_of_room(worker: LiveWorker) -> None:
    code = worker.await_death()
    (*_, said) = worker.said("fail_stop")
    assert (code, said["name"]) == (ExitCode.STATE_UNAVAILABLE, "STATE_UNAVAILABLE"), said
    assert "No space left on device" in said["reason"]
    assert "check free space" in said["reason"]
    assert str(worker.data_dir) in said["reason"]


@pytest.mark.drill(name="disk-full")
def test_a_full_disk_stops_the_worker_by_name_and_nothing_is_lost(stack: LiveStack) -> None:
    books = Books()
    place = stack.directory / "test-workers" / "full"
    with small_disk(place):
        worker = stack.start_worker("full")
        write(stack, scattered("full", EVENTS, seed=121), books)
        await_settled(stack, books)
        file = fill(place)
        write(stack, scattered("full-b", EVENTS, seed=122), books)
        stopped_for_want_of_room(worker)
        show_pending(stack, books)
        # Whoever starts it again meets the same, and is told the same.
        stopped_for_want_of_room(stack.start_worker("full"))

        file.unlink()
        witness.did("room is made")
        stack.start_worker("full")
        await_settled(stack, books)
        assert_exact(stack, books)
        stack.stop_workers()
