"""How long to go on asking something outside, with time and chance as arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long to go on asking, and where time and chance come from."""

    sleep: Callable[[float], None]
    """Waits for seconds; `time.sleep`."""
    monotonic: Callable[[], float]
    """Seconds of a clock that never steps; `time.monotonic`."""
    random: Callable[[], float]
    """A number in [0, 1); `random.random`."""
    total_s: float = 120.0
    """How long one request is repeated before it is given up."""
    first_s: float = 0.25
    """Upper bound of the first wait; it doubles."""
    longest_s: float = 10.0
    """Upper bound of any wait."""

    def pause_s(self, attempt: int) -> float:
        """Seconds to wait after the attempt with this number, counted from 0: full jitter."""
        return self.random() * min(self.longest_s, self.first_s * 2.0 ** min(attempt, 20))

    def until(self, look: Callable[[], T | None], within_s: float) -> T | None:
        """Look at growing intervals until there is something; None when the time is over."""
        ends = self.monotonic() + within_s
        pause_s = 0.05
        while True:
            found = look()
            if found is not None or self.monotonic() >= ends:
                return found
            self.sleep(pause_s)
            pause_s = min(1.0, 2 * pause_s)
