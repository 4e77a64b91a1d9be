from hypothesis import given
from hypothesis import strategies as st

from streams.engine.ranges import Coverage

Ranges = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda r: (r[0], r[0] + r[1])),
    max_size=20,
)


def runs(offsets: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


@given(Ranges)
def test_coverage_is_the_union_in_whatever_order(ranges: list[tuple[int, int]]) -> None:
    coverage = Coverage()
    offsets: set[int] = set()
    for first, last in ranges:
        offsets |= set(range(first, last + 1))
        begins = coverage.add(first, last)
        assert coverage.ranges() == runs(offsets)
        if begins:
            assert first in {start for start, _ in coverage.ranges()}
    assert coverage.newest() == (runs(offsets)[-1] if offsets else None)


@given(Ranges)
def test_each_range_begins_where_some_record_said_it_does(ranges: list[tuple[int, int]]) -> None:
    coverage = Coverage()
    begun = {first for first, last in ranges if coverage.add(first, last)}
    assert {start for start, _ in coverage.ranges()} <= begun
