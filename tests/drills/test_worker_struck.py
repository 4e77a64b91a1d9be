"""A worker is suspended or stopped at every step of the chunk protocol: no amount changes.

One that is suspended for longer than its session is taken for dead: another admits everything
meanwhile, and the one that wakes finds itself with a chunk in hand that is no longer its own.
"""

import signal
from typing import Final

import pytest

from streams.crash_points import STEPS
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack, LiveWorker
from tests.support.struck import IMPATIENT, struck
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(240)]
EVENTS: Final = 150
BEFORE_THE_FENCE: Final = ("fetched", "decided")
"""Here it asks whether the partition is still its own before anything leaves it."""


def fenced(worker: LiveWorker) -> bool:
    return any("Fenced" in said["error"] for said in worker.said("chunk_not_settled"))


@pytest.mark.drill(
    name="worker-suspended",
    about="SIGSTOP at a step of the chunk protocol; it wakes when another has taken over",
)
@pytest.mark.parametrize("step", STEPS)
def test_suspended_at_a_step_until_another_has_taken_over(stack: LiveStack, step: str) -> None:
    books = Books()
    write(stack, scattered(f"ws-{step}", EVENTS, seed=16), books)
    sleeper = struck(stack, "sleeps", step, signal.SIGSTOP)
    show_pending(stack, books)
    awake = stack.start_worker("wakes", **IMPATIENT)
    await_settled(stack, books)
    assert sleeper.suspended

    sleeper.signal(signal.SIGCONT)
    until("it to learn what it has lost", lambda: bool(sleeper.said("lost")), 30)
    if step in BEFORE_THE_FENCE:
        until("the fence to stop its chunk", lambda: fenced(sleeper), 30)
    until("it to be a member again", lambda: len(sleeper.said("assigned")) > 1, 30)
    write(stack, scattered(f"wsw-{step}", EVENTS, seed=17), books)
    await_settled(stack, books)
    assert_exact(stack, books)
    assert sleeper.alive
    assert awake.alive


@pytest.mark.drill(name="worker-stopped", about="SIGTERM at a step of the chunk protocol")
@pytest.mark.parametrize("step", STEPS)
def test_stopped_at_a_step_it_settles_what_it_has_in_hand(stack: LiveStack, step: str) -> None:
    books = Books()
    write(stack, scattered(f"wt-{step}", EVENTS, seed=18), books)
    stopped = struck(stack, "stops", step, signal.SIGTERM)
    show_pending(stack, books)
    assert not stopped.said("chunk_not_settled")
    stack.start_worker("stops", **IMPATIENT)
    await_settled(stack, books)
    assert_exact(stack, books)
