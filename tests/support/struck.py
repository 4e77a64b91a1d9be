"""Workers that are struck at a step: what they are told, and what the books show meanwhile."""

import signal
from collections.abc import Mapping
from typing import Any, Final

from streams.crash_points import PUBLISH_STEPS, STEPS
from tests.support import witness
from tests.support.attempts import ATTEMPTS, UNANSWERED, ask, at_stripe
from tests.support.books import Books
from tests.support.live import LiveStack, LiveWorker

IMPATIENT: Final[Mapping[str, Any]] = {
    # As short as the broker allows, and as short as its own rule about Stripe's timeouts allows.
    "session_timeout_ms": 6_000,
    "publish_lease_s": 15,
    "stripe_connect_timeout_ms": 1_000,
    "stripe_read_timeout_ms": 5_000,
}
"""Settings under which nobody waits long for a worker that is gone."""
ALONE: Final[Mapping[str, Any]] = {**IMPATIENT, "publish_lanes": 1}
"""And one request in flight: what Stripe has at a step is known exactly."""
OF_A_CHUNK: Final = 2
"""The passing of a chunk's step at which a worker is struck: it has settled something before."""


def struck(stack: LiveStack, name: str, step: str, number: signal.Signals) -> LiveWorker:
    """Starts a worker that gets a signal at a step; waits until it is dead or suspended."""
    of_chunk = step in STEPS
    worker = stack.start_worker(
        name,
        crash_at=f"{step}:{OF_A_CHUNK if of_chunk else 1}:{number.name}",
        **(IMPATIENT if of_chunk else ALONE),
    )
    if number == signal.SIGSTOP:
        worker.await_suspension()
    else:
        code = worker.await_death()
        wanted = 0 if number == signal.SIGTERM else -number
        assert code == wanted, worker.own_log()[-3_000:].decode(errors="replace")
    return worker


def assert_stands_at(stack: LiveStack, books: Books, step: str) -> None:
    """Whether the books show what the first passing of a step of publishing means."""
    attempts, open_ = ask(stack, ATTEMPTS, books), ask(stack, UNANSWERED, books)
    sent = len(at_stripe(stack, books))
    witness.did(f"seen: {attempts} attempts, {open_} without an end, {sent} requests at Stripe")
    at = PUBLISH_STEPS.index(step)
    if at == 0:
        assert (attempts, sent) == (0, 0), "a claim that is not committed has attempted nothing"
    elif at < PUBLISH_STEPS.index("answer_unread"):
        assert attempts == open_ > 0
        assert sent == 0, "the attempt is written before the first byte"
    elif at < PUBLISH_STEPS.index("lane_settled"):
        assert attempts == open_ > 0
        assert sent == 1, "Stripe counts it, and the ledger does not know"
    else:
        assert attempts > open_
        assert sent >= 1
