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

from tests.support.books import (
    Books,
    assert_exact,
    await_settled,
    map_customers,
    pending,
    record,
    scattered,
)
from tests.support.live import LiveStack, wait_until
from tests.support.stack import NativeStack, open_stack

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


def test_26_hours_without_stripe(shifted: tuple[LiveStack, NativeStack]) -> None:
    stack, parts = shifted
    books = Books()
    stack.stand_in.arm(kind="drop_after", count=LOST_ANSWERS)
    stack.stand_in.arm(kind="outage")
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        for use in scattered("outage", EVENTS, seed=51):
            record(service, use)
            books.note(use)
    map_customers(stack, books)
    everything = sum(units for _, units in books.windows.values())
    wait_until(
        lambda: (
            f"all to wait and {LOST_ANSWERS} answers to be lost; {len(stack.stand_in.oracle())} are"
        ),
        lambda: (
            pending(stack, books) == everything and len(stack.stand_in.oracle()) == LOST_ANSWERS
        ),
        90,
    )

    parts.shift("+26h")
    stack.stand_in.clear_faults()
    wait_until(
        lambda: f"everything but the doubtful to be settled: {states(stack)}",
        lambda: not states(stack).keys() & {"pending", "ambiguous"},
        120,
    )
    # What broke off in the outage itself may be in doubt as well, though Stripe never had it.
    doubted = states(stack)["dead ambiguous"]
    assert doubted >= LOST_ANSWERS
    assert states(stack).keys() <= {"recorded", "superseded", "dead ambiguous"}
    assert 0 < pending(stack, books) < everything

    first = stack.tailrace("reconcile", "--yes", "--reason", "Stripe is back")
    assert "0 findings" in first.stdout, first.stdout + first.stderr
    assert states(stack)["dead ambiguous"] == doubted  # a sum seen once may still grow
    parts.shift("+52h")
    second = stack.tailrace("reconcile", "--yes", "--reason", "the sums stood still for a day")
    assert second.returncode == 0, second.stdout + second.stderr
    await_settled(stack, books, 60)
    assert_exact(stack, books, doubted=doubted)
    third = stack.tailrace("reconcile", "--yes", "--reason", "once more")
    assert third.returncode == 0, third.stdout + third.stderr
    assert "0 not" in third.stdout
    assert_exact(stack, books, doubted=doubted)
    assert not states(stack).keys() & {"pending", "ambiguous"}
