"""Lines of a statement → one a metric that adds them up, and hides nothing of what is wrong.

In: lines of windows. Out: their totals. A line's words are here, too: what it is of, and where
recorded usage can be.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

RIGHT: Final = ("billed", "pending", "held", "review", "rejected", "dead", "doubtful")
"""Where recorded usage can be, in the order of a line."""


class Span(NamedTuple):
    """A metric's window, half-open, in microseconds."""

    metric: str
    start_us: int
    end_us: int


class Line(NamedTuple):
    """A window's usage, by where it is. Amounts in units; `difference` is recorded and nowhere."""

    span: Span
    events: int
    recorded: int
    corrected: int
    moved: int
    billed: int
    pending: int
    held: int
    review: int
    rejected: int
    dead: int
    doubtful: int
    unusable: int
    """Events without an amount in this meter's units: dead letters, or a difference."""
    difference: int
    missing: int
    """Events recorded that are neither accepted nor parked; below zero: that nobody recorded."""
    proven: bool | None
    """Whether the accepted events are those of the registry, by their digest; None: not asked."""
    newest_us: int | None
    """When the last of its events was received."""

    @property
    def foots(self) -> bool:
        """Whether nothing is left to explain."""
        return not self.difference and not self.missing and self.proven is not False


def totals(lines: Iterable[Line]) -> list[Line]:
    """One line a metric: from its first window's start to its last one's end."""
    by_metric: dict[str, list[Line]] = {}
    for line in lines:
        by_metric.setdefault(line.span.metric, []).append(line)
    return [_total(metric, of) for metric, of in by_metric.items()]


_ADDED: Final = ("events", "recorded", "corrected", "moved", *RIGHT, "unusable", "missing")


def _total(metric: str, lines: list[Line]) -> Line:
    proofs = {line.proven for line in lines}
    sums = {name: sum(getattr(line, name) for line in lines) for name in _ADDED}
    return Line(
        span=Span(
            metric,
            min(line.span.start_us for line in lines),
            max(line.span.end_us for line in lines),
        ),
        # Two windows that are wrong by opposite amounts do not make a month that is right.
        difference=sum(line.difference for line in lines),
        proven=False if False in proofs else None if None in proofs else True,
        newest_us=max((line.newest_us for line in lines if line.newest_us), default=None),
        **sums,
    )
