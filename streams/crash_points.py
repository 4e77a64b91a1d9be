"""Named steps of the chunk protocol, and a way to die at one of them."""

from collections.abc import Callable
from typing import Final

STEPS: Final = (
    "fetched",
    "decided",
    "outputs_produced",
    "packed_produced",
    "batch_written",
    "settled",
)
"""The steps of one chunk, in the only order they may happen."""

CrashAt = Callable[[str], None]
"""Called with the name of each step as it is reached; a drill may not return from it."""


def never(step: str) -> None:
    """The hook of production: reaching a step does nothing."""
    del step


def crash_at(spec: str, kill: Callable[[], None]) -> CrashAt:
    """A hook that calls `kill` when a step is reached.

    Args:
        spec: `name` or `name:n`: the n-th time the step is reached, counted from 1.
        kill: ends the process, by SIGKILL in drills.

    Raises:
        ValueError: naming what is wrong with `spec`.
    """
    name, _, nth = spec.partition(":")
    if name not in STEPS:
        raise ValueError(f"crash point {name!r}: one of {', '.join(STEPS)}")
    if nth and not (nth.isdecimal() and int(nth) > 0):
        raise ValueError(f"crash point {spec!r}: the number after ':' is 1 or more")
    remaining = int(nth or "1")

    def reached(step: str) -> None:
        nonlocal remaining
        if step != name:
            return
        remaining -= 1
        if remaining == 0:
            kill()

    return reached
