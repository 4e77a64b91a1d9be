"""A worker's wall clock jumps by hours, forward and back, while it works: nothing expires by it.

Leases, fences, sessions and identities are measured by the ledger's clock, by elapsed time and by
the positions of the logs. The other worker and all parts keep their time.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from sandbox import clock
from tests.support import witness
from tests.support.attempts import ATTEMPTS, NOT_WHOLE, SENT, UNANSWERED, ask
from tests.support.books import Books, assert_exact, await_settled, scattered, show_pending, write
from tests.support.live import LiveWorker
from tests.support.shifted import ShiftedStack, shifted_stack
from tests.support.struck import IMPATIENT
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 60
HOUR_S: Final = 3_600


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[ShiftedStack]:
    with shifted_stack(tmp_path / "stack") as own:
        yield own


def thinks_it_is(worker: LiveWorker) -> datetime:
    """The wall clock of a worker when it last wrote into its log."""
    said = worker.said("recovered")[-1]["timestamp"]
    return datetime.fromisoformat(said).astimezone(UTC)


@pytest.mark.drill(name="clock-stepped")
def test_a_wall_clock_that_jumps_lets_nothing_expire(stack: ShiftedStack, tmp_path: Path) -> None:
    books = Books()
    its_clock = tmp_path / "stepped"
    clock.set_offset(its_clock, HOUR_S)
    stepped = stack.start_worker("stepped", clock_file=its_clock, **IMPATIENT)
    until("it to own partitions", lambda: bool(stepped.said("recovered")), 60)
    assert thinks_it_is(stepped) - stack.now > timedelta(minutes=50)
    steady = stack.start_worker("steady", **IMPATIENT)
    until("the other to own some", lambda: bool(steady.said("recovered")), 60)

    for number, offset_s in enumerate((-HOUR_S, 2 * HOUR_S, 0)):
        stack.stand_in.arm(kind="slow", delay_ms=1_500)
        write(stack, scattered(f"step-{number}", EVENTS, tenants=8, seed=71 + number), books)
        until("requests in flight", lambda: ask(stack, UNANSWERED, books) > 0, 60)
        show_pending(stack, books)
        clock.set_offset(its_clock, offset_s)
        witness.did(f"the clock of one worker jumps to {offset_s:+} s, requests are in flight")
        write(stack, scattered(f"stepped-{number}", EVENTS, tenants=8, seed=81 + number), books)
        stack.stand_in.clear_faults()
        await_settled(stack, books, 120)

    assert_exact(stack, books)
    assert ask(stack, NOT_WHOLE, books) == 0
    assert ask(stack, ATTEMPTS, books) == ask(stack, SENT, books), "something was sent again"
    for worker in (stepped, steady):
        assert worker.alive
        assert not worker.said("lost")
        assert not worker.said("chunk_not_settled")
