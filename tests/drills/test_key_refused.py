"""Stripe refuses the key for an hour, then for longer than doubt may last: it waits, and is sent.

Usage goes on being recorded meanwhile. A refused key is nobody's failure: no attempt is used up and
nothing dies of it. The wall clock of the whole stack is moved on.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from tests.support.attempts import ATTEMPTS, NOT_WHOLE, SENT, USED_UP, ask, at_stripe, look, whole
from tests.support.books import (
    Books,
    assert_exact,
    await_settled,
    pending,
    scattered,
    show_pending,
    write,
)
from tests.support.live import LiveWorker
from tests.support.shifted import ShiftedStack, shifted_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(400)]
EVENTS: Final = 80
LANES: Final = 8
LOST_ANSWERS: Final = 3

REFUSED: Final = f"{ATTEMPTS} AND http_status = 401"
NOT_SYSTEMIC: Final = f"{REFUSED} AND outcome <> 'Systemic'"
REFUSED_SINCE: Final = f"{REFUSED} AND started_at > %s"
IN_DOUBT: Final = f"{SENT} AND state = 'dead' AND dead_kind = 'ambiguous'"
UNDECIDED: Final = f"{SENT} AND state IN ('pending', 'ambiguous')"
FROZEN: Final = (
    "SELECT identifier FROM ledger.meter_event WHERE customer = ANY(%s) AND state = 'pending'"
    " AND NOT possibly_executed"
)
LATER_STATE: Final = (
    "SELECT identifier, state FROM ledger.meter_event WHERE customer = ANY(%s)"
    " AND identifier = ANY(%s)"
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShiftedStack]:
    with shifted_stack(tmp_path_factory.mktemp("refused") / "stack") as own:
        yield own


@pytest.fixture
def stack(running: ShiftedStack) -> Iterator[ShiftedStack]:
    yield running
    running.stand_in.clear_faults()
    running.stop_workers()


def record(stack: ShiftedStack, books: Books, name: str, seed: int) -> None:
    """Usage that is recorded now, and waits until all that was recorded waits for Stripe."""
    write(stack, scattered(name, EVENTS, tenants=4, seed=seed, now=stack.now), books)
    until(
        lambda: (
            f"everything to wait for Stripe; {pending(stack, books)} of {whole(books)} units do"
        ),
        lambda: pending(stack, books) == whole(books),
        60,
    )


def openings(worker: LiveWorker) -> int:
    """How often its breaker opened, each failed probe included."""
    return sum(line["state"] == "open" for line in worker.said("sink"))


@pytest.mark.drill(
    name="key-refused-1h",
    about="Stripe refuses the key for an hour: no attempt is used up, and recording goes on",
)
def test_an_hour_without_a_key_costs_no_attempt_and_recording_goes_on(stack: ShiftedStack) -> None:
    books = Books()
    stack.stand_in.arm(kind="401")
    worker = stack.start_worker("hour", publish_lanes=LANES)
    record(stack, books, "hour-a", 61)
    stack.move(timedelta(minutes=31))
    record(stack, books, "hour-b", 62)
    stack.move(timedelta(minutes=31))
    later = stack.now
    record(stack, books, "hour-c", 63)
    until(
        "a probe past the hour, which is refused too",
        lambda: ask(stack, REFUSED_SINCE, books, later) > 0,
        60,
    )
    probes = openings(worker)
    assert probes >= 2
    assert all("HTTP 401" in line["reason"] for line in worker.said("sink"))
    # What was in flight when it opened, and from then on one request at a time.
    assert ask(stack, REFUSED, books) <= LANES + probes
    assert ask(stack, NOT_SYSTEMIC, books) == 0
    assert ask(stack, NOT_WHOLE, books) == 0
    show_pending(stack, books)

    stack.stand_in.clear_faults()
    await_settled(stack, books, 120)
    assert_exact(stack, books)
    assert ask(stack, USED_UP, books) == 0
    assert worker.said("sink")[-1]["state"] == "closed"


@pytest.mark.drill(
    name="key-refused-a-day",
    about="Stripe refuses the key for a day: all is sent but what may be there already",
)
def test_a_key_that_is_back_after_a_day_sends_all_but_what_may_be_there(
    stack: ShiftedStack,
) -> None:
    """The fence is for doubt alone: what was never executed is sent, as it was frozen."""
    books = Books()
    stack.stand_in.arm(kind="drop_after", count=LOST_ANSWERS)
    stack.stand_in.arm(kind="401")
    stack.start_worker("day", publish_lanes=LANES)
    record(stack, books, "day-a", 64)
    until("answers to be lost", lambda: ask(stack, NOT_WHOLE, books) == LOST_ANSWERS, 30)
    frozen = {identifier for (identifier,) in look(stack, FROZEN, books)}
    assert frozen
    used_up = ask(stack, USED_UP, books)
    stack.move(timedelta(hours=25))
    record(stack, books, "day-b", 65)
    assert ask(stack, NOT_SYSTEMIC, books) == 0
    show_pending(stack, books)

    stack.stand_in.clear_faults()
    until(
        lambda: f"everything without doubt to be recorded; {ask(stack, UNDECIDED, books)} are not",
        lambda: ask(stack, UNDECIDED, books) == 0 and ask(stack, IN_DOUBT, books) == LOST_ANSWERS,
        120,
    )
    there = at_stripe(stack, books)
    states = dict(look(stack, LATER_STATE, books, list(frozen)))
    # More usage of its window may have taken one in; then nothing went out under its name.
    assert {i for i, state in states.items() if state == "recorded"} == frozen & there
    assert set(states.values()) <= {"recorded", "superseded"}
    assert frozen & there
    assert 0 < pending(stack, books) < whole(books)

    stack.settle_by_sums()
    await_settled(stack, books, 60)
    assert_exact(stack, books, doubted=LOST_ANSWERS)
    assert ask(stack, USED_UP, books) == used_up, "only lost answers can have used any up"
