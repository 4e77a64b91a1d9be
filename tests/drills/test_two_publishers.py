"""Two workers publish at once while answers are slow or lost: no two requests ever cross."""

from typing import Any, Final

import pytest

from tests.support.attempts import ATTEMPTS, NOT_WHOLE, SENT, ask, look
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 300
PART: Final = 20
FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"kind": "slow", "delay_ms": 400, "probability": 0.5},
    {"kind": "drop_after", "count": 12, "probability": 0.1},
    {"kind": "drop_before", "count": 6, "probability": 0.05},
    {"kind": "truncate", "count": 6, "probability": 0.05},
)
SHARES: Final = (
    "SELECT a.worker, count(*) FROM ledger.attempt a JOIN ledger.meter_event m"
    " USING (meter_event_id) WHERE m.customer = ANY(%s) GROUP BY 1"
)


def crossed(stack: LiveStack) -> int:
    """Requests that Stripe refused because another one for their lane or key was in flight."""
    counts = stack.stand_in.request_counts()
    return counts.get("status 409", 0) + counts.get("status 429", 0)


@pytest.mark.drill(name="two-publishers")
def test_two_publishers_on_the_same_lanes_never_cross(stack: LiveStack) -> None:
    books = Books()
    before = crossed(stack)
    for number, fault in enumerate(FAULTS):
        stack.stand_in.arm(**fault, seed=number)
    for name in ("racing-a", "racing-b"):
        stack.start_worker(name, publish_lanes=8)
    uses = list(scattered("racing", EVENTS, tenants=5, seed=91))
    # In parts: usage that comes while its lane is lent makes the lane due again.
    for part in range(0, EVENTS, PART):
        write(stack, uses[part : part + PART], books)
    show_pending(stack, books)
    until("both to send", lambda: len(look(stack, SHARES, books)) == 2, 60)
    await_settled(stack, books, 150)
    assert_exact(stack, books)
    assert crossed(stack) == before
    assert ask(stack, NOT_WHOLE, books) == 0
    # Else nobody raced, or no answer was lost.
    stack.stand_in.assert_all_struck()
    assert min(number for _, number in look(stack, SHARES, books)) > 20
    assert ask(stack, ATTEMPTS, books) > ask(stack, SENT, books) + 10
