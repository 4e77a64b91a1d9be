"""No check without an invariant, no invariant without a planted bug that its checks notice."""

import re
from pathlib import Path

import pytest

from tests.simulation import checks, completeness, decisions, invoicing, oracle, run
from tests.simulation.invariants import INVARIANTS, Invariant, table
from tests.simulation.mutants import every

MUTANTS = {mutant.name: mutant for mutant in every()}
NOBODY_PLANTS = frozenset({"identity_differs", "ended", "harness"})
"""Noticed by their own comparison alone: other content, a worker's death, a crash of the model."""


def names() -> set[str]:
    """Names of violations, as they stand in the code that finds them."""
    modules = checks, completeness, decisions, invoicing, oracle, run
    files = [Path(str(module.__file__)) for module in modules]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    found = set(re.findall(r'Violation\(\s*"(\w+)"', text))
    return found | {"double", "phantom"}  # chosen by a condition


def test_the_checks_are_those_of_the_invariants() -> None:
    looked_for = {check for one in INVARIANTS for check in one.checks}
    assert looked_for == names() - {"harness"}


def test_of_each_check_somebody_has_planted_what_it_finds() -> None:
    noticed = {name for mutant in MUTANTS.values() for name in mutant.caught_by}
    assert noticed == names() - NOBODY_PLANTS


@pytest.mark.parametrize("one", INVARIANTS, ids=lambda one: one.name)
def test_an_invariant_is_proven_by_a_planted_bug_or_elsewhere(one: Invariant) -> None:
    assert one.mutants or one.elsewhere
    for name in one.mutants:
        assert set(MUTANTS[name].caught_by) & set(one.checks), name


def test_every_planted_bug_breaks_an_invariant() -> None:
    assert {name for one in INVARIANTS for name in one.mutants} == MUTANTS.keys()


def test_all_eighteen_are_in_the_table() -> None:
    assert [one.name for one in INVARIANTS[:18]] == [f"I{n}" for n in range(1, 19)]
    assert table().count("\n| I") == 18
