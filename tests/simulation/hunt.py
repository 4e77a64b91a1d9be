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
    false_alarm: bool = False
    """Whether the seed is noticed without the bug too: then it shows nothing."""

    @property
    def caught(self) -> bool:
        return self.outcome is not None and not self.false_alarm

    def line(self) -> str:
        """For people."""
        if self.outcome is None:
            return f"{self.mutant.name}: SURVIVES {self.seeds} seeds ({self.mutant.rule})"
        alarm = ", but also without the bug" if self.false_alarm else ""
        return f"{self.mutant.name}: {self.invariant} after {self.seeds} seeds{alarm}"

    def document(self) -> dict[str, object]:
        """For the summary."""
        return {"caught": self.caught, "seeds": self.seeds, "invariant": self.invariant}


def hunt(mutant: Mutant, seeds_max: int = SEEDS_MAX) -> Caught:
    """Tries seeds until one notices; call it inside `quiet`."""
    for seed in range(1, seeds_max + 1):
        outcome = _live(mutant, seed, mutant.layers, mutant.plant)
        for violation in outcome.violations:
            if violation.name in mutant.caught_by:
                control = _live(mutant, seed)
                layers = _live(mutant, seed, mutant.layers)
                alarms = {one.name for one in layers.violations} & set(mutant.caught_by)
                false = bool(control.violations or alarms)
                return Caught(mutant, seed, outcome, violation.name, false_alarm=false)
    return Caught(mutant, seeds_max, None)


def _live(mutant: Mutant, seed: int, *plants: Callable[[Patch], None]) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        for plant in plants:
            plant(patch)
        return run_seed(seed, mutant.faults, short=True)
