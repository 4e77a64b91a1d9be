"""Mutants tried against seeds: the first that notices, or that none does."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.simulation.mutants import SEEDS_MAX, Mutant, Patch, every
from tests.simulation.run import Outcome, run_seed
from tests.simulation.summary import MutantFigures


@dataclass(frozen=True, slots=True)
class Caught:
    """What became of a mutant."""

    mutant: Mutant
    seeds: int
    """Seeds that were tried, the one that noticed included."""
    outcome: Outcome | None
    invariant: str = ""
    alarm: str = ""
    """What is noticed without the bug too: then the seed shows nothing."""
    alone: str = ""
    """What notices it in these seeds with every layer on; empty where they make it good."""

    @property
    def caught(self) -> bool:
        return self.outcome is not None and not self.alarm

    def line(self) -> str:
        """For people."""
        if self.outcome is None:
            found = f"SURVIVES {self.seeds} seeds"
        elif self.alarm:
            found = f"shows nothing: {self.alarm}"
        else:
            found = f"{self.invariant} after {self.seeds}"
        layers = "" if not self.mutant.layers_off else f"; with layers on: {self.alone or 'hidden'}"
        return f"{self.mutant.name:34} {found:26} {self.mutant.rule}{layers}"

    def document(self) -> MutantFigures:
        """For the summary."""
        return {
            "caught": self.caught,
            "seeds": self.seeds,
            "invariant": self.invariant,
            "rule": self.mutant.rule,
            "layers_off": list(self.mutant.layers_off),
            "alone": self.alone,
        }


def hunt(mutant: Mutant, seeds_max: int = SEEDS_MAX) -> Caught:
    """Tries seeds until one notices; call it inside `quiet`.

    A bug that layers hide is tried with them off, and the same seeds again with them on. A seed
    that notices that they are off, bug or no bug, shows nothing of it: the next one is tried.
    """
    seeds, outcome, invariant = _first(mutant, seeds_max, mutant.layers, mutant.plant)
    if outcome is None:
        return Caught(mutant, seeds, None)
    alone = invariant
    if mutant.layers_off:
        _, _, alone = _first(mutant, seeds, mutant.plant)
    return Caught(mutant, seeds, outcome, invariant, _without(mutant, seeds), alone)


def hunt_named(name: str, seeds_max: int) -> Caught:
    """The same for a mutant's name."""
    return hunt(next(mutant for mutant in every() if mutant.name == name), seeds_max)


def _first(
    mutant: Mutant, seeds_max: int, *plants: Callable[[Patch], None]
) -> tuple[int, Outcome | None, str]:
    """Seeds tried until one notices, that one, and how it notices."""
    for seed in range(1, seeds_max + 1):
        outcome = _live(mutant, seed, *plants)
        noticed = _noticed(mutant, outcome)
        if noticed and not (mutant.layers in plants and _noticed_without_it(mutant, seed)):
            return seed, outcome, noticed
    return seeds_max, None, ""


def _noticed(mutant: Mutant, outcome: Outcome) -> str:
    """What there is of that which the mutant is caught by."""
    return next((v.name for v in outcome.violations if v.name in mutant.caught_by), "")


def _noticed_without_it(mutant: Mutant, seed: int) -> bool:
    """Whether the layers that would hide the bug are missed, and not the bug noticed."""
    return bool(mutant.layers_off and _noticed(mutant, _live(mutant, seed, mutant.layers)))


def _without(mutant: Mutant, seeds: int) -> str:
    """What the same seeds show without the bug."""
    for seed in range(1, seeds + 1):
        for violation in _live(mutant, seed).violations:
            return f"{violation.name} without the bug in seed {seed}"
    return ""


def _live(mutant: Mutant, seed: int, *plants: Callable[[Patch], None]) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        for plant in plants:
            plant(patch)
        return run_seed(seed, mutant.faults, short=True)
