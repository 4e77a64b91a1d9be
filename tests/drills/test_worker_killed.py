"""A worker is killed with SIGKILL at every step of the chunk protocol: no amount changes."""

import shutil
import signal
from typing import Any

import psycopg
import pytest

from streams.crash_points import STEPS
from tests.drills.asked import assert_nothing_lost
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack
from tests.support.struck import IMPATIENT, struck

pytestmark = [pytest.mark.drill, pytest.mark.timeout(240)]
EVENTS = 250
# The outputs and the packed record are in Kafka, the state on the disk knows nothing of it yet.
IN_CI = "packed_produced"


def steps(*names: str) -> list[Any]:
    """All of them, of which one is drilled for every change."""
    return [n if n == IN_CI else pytest.param(n, marks=pytest.mark.long) for n in names]


@pytest.mark.drill(name="worker-killed", about="SIGKILL at a step of the chunk protocol")
@pytest.mark.parametrize("step", steps(*STEPS))
def test_killed_at_a_step_nothing_is_lost_and_nothing_counts_twice(
    stack: LiveStack, step: str
) -> None:
    books = Books()
    write(stack, scattered(f"kill-{step}", EVENTS, seed=11), books)
    struck(stack, "killed", step, signal.SIGKILL)
    show_pending(stack, books)
    stack.start_worker("killed", **IMPATIENT)
    await_settled(stack, books)
    assert_exact(stack, books)


@pytest.mark.drill(
    name="disk-lost", about="SIGKILL at a step, the disk is lost, the whole table comes again"
)
@pytest.mark.parametrize("step", steps("outputs_produced", "packed_produced", "batch_written"))
def test_killed_and_its_disk_lost_the_state_is_rebuilt_from_the_packed_log(
    stack: LiveStack, step: str
) -> None:
    books = Books()
    write(stack, scattered(f"disk-{step}", EVENTS, seed=12), books)
    victim = struck(stack, "disk", step, signal.SIGKILL)
    show_pending(stack, books)
    shutil.rmtree(victim.data_dir)
    # Copies of what is already counted arrive after the loss: the rebuilt state must know them.
    with psycopg.connect(stack.facts["source_dsn"], autocommit=True) as ops:
        ops.execute(
            "SELECT metering.reemit(now() - interval '1 hour', now(), 'drill: all of it again')"
        )
    stack.start_worker("disk", **IMPATIENT)
    await_settled(stack, books)
    assert_nothing_lost(stack)
    await_settled(stack, books)
    assert_exact(stack, books)
