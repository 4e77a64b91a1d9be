"""How a partition's topic came to its partitions: what its records are at home by."""

import pytest

from streams.engine.layout import NO_LAYOUT, Layout, ungrown
from streams.engine.partitioner import home_partition

KEYS = [f"tenant-{n}".encode() for n in range(50)]
STAYED = Layout("life", "life", 12, ((0, 2), (5, 4), (9, 12)), frozenset({1}))
CAME = Layout("life", "grown", 12, ((0, 4), (3, 12)), frozenset({1, 3}))


@pytest.mark.parametrize(
    ("layout", "offset", "count"),
    [
        (STAYED, 0, 2),
        (STAYED, 4, 2),
        (STAYED, 5, 4),
        (STAYED, 8, 4),
        (STAYED, 9, 12),
        (CAME, 2, 4),
        (CAME, 3, 12),
        (ungrown("life", 6, 0), 0, 6),
    ],
)
def test_a_key_is_at_home_by_the_count_that_holds_at_its_offset(
    layout: Layout, offset: int, count: int
) -> None:
    for key in KEYS:
        assert layout.home_before(key, offset) == home_partition(key, count)


def test_two_growths_at_once_leave_the_later_count() -> None:
    layout = Layout("life", "life", 8, ((0, 2), (0, 4), (0, 8)))
    assert [layout.home_before(key, 0) for key in KEYS] == [home_partition(k, 8) for k in KEYS]


@pytest.mark.parametrize(
    ("layout", "begun_with", "settled_at"),
    [(STAYED, 2, 9), (CAME, None, 3), (ungrown("life", 6, 0), 6, 0)],
)
def test_only_a_partition_from_the_start_says_what_the_topic_began_with(
    layout: Layout, begun_with: int | None, settled_at: int
) -> None:
    assert (layout.begun_with, layout.settled_at) == (begun_with, settled_at)


def test_a_topic_that_never_grew_is_one_log_of_one_count() -> None:
    assert ungrown("life", 6, 5) == Layout("life", "life", 6, ((0, 6),), frozenset())
    assert NO_LAYOUT.partitions == 0
