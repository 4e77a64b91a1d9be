"""Mutants tried against seeds: the first that notices, or that none does."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.simulation.mutants import SEEDS_MAX, Mutant, Patch
from tests.simulation.run import Outcome, run_seed


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
        return f"{self.mutant.name:34} {found:26} {self.mutant.rule}"

    def document(self) -> dict[str, object]:
        """For the summary."""
        return {
            "caught": self.caught,
            "seeds": self.seeds,
            "invariant": self.invariant,
            "rule": self.mutant.rule,
            "layers_off": list(self.mutant.layers_off),
        }


def hunt(mutant: Mutant, seeds_max: int = SEEDS_MAX) -> Caught:
    """Tries seeds until one notices; call it inside `quiet`."""
    for seed in range(1, seeds_max + 1):
        outcome = _live(mutant, seed, mutant.layers, mutant.plant)
        for violation in outcome.violations:
            if violation.name in mutant.caught_by:
                alarm = _without(mutant, seed)
                return Caught(mutant, seed, outcome, violation.name, alarm)
    return Caught(mutant, seeds_max, None)


def _without(mutant: Mutant, seeds: int) -> str:
    """What the same seeds show without the bug, with its layers off and on."""
    for violation in _live(mutant, seeds, mutant.layers).violations:
        if violation.name in mutant.caught_by:
            return f"{violation.name} with only the layers off"
    for seed in range(1, seeds + 1):
        for violation in _live(mutant, seed).violations:
            return f"{violation.name} without the bug in seed {seed}"
    return ""


def _live(mutant: Mutant, seed: int, *plants: Callable[[Patch], None]) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        for plant in plants:
            plant(patch)
        return run_seed(seed, mutant.faults, short=True)
