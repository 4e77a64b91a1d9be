"""How much one key may bring: events and the time → taken, or how long to wait."""

from typing import Final

from streams.adapters.clock import Clock

EVENTS_MAX: Final = 1_000
"""Of one call."""


class Rates:
    """One bucket a key: it fills by so many events a second, and holds a second's or a call's."""

    def __init__(self, events_per_s: int, clock: Clock) -> None:
        """All buckets are full."""
        self._events_per_s = events_per_s
        self._size = float(max(events_per_s, EVENTS_MAX))
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str, events: int) -> float:
        """Takes so many events of a key's, or none and the seconds until there are enough.

        Args:
            name: whose.
            events: at most `EVENTS_MAX`, so that waiting helps.
        """
        now_s = self._clock.elapsed_s()
        left, since_s = self._buckets.get(name, (self._size, now_s))
        left = min(self._size, left + (now_s - since_s) * self._events_per_s)
        taken = events if left >= events else 0
        self._buckets[name] = (left - taken, now_s)
        return 0.0 if taken == events else (events - left) / self._events_per_s
