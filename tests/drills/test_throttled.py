"""Stripe throttles everything, then every other request: it is asked when it said, and no sooner.

A refusal of the limiter says that nothing was executed, and is nobody's failure: no attempt is used
up by it, however often it comes.
"""

from typing import Final

import pytest

from streams.core.settlement import PublishPolicy
from tests.support.attempts import ATTEMPTS, NOT_WHOLE, SENT, USED_UP, ask, look, whole
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

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 60
RETRY_AFTER_S: Final = 1
REFUSALS_MIN: Final = PublishPolicy().attempts_max + 1

REFUSED: Final = f"{ATTEMPTS} AND http_status = 429"
REFUSALS_OF_EACH: Final = (
    "SELECT count(a.attempt_id) FILTER (WHERE a.http_status = 429) FROM ledger.meter_event m"
    " LEFT JOIN ledger.attempt a USING (meter_event_id)"
    " WHERE m.customer = ANY(%s) AND m.state = 'pending' GROUP BY m.meter_event_id"
)
TOO_SOON: Final = (
    "SELECT count(*) FROM (SELECT a.http_status, a.finished_at, lead(a.started_at) OVER"
    " (PARTITION BY a.meter_event_id ORDER BY a.attempt_id) AS again_at FROM ledger.attempt a"
    " JOIN ledger.meter_event m USING (meter_event_id) WHERE m.customer = ANY(%s)) AS asked"
    " WHERE http_status = 429 AND again_at < finished_at + make_interval(secs => %s)"
)


def refusals_min(stack: LiveStack, books: Books) -> int:
    """How often the least refused of those that wait was refused."""
    return min((number for (number,) in look(stack, REFUSALS_OF_EACH, books)), default=0)


def assert_unharmed(stack: LiveStack, books: Books) -> None:
    assert ask(stack, USED_UP, books) == 0
    assert ask(stack, NOT_WHOLE, books) == 0
    assert ask(stack, TOO_SOON, books, RETRY_AFTER_S) == 0


@pytest.mark.drill(name="stripe-throttles")
def test_a_storm_of_refusals_uses_up_nothing_and_retry_after_is_kept(stack: LiveStack) -> None:
    books = Books()
    stack.stand_in.arm(kind="429", retry_after_s=RETRY_AFTER_S)
    stack.start_worker("throttled", publish_rate_per_s=2_000)
    write(stack, scattered("throttled", EVENTS, tenants=3, seed=71), books)
    until(
        lambda: f"{REFUSALS_MIN} refusals of each request; {refusals_min(stack, books)} so far",
        lambda: refusals_min(stack, books) >= REFUSALS_MIN,
        120,
    )
    assert pending(stack, books) == whole(books)
    assert_unharmed(stack, books)
    show_pending(stack, books)

    refused = ask(stack, REFUSED, books)
    stack.stand_in.clear_faults()
    stack.stand_in.arm(kind="429", retry_after_s=RETRY_AFTER_S, probability=0.5, seed=71)
    await_settled(stack, books, 120)
    assert_exact(stack, books)
    assert_unharmed(stack, books)
    # Else the second half of the storm has passed by.
    assert ask(stack, REFUSED, books) - refused > ask(stack, SENT, books) // 4
