"""What an ingestion process has answered, as it tells Prometheus.

Every word that an alert waits for is told from the start, as 0: a rule sees a count rise, and none
appear.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Final, get_args

from streams.adapters.clock import Clock
from streams.adapters.metrics import Sample, Spread, SpreadSample
from streams.ingest.answers import STATUSES
from streams.ingest.outcome import Failure

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, inf)
"""Of the histogram; between the last two lies every `ingest_timeout_s` that makes sense."""


@dataclass(slots=True)
class Figures:
    """Counts since the process began."""

    clock: Clock
    calls: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    limited: Counter[str] = field(default_factory=Counter)
    """Calls that their keys were too fast for, by the keys' names."""
    in_hand: int = 0
    """Calls whose bodies we hold."""
    _failures: Counter[Failure] = field(default_factory=Counter)
    _failed_at_s: dict[Failure, float] = field(default_factory=dict)
    _took: list[int] = field(default_factory=lambda: [0] * len(BOUNDS_S))
    _took_s: float = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """A call whose body is there, until its answer: how long a body takes is its producer's."""
        begun_s = self.clock.elapsed_s()
        try:
            yield
        finally:
            took_s = self.clock.elapsed_s() - begun_s
            self._took[bisect_left(BOUNDS_S, took_s)] += 1
            self._took_s += took_s

    def failed(self, why: Failure) -> None:
        """A call that may be right was not recorded, or nobody knows."""
        self._failures[why] += 1
        self._failed_at_s[why] = self.clock.elapsed_s()

    def samples(self) -> Iterator[Sample | SpreadSample]:
        """As the metrics' table names them."""
        for status, count in sorted(self.calls.items()):
            yield "usage_ingest_calls_total", status, count
        for outcome in STATUSES:
            yield "usage_ingest_events_total", outcome, self.events[outcome]
        yield "usage_ingest_calls_waiting", None, self.in_hand
        below = tuple(zip(BOUNDS_S, accumulate(self._took), strict=True))
        yield "usage_ingest_call_seconds", None, Spread(below, self._took_s)
        for holder, count in sorted(self.limited.items()):
            yield "usage_ingest_limited_total", holder, count
        for why in get_args(Failure):
            yield "usage_ingest_failures_total", why, self._failures[why]
        for why, at_s in self._failed_at_s.items():
            yield "usage_ingest_failure_age_seconds", why, self.clock.elapsed_s() - at_s
