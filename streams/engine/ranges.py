"""Which source offsets the packed records cover: a union of ranges, in any order."""

import bisect


class Coverage:
    """A set of offsets as disjoint inclusive ranges.

    Records of two workers interleave and overlap in the packed log, so what counts is the union;
    asking each record to continue the one before would refuse good logs.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, first: int, last: int) -> bool:
        """Add the offsets first..last; whether a range begins with exactly this `first` now."""
        # Ranges that touch or overlap first..last, its direct neighbours included.
        low = bisect.bisect_left(self._ends, first - 1)
        high = bisect.bisect_right(self._starts, last + 1)
        begins = low == high or first < self._starts[low]
        if low < high:
            first = min(first, self._starts[low])
            last = max(last, self._ends[high - 1])
        self._starts[low:high] = [first]
        self._ends[low:high] = [last]
        return begins

    def newest(self) -> tuple[int, int] | None:
        """The range that holds the greatest offset, None when there is none."""
        return (self._starts[-1], self._ends[-1]) if self._starts else None

    def ranges(self) -> list[tuple[int, int]]:
        """All ranges, in order."""
        return list(zip(self._starts, self._ends, strict=True))
