"""The measures beside the race: each a command of its own, `measures` all of them.

Each has a docstring that says what it does, `--help` its sizes. What a size costs is chosen so that
all together take a quarter of an hour at most on two cores that do nothing else.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tests.bench import drain, facts, latency, recovery, scaling, state
from tests.bench.output import say

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
    return max([_timed(name, arguments) for name in MEASURES])


def _timed(name: str, arguments: Sequence[str]) -> int:
    began_s = time.monotonic()
    code = MEASURES[name](arguments)
    say(f"{name}  took {time.monotonic() - began_s:.0f} s in all")
    return code


COMMANDS: Final = {**MEASURES, "measures": every}
"""By the word that follows `python -m tests.bench`."""
