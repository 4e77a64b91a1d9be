"""Named steps of a chunk and of a request to Stripe, and a way to be struck at one of them."""

import signal
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

PUBLISH_STEPS: Final = (
    "attempts_written",
    "lanes_claimed",
    "before_first_byte",
    "answer_unread",
    "answer_read",
    "lane_settled",
)
"""The steps from due lanes to a settlement, in the only order they may happen.

At the first the transaction of the claim is still open: nobody else sees the attempts. At
`answer_unread` Stripe has the whole request, and of its answer no byte of the body was read.
"""

SIGNALS: Final = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)
"""What a worker can be struck with: death, suspension, the order to stop."""

CrashAt = Callable[[str], None]
"""Called with the name of each step as it is reached; a drill may not return from it."""


def never(step: str) -> None:
    """The hook of production: reaching a step does nothing."""
    del step


def crash_at(spec: str, strike: Callable[[signal.Signals], None]) -> CrashAt:
    """A hook that calls `strike` when a step is reached.

    Args:
        spec: `step`, `step:n` or `step:n:SIGNAL`: the n-th time the step is reached, counted from
            1, with SIGKILL unless another signal is named.
        strike: sends the signal to this very process.

    Raises:
        ValueError: naming what is wrong with `spec`.
    """
    name, _, rest = spec.partition(":")
    nth, _, called = rest.partition(":")
    if name not in STEPS + PUBLISH_STEPS:
        raise ValueError(f"crash point {name!r}: one of {', '.join(STEPS + PUBLISH_STEPS)}")
    if rest and not (nth.isdecimal() and int(nth) > 0):
        raise ValueError(f"crash point {spec!r}: the number after ':' is 1 or more")
    by_name = {each.name: each for each in SIGNALS}
    if called and called not in by_name:
        raise ValueError(f"crash point {spec!r}: the signal is one of {', '.join(by_name)}")
    number = by_name.get(called, signal.SIGKILL)
    remaining = int(nth or "1")

    def reached(step: str) -> None:
        nonlocal remaining
        if step != name:
            return
        remaining -= 1
        if remaining == 0:
            strike(number)

    return reached
