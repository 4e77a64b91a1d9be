"""So many of so many → one line with how fast it goes and how long it still takes."""

from streams.adapters.clock import Clock
from streams.cli.terminal import Progress
from streams.core.instant import age_text


class Pace:
    """Rewrites its line; what it says is for people, and nothing is decided by it."""

    def __init__(self, line: Progress, clock: Clock, what: str) -> None:
        self._line, self._clock, self._what = line, clock, what
        self._began_s = clock.elapsed_s()

    def show(self, done: int, total: int) -> None:
        """So many are done of so many."""
        passed_s = self._clock.elapsed_s() - self._began_s
        text = f"{self._what}: {done} of {total}"
        if done and passed_s > 0:
            left_s = passed_s * (total - done) / done
            text += f", {done / passed_s:.0f} a second, {age_text(left_s)} left"
        self._line.show(text)

    def clear(self) -> None:
        """Takes the line away."""
        self._line.clear()
