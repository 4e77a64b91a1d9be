"""A contender that differs from the oracle in anything is out, whoever it is."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tests.bench.contender import Command, Contender, Heat
from tests.bench.oracle import Tally, tally
from tests.bench.race import heat
from tests.bench.workload import Shape, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.stack import Stack

EXPECTED = tally(message.value for message in messages(Shape(records=2_000)))
SERIES = min(EXPECTED.totals)
COUNT, TOTAL = EXPECTED.totals[SERIES]
WORKS = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
(folder / "ids").write_bytes(bytes(1_000))
(folder / "done").touch()
sys.stdin.read()
"""


class Broker:
    """A stack of which only the length of the outputs is asked: half of them, then all."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "sandbox"
        self.counts = [EXPECTED.outputs // 3, EXPECTED.outputs * 3 // 4]

    def watcher(self, _names: object) -> Callable[[], int]:
        return lambda: self.counts.pop(0)


class Told(Contender):
    """A process that writes a state and waits; what came of it is what the test says."""

    name = "told"
    says = "a contender"
    module = None
    claims = EXPECTED
    cleaned = False

    def prepare(self) -> Command:
        argv = (*self.heat.launcher, "-c", WORKS, str(self.heat.data))
        return Command(argv, self.heat.environment())

    def outputs(self) -> tuple[str, str, str]:
        return "accepted", "review", "dead"

    def finished(self, expected: Tally) -> bool:
        del expected
        broker = cast("Broker", self.stack)
        return not broker.counts and (self.heat.data / "done").exists()

    def tell(self) -> Tally:
        return self.claims

    def clean(self) -> None:
        self.cleaned = True


def contender(folder: Path) -> Told:
    stack = cast("Stack", Broker(folder))
    return Told(Heat(stack, "source", folder, 1))


def test_an_exact_contender_is_measured(tmp_path: Path) -> None:
    figures = heat(contender(tmp_path), EXPECTED, 60)
    assert figures.wrong == ()
    assert 0 < figures.cpu_s < 30
    assert figures.half is not None
    assert 0.74 < figures.half.share < 0.76, "the first moment with half of the outputs"
    assert figures.half.cpu_s <= figures.cpu_s
    assert figures.state_bytes == 1_000
    assert figures.ids == EXPECTED.accepted + EXPECTED.late


@pytest.mark.parametrize(
    ("claims", "named"),
    [
        (
            replace(EXPECTED, accepted=EXPECTED.accepted + 1, duplicates=EXPECTED.duplicates - 1),
            "accepted",
        ),
        (
            replace(
                EXPECTED,
                totals={**EXPECTED.totals, SERIES: (COUNT, TOTAL + Decimal("0.001"))},
            ),
            "totals: 1 of",
        ),
        (replace(EXPECTED, late=EXPECTED.late - 1, accepted=EXPECTED.accepted + 1), "late"),
    ],
    ids=["counts a copy", "a thousandth too much", "late usage as if it were on time"],
)
def test_a_planted_error_disqualifies(tmp_path: Path, claims: Tally, named: str) -> None:
    planted = contender(tmp_path)
    planted.claims = claims
    figures = heat(planted, EXPECTED, 60)
    assert any(line.startswith(named) for line in figures.wrong)
    assert planted.cleaned


def test_one_that_ends_by_itself_is_out(tmp_path: Path) -> None:
    planted = contender(tmp_path)
    (tmp_path / "data").mkdir()  # it cannot make its folder
    figures = heat(planted, EXPECTED, 60)
    assert "told ended by itself with 1" in figures.wrong[0]
