"""Stripe answers in every bad way there is, while usage flows: still once, and nothing dead."""

import signal
from typing import Any, Final

import pytest

from tests.support import witness
from tests.support.attempts import (
    ATTEMPTS,
    NOT_RECORDED,
    NOT_WHOLE,
    SENT,
    UNANSWERED,
    USED_UP,
    ask,
    whole,
)
from tests.support.books import (
    Books,
    assert_exact,
    await_settled,
    pending,
    scattered,
    show_pending,
    write,
)
from tests.support.live import LiveStack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
EVENTS: Final = 400

# Rare enough that hardly five come in a row: an outage for all is another drill.
STORM: Final[tuple[dict[str, Any], ...]] = (
    {"kind": "429", "count": 20, "probability": 0.04, "retry_after_s": 1},
    {"kind": "lock_timeout", "count": 5, "probability": 0.04},
    {"kind": "http_500", "count": 5, "probability": 0.04},
    {"kind": "http_500", "count": 5, "probability": 0.04, "recorded": True},
    {"kind": "http_500_cached", "count": 5, "probability": 0.04},
    {"kind": "http_500_cached", "count": 5, "probability": 0.04, "recorded": True},
    {"kind": "http_502_html", "count": 3, "probability": 0.04},
    {"kind": "drop_before", "count": 5, "probability": 0.04},
    {"kind": "drop_after", "count": 8, "probability": 0.04},
    {"kind": "truncate", "count": 8, "probability": 0.04},
    {"kind": "stall", "count": 2, "probability": 0.04, "duration_ms": 12_000},
)


SHORT_LEASE: Final[dict[str, Any]] = {
    "publish_lease_s": 15,
    "stripe_read_timeout_ms": 4_000,
    "publish_rate_per_s": 200,
}


@pytest.mark.drill(name="stripe-storm")
def test_every_bad_answer_at_once(stack: LiveStack) -> None:
    books = Books()
    for number, fault in enumerate(STORM):
        stack.stand_in.arm(**fault, seed=number)
    stack.start_worker("storm", publish_rate_per_s=200)
    write(stack, scattered("storm", EVENTS, seed=41), books)
    until("bad answers", lambda: ask(stack, NOT_RECORDED, books) > 0, 60)
    witness.seen("attempts were answered badly", ask(stack, NOT_RECORDED, books))
    await_settled(stack, books, 150)
    assert_exact(stack, books)
    assert ask(stack, NOT_WHOLE, books) == 0
    # Else the storm has passed by and proven nothing.
    stack.stand_in.assert_all_struck()
    assert ask(stack, ATTEMPTS, books) > ask(stack, SENT, books) + 20


@pytest.mark.drill(
    name="key-refused", about="Stripe answers 401 to all: nothing is used up, nothing dies"
)
def test_a_refused_key_uses_up_no_attempts(stack: LiveStack) -> None:
    books = Books()
    stack.stand_in.arm(kind="401")
    stack.start_worker("refused", publish_rate_per_s=200)
    write(stack, scattered("refused", EVENTS, seed=42), books)
    until(
        lambda: f"everything to wait for Stripe; {pending(stack, books)} units do",
        lambda: pending(stack, books) == whole(books),
        60,
    )
    assert ask(stack, USED_UP, books) == 0
    assert ask(stack, NOT_WHOLE, books) == 0
    show_pending(stack, books)
    stack.stand_in.clear_faults()
    await_settled(stack, books, 120)
    assert_exact(stack, books)


@pytest.mark.drill(name="publisher-asleep")
def test_a_publisher_that_sleeps_past_its_lease_sends_nothing_more(stack: LiveStack) -> None:
    """Its lanes go to another, which cannot know what the sleeper had already sent."""
    books = Books()
    stack.stand_in.arm(kind="slow", delay_ms=1_500, count=40)
    sleeper = stack.start_worker("sleeper", **SHORT_LEASE)
    write(stack, scattered("sleeper", EVENTS, seed=43), books)
    until("requests in flight", lambda: ask(stack, UNANSWERED, books) > 0, 60)
    sleeper.signal(signal.SIGSTOP)
    try:
        show_pending(stack, books)
        stack.start_worker("awake", **SHORT_LEASE)
        await_settled(stack, books, 150)
    finally:
        sleeper.signal(signal.SIGCONT)
    write(stack, scattered("sleeper-b", EVENTS, seed=44), books)
    await_settled(stack, books, 120)
    assert_exact(stack, books)
    assert ask(stack, NOT_WHOLE, books) == 0
