"""Mutants tried against seeds: the first that notices, or that none does."""

from dataclasses import dataclass

import pytest

from tests.simulation.mutants import SEEDS_MAX, Mutant
from tests.simulation.run import Outcome, run_seed


@dataclass(frozen=True, slots=True)
class Caught:
    """What became of a mutant."""

    mutant: Mutant
    seeds: int
    """Seeds that were tried, the one that noticed included."""
    outcome: Outcome | None
    invariant: str = ""

    @property
    def caught(self) -> bool:
        return self.outcome is not None

    def line(self) -> str:
        """For people."""
        if self.outcome is None:
            return f"{self.mutant.name}: SURVIVES {self.seeds} seeds ({self.mutant.rule})"
        return f"{self.mutant.name}: {self.invariant} after {self.seeds} seeds"

    def document(self) -> dict[str, object]:
        """For the summary."""
        return {"caught": self.caught, "seeds": self.seeds, "invariant": self.invariant}


def hunt(mutant: Mutant, seeds_max: int = SEEDS_MAX) -> Caught:
    """Tries seeds until one notices; call it inside `quiet`."""
    for seed in range(1, seeds_max + 1):
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)
            outcome = run_seed(seed, mutant.faults)
        for violation in outcome.violations:
            if violation.name in mutant.caught_by:
                return Caught(mutant, seed, outcome, violation.name)
    return Caught(mutant, seeds_max, None)
