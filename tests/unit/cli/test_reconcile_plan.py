"""What follows for a cell, in the words of the report."""

from __future__ import annotations

from decimal import Decimal

import pytest

from streams.cli.reconcile_plan import Line, Side, summary
from streams.cli.reconcile_stripe import CellKey
from streams.core.reconcile import Figures, Settle, Wait

LATE = "5 are too late for their invoice and would wait in `tailrace carry list`"
CELL = CellKey("cus_1", "calls", 7_200, 10_800)


@pytest.mark.parametrize(
    ("decision", "wanted"),
    [
        (Settle((), (1,), 0, 5), "send 5 as one meter event"),
        (Settle((), (), 3, 5), "send 5 as one meter event, 3 are there and adopted"),
        (Settle((), (1,), 0, 5, late=True), LATE),
        (Settle((), (), 3, 5, late=True), f"{LATE}, 3 are there and adopted"),
        (Settle((), (), 3, 0), "all of it is there, 3 adopted"),
    ],
)
def test_what_missed_its_invoice_is_not_said_to_be_sent(decision: Settle, wanted: str) -> None:
    assert wanted == Line(CELL, Side(Figures(0)), Decimal(3), decision).next_step


def test_a_cell_that_was_parted_is_settled_and_no_finding() -> None:
    line = Line(CELL, Side(Figures(0)), Decimal(3), Settle((), (), 3, 5, late=True), "carried")
    assert not line.is_finding
    assert line.next_step.startswith("settled: ")
    assert "carry" in line.next_step


def test_the_last_line_says_where_cells_that_are_not_equal_stand() -> None:
    side = Side(Figures(0))
    wait = Line(CELL, side, Decimal(3), Wait("its sum must stand still", None))
    settled = Line(CELL, side, Decimal(3), Settle((), (1,), 0, 5), "settled")
    said = summary(4, (wait, wait, settled), 0)
    assert said == "4 cells equal · 3 not (2 wait, 1 settled) · 0 findings"
    assert summary(1, (), 0) == "1 cells equal · 0 not · 0 findings"
