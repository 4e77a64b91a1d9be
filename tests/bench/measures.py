"""The measures beside the race: each a command of its own, `measures` all of them.

Each has a docstring that says what it does, `--help` its sizes. What a size costs is chosen so that
all together take a quarter of an hour at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.bench import drain, facts, latency, recovery, scaling, state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MEASURES: Final[dict[str, Callable[[Sequence[str]], int]]] = {
    "state": state.main,
    "recovery": recovery.main,
    "drain": drain.main,
    "facts": facts.main,
    "latency": latency.main,
    "scaling": scaling.main,
}


def every(arguments: Sequence[str]) -> int:
    """Every measure in turn, whatever came of the one before; 1 if one of them was wrong."""
    return max([measure(arguments) for measure in MEASURES.values()])


COMMANDS: Final = {**MEASURES, "measures": every}
"""By the word that follows `python -m tests.bench`."""
