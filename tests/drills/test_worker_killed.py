"""A worker is killed with SIGKILL at every step of the chunk protocol: no amount changes."""

import shutil
import signal

import psycopg
import pytest

from streams.crash_points import STEPS
from tests.support.books import Books, assert_exact, await_settled, scattered, write
from tests.support.live import LiveStack

pytestmark = [pytest.mark.drill, pytest.mark.timeout(240)]
EVENTS = 250


@pytest.mark.drill(name="worker-killed", about="SIGKILL at a step of the chunk protocol")
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_nothing_is_lost_and_nothing_counts_twice(
    stack: LiveStack, step: str
) -> None:
    books = Books()
    write(stack, scattered(f"kill-{step}", EVENTS, seed=11), books)
    victim = stack.start_worker("killed", crash_at=f"{step}:2")
    assert victim.await_death() == -signal.SIGKILL, victim.log.read_text()[-3000:]
    stack.start_worker("killed")
    await_settled(stack, books)
    assert_exact(stack, books)


@pytest.mark.drill(
    name="disk-lost", about="SIGKILL at a step, the disk is lost, the whole table comes again"
)
@pytest.mark.parametrize("step", ["outputs_produced", "packed_produced", "batch_written"])
def test_killed_and_its_disk_lost_the_state_is_rebuilt_from_the_packed_log(
    stack: LiveStack, step: str
) -> None:
    books = Books()
    write(stack, scattered(f"disk-{step}", EVENTS, seed=12), books)
    victim = stack.start_worker("disk", crash_at=f"{step}:3")
    assert victim.await_death() == -signal.SIGKILL, victim.log.read_text()[-3000:]
    shutil.rmtree(victim.data_dir)
    # Copies of what is already counted arrive after the loss: the rebuilt state must know them.
    with psycopg.connect(stack.facts["source_dsn"], autocommit=True) as ops:
        ops.execute(
            "SELECT metering.reemit(now() - interval '1 hour', now(), 'drill: all of it again')"
        )
    stack.start_worker("disk")
    await_settled(stack, books)
    assert_exact(stack, books)
