"""Two workers publish at once while answers are slow or lost: no two requests ever cross."""

from itertools import islice
from typing import Any, Final, NamedTuple

import pytest

from tests.support import witness
from tests.support.attempts import ATTEMPTS, NOT_WHOLE, SENT, ask, look
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveStack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(400)]
EVENTS_MAX: Final = 5_000
PART: Final = 20
TENANTS: Final = 5
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
SHARED_LANES: Final = (
    "SELECT m.lane_id FROM ledger.attempt a JOIN ledger.meter_event m USING (meter_event_id)"
    " WHERE m.customer = ANY(%s) GROUP BY 1 HAVING count(DISTINCT a.worker) = 2"
)


class Race(NamedTuple):
    """How much of a race it has been so far."""

    least: int
    """Requests of the worker that has sent fewer."""
    lanes: int
    """Lanes on which both have sent."""
    again: int
    """Requests that were made again: their answers were lost."""

    @property
    def run(self) -> bool:
        return self.least > 40 and self.lanes >= 2 * TENANTS and self.again > 10


def race(stack: LiveStack, books: Books) -> Race:
    shares = [number for _, number in look(stack, SHARES, books)]
    return Race(
        least=min(shares) if len(shares) == 2 else 0,
        lanes=len(look(stack, SHARED_LANES, books)),
        again=ask(stack, ATTEMPTS, books) - ask(stack, SENT, books),
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
    uses = scattered("racing", EVENTS_MAX, tenants=TENANTS, seed=91)
    write(stack, islice(uses, PART), books)
    show_pending(stack, books)

    def raced() -> bool:
        # In parts: usage that comes while its lane is lent makes the lane due again. For as long
        # as it takes: one of them may start much later than the other.
        write(stack, islice(uses, PART), books)
        return race(stack, books).run

    until(lambda: f"a race of both; {race(stack, books)}", raced, 150)
    await_settled(stack, books, 150)
    found, refused = race(stack, books), crossed(stack) - before
    witness.proved(
        f"{found.least} requests and more of each worker, on {found.lanes} lanes of both; "
        f"{found.again} were made again, {refused} crossed"
    )
    assert_exact(stack, books)
    assert refused == 0
    assert ask(stack, NOT_WHOLE, books) == 0
    stack.stand_in.assert_all_struck()
