"""Stripe is away for 26 hours and the last answers before that are lost: no unit is sent twice.

What Stripe may have taken is past every fence when it is back, so nothing of it is sent again: its
own sums decide, once they stood still. The wall clock of the whole stack is shifted for it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.support import witness
from tests.support.book_reading import ledger_number
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
from tests.support.stack import NativeStack, open_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(400)]
EVENTS: Final = 200
LOST_ANSWERS: Final = 7


@pytest.fixture
def shifted(tmp_path: Path) -> Iterator[tuple[LiveStack, NativeStack]]:
    with open_stack(tmp_path / "stack", os.environ, workers=1, shift_clock=True) as parts:
        assert isinstance(parts, NativeStack)
        yield LiveStack(parts), parts


def states(stack: LiveStack) -> dict[str, int]:
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        rows = ledger.execute(
            "SELECT CASE WHEN state = 'dead' THEN 'dead ' || dead_kind ELSE state END, count(*)"
            " FROM ledger.meter_event GROUP BY 1"
        ).fetchall()
    return {state: int(number) for state, number in rows}


def waiting(stack: LiveStack) -> int:
    """Units that can still be sent."""
    return ledger_number(stack, "SELECT coalesce(sum(pending + held), 0) FROM ledger.balance")


@pytest.mark.drill(name="stripe-away-26h")
def test_26_hours_without_stripe(shifted: tuple[LiveStack, NativeStack]) -> None:
    stack, parts = shifted
    books = Books()
    stack.stand_in.arm(kind="drop_after", count=LOST_ANSWERS)
    stack.stand_in.arm(kind="outage")
    write(stack, scattered("outage", EVENTS, seed=51), books)
    everything = sum(units for _, units in books.windows.values())
    # The breaker opens soon, and its probes may meet what was recorded already.
    until(
        lambda: (
            f"all {everything} units to wait, {pending(stack, books)} do: {states(stack)};"
            f" and some answers to be lost, {len(stack.stand_in.oracle())} are"
        ),
        lambda: pending(stack, books) == everything and len(stack.stand_in.oracle()) >= 3,
        90,
    )
    lost = len(stack.stand_in.oracle())
    show_pending(stack, books)
    witness.seen("answers lost of what Stripe has", lost)

    parts.shift("+26h")
    stack.stand_in.clear_faults()
    until(
        lambda: f"everything but the doubtful to be settled: {states(stack)}",
        lambda: waiting(stack) == 0 and not states(stack).keys() & {"pending", "ambiguous"},
        120,
    )
    # What broke off in the outage itself may be in doubt as well, though Stripe never had it.
    doubted = states(stack)["dead ambiguous"]
    assert doubted >= lost
    assert states(stack).keys() <= {"recorded", "superseded", "dead ambiguous"}
    assert 0 < pending(stack, books) < everything

    for hours, why in ((26, "a request may be in flight"), (52, "a sum seen once may grow")):
        parts.shift(f"+{hours}h")
        early = stack.tailrace("reconcile", "--yes", "--reason", why)
        assert "0 findings" in early.stdout, early.stdout + early.stderr
        assert states(stack)["dead ambiguous"] == doubted, why
    parts.shift("+78h")
    settled = stack.tailrace("reconcile", "--yes", "--reason", "the sums stood still for a day")
    assert settled.returncode == 0, settled.stdout + settled.stderr
    await_settled(stack, books, 60)
    assert_exact(stack, books, doubted=doubted)
    again = stack.tailrace("reconcile", "--yes", "--reason", "once more")
    assert again.returncode == 0, again.stdout + again.stderr
    assert " 0 not " in again.stdout
    assert_exact(stack, books, doubted=doubted)
