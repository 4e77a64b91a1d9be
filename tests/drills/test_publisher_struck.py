"""A worker is struck at every step between due lanes and a settlement: killed, suspended, stopped.

The one that comes after it waits for its leases. Of a request that Stripe may have, the ledger
knows the attempt and its identifier, so it is told again and counts once.
"""

import signal
from typing import Final

import pytest

from streams.crash_points import PUBLISH_STEPS
from tests.support.attempts import DOUBTED, NOT_WHOLE, UNANSWERED, ask
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack
from tests.support.struck import IMPATIENT, assert_stands_at, struck
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(240)]
EVENTS: Final = 90
TENANTS: Final = 5
SLOW_MS: Final = 1_500
"""Longer than a worker takes to hear that it is to stop, shorter than it waits for an answer."""
LONG: Final = [pytest.param(step, marks=pytest.mark.long) for step in PUBLISH_STEPS]
# Stripe counts the request, the ledger does not know: what costs money where it goes wrong.
IN_CI: Final = [
    step if step == "answer_unread" else pytest.param(step, marks=pytest.mark.long)
    for step in PUBLISH_STEPS
]


def recorded(stack: LiveStack, name: str) -> Books:
    books = Books()
    write(stack, scattered(name, EVENTS, tenants=TENANTS, seed=14), books)
    return books


@pytest.mark.drill(name="publisher-killed", about="SIGKILL at a step of publishing")
@pytest.mark.parametrize("step", IN_CI)
def test_killed_at_a_step_of_publishing(stack: LiveStack, step: str) -> None:
    books = recorded(stack, f"pk-{step}")
    struck(stack, "publishes", step, signal.SIGKILL)
    assert_stands_at(stack, books, step)
    show_pending(stack, books)
    stack.start_worker("publishes", **IMPATIENT)
    await_settled(stack, books)
    assert_exact(stack, books)


@pytest.mark.drill(
    name="publisher-suspended",
    about="SIGSTOP at a step of publishing; it wakes when its lease is over and others have sent",
)
@pytest.mark.parametrize("step", LONG)
def test_suspended_at_a_step_of_publishing(stack: LiveStack, step: str) -> None:
    books = recorded(stack, f"ps-{step}")
    sleeper = struck(stack, "sleeps", step, signal.SIGSTOP)
    assert_stands_at(stack, books, step)
    show_pending(stack, books)
    awake = stack.start_worker("wakes", **IMPATIENT)
    await_settled(stack, books)
    assert sleeper.suspended

    sleeper.signal(signal.SIGCONT)
    until("every attempt to have an end", lambda: ask(stack, UNANSWERED, books) == 0, 60)
    write(stack, scattered(f"psw-{step}", EVENTS, tenants=TENANTS, seed=15), books)
    await_settled(stack, books)
    assert_exact(stack, books)
    assert ask(stack, NOT_WHOLE, books) == 0
    assert sleeper.alive
    assert awake.alive


@pytest.mark.drill(name="publisher-stopped", about="SIGTERM at a step of publishing")
@pytest.mark.parametrize("step", LONG)
def test_stopped_at_a_step_of_publishing(stack: LiveStack, step: str) -> None:
    books = recorded(stack, f"pt-{step}")
    # Else everything in flight is answered before the order is heard, and nothing has to be done.
    stack.stand_in.arm(kind="slow", delay_ms=SLOW_MS)
    struck(stack, "stops", step, signal.SIGTERM)
    show_pending(stack, books)
    assert ask(stack, UNANSWERED, books) == 0, "a lane was left to its lease"
    assert ask(stack, DOUBTED, books) == 0, "what was not sent counts as possibly executed"
    stack.stand_in.clear_faults()
    stack.start_worker("stops", **IMPATIENT)
    await_settled(stack, books)
    assert_exact(stack, books)
