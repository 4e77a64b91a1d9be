"""A publisher is suspended past its lease and past the fence, and wakes up: it sends nothing more.

Others took its lanes meanwhile. What it held may be at Stripe or not, which nobody can know a day
later, so it stays in doubt, whoever asks, until Stripe's own sums decide.
"""

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from streams.core.retry import BreakerPolicy
from tests.support.attempts import SENT, UNANSWERED, ask, at_stripe, look, whole
from tests.support.books import (
    Books,
    assert_exact,
    await_settled,
    pending,
    scattered,
    show_pending,
    write,
)
from tests.support.shifted import ShiftedStack, shifted_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 200
# Fewer failures than open the breaker, which would keep back what the lease alone must.
IN_FLIGHT: Final = BreakerPolicy().failures_max - 1
SETTINGS: Final[dict[str, Any]] = {
    "publish_lanes": IN_FLIGHT,
    "publish_lease_s": 15,
    "stripe_connect_timeout_ms": 1_000,
    "stripe_read_timeout_ms": 6_000,
}
HELD: Final = (
    "SELECT m.identifier FROM ledger.meter_event m JOIN ledger.attempt a USING (meter_event_id)"
    " WHERE m.customer = ANY(%s) AND a.finished_at IS NULL"
)
LENT: Final = "SELECT count(*) FROM ledger.lane WHERE customer = ANY(%s) AND claimed_until > now()"
IN_DOUBT: Final = f"{SENT} AND state = 'dead' AND dead_kind = 'ambiguous'"
UNDECIDED: Final = f"{SENT} AND state IN ('pending', 'ambiguous')"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[ShiftedStack]:
    with shifted_stack(tmp_path / "stack") as own:
        yield own


@pytest.mark.drill(name="asleep-past-fence")
def test_asleep_past_lease_and_fence_its_doubts_are_settled_by_sums(stack: ShiftedStack) -> None:
    books = Books()
    # Recorded, and the answer never ends.
    stack.stand_in.arm(kind="stall", count=IN_FLIGHT, duration_ms=120_000)
    sleeper = stack.start_worker("sleeper", **SETTINGS)
    write(stack, scattered("asleep", EVENTS, seed=81), books)
    until(
        "requests in flight, and more lanes lent",
        lambda: (
            len(at_stripe(stack, books)) == IN_FLIGHT
            and ask(stack, UNANSWERED, books) > 2 * IN_FLIGHT
        ),
        60,
    )
    sleeper.signal(signal.SIGSTOP)
    try:
        show_pending(stack, books)
        held = {identifier for (identifier,) in look(stack, HELD, books)}
        there = at_stripe(stack, books)
        assert there < held
        stack.stand_in.clear_faults()
        until("its leases to end", lambda: ask(stack, LENT, books) == 0, 30)
        stack.move(timedelta(hours=24))
        stack.start_worker("awake", **SETTINGS)
        until(
            lambda: f"everything without doubt to be recorded; {ask(stack, UNDECIDED, books)} not",
            lambda: ask(stack, UNDECIDED, books) == 0 and ask(stack, IN_DOUBT, books) == len(held),
            120,
        )
    finally:
        sleeper.signal(signal.SIGCONT)
    until(
        "the sleeper to give back what it held",
        lambda: ask(stack, UNANSWERED, books) == 0,
        60,
    )
    assert at_stripe(stack, books) & held == there, "it sent what it held"
    assert ask(stack, IN_DOUBT, books) == len(held)
    assert 0 < pending(stack, books) < whole(books)

    write(stack, scattered("awake", EVENTS // 4, seed=82, now=stack.now), books)
    until(
        "usage that came since to be recorded",
        lambda: ask(stack, UNDECIDED, books) == 0 and ask(stack, IN_DOUBT, books) == len(held),
        90,
    )
    stack.settle_by_sums()
    await_settled(stack, books, 60)
    assert_exact(stack, books, doubted=len(held))
