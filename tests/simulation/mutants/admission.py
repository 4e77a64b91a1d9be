"""Bugs between the log and the state."""

from typing import Any, Final

from streams.agents import admit
from tests.simulation.mutants import Mutant, Patch

_settlement_of = admit.settlement_of


def _forgets_ids(patch: Patch) -> None:
    def settlement_of(*given: Any) -> Any:
        settlement = _settlement_of(*given)
        settlement.seen = []
        return settlement

    patch.setattr(admit, "settlement_of", settlement_of)


MUTANTS: Final = (
    Mutant(
        "ids_not_written",
        "what was seen is in the same batch as the applied offset",
        _forgets_ids,
        ("identity_phantom", "double"),
        ("connect_killed",),
    ),
)
