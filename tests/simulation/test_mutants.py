"""Each planted bug is noticed by the invariant that it breaks."""

from collections.abc import Iterator

import pytest

from tests.simulation.hunt import hunt
from tests.simulation.mutants import Mutant, every
from tests.simulation.run import quiet

SEEDS_MAX = 60
"""Fewer than what a full hunt may take, so that a build stays short."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("mutant", tuple(every()), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_noticed(mutant: Mutant) -> None:
    found = hunt(mutant, SEEDS_MAX)
    assert found.caught, found.line()


def test_names_are_unique() -> None:
    names = [mutant.name for mutant in every()]
    assert len(set(names)) == len(names)
