"""The lives of a topic: wherever a key ever was, its partition of now remembers."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streams.core import growth
from streams.core.growth import (
    Inherited,
    Life,
    Log,
    grown_log_id,
    growth_problem,
    inherited,
    lives_of,
)
from streams.engine.partitioner import home_partition

ROOT, OTHER = str(UUID(int=1)), str(UUID(int=2))
ONCE = Life((Log("a", 0, 4), Log("b", 4, 8, (10, 11, 12, 13))))
TWICE = Life((*ONCE.logs, Log("c", 8, 24, (20, 21, 22, 23, 5, 6, 7, 8))))


# -- a model that sends records and knows where they went ------------------------------------------


class Sent(NamedTuple):
    """One record of a key, where it was put."""

    key: bytes
    log_id: str
    partition: int
    offset: int
    life: int


class Story(NamedTuple):
    """Lives of one topic, and every record that was ever in them."""

    lives: tuple[Life, ...]
    sent: list[Sent]


class Producer:
    """Sends keys by `murmur2 mod count` as the count is at the time."""

    def __init__(self, draw: st.DrawFn, life: int, count: int, sent: list[Sent]) -> None:
        self.draw, self.life, self.sent = draw, life, sent
        self.logs = [Log(f"{life}", 0, count)]
        self.ends: dict[int, int] = {}

    def send(self, keys: list[bytes]) -> None:
        now = Life(tuple(self.logs))
        for key in self.draw(st.lists(st.sampled_from(keys), max_size=12)):
            home = home_partition(key, now.partitions)
            offset = self.ends.get(home, 0)
            self.ends[home] = offset + 1
            self.sent.append(Sent(key, now.log_of(home).log_id, home, offset, self.life))

    def grow(self, count: int, keys: list[bytes]) -> None:
        """The ledger is told of it now or after a while, which moves boundaries behind the ends."""
        present, ends = self.logs[-1].partitions, dict(self.ends)
        grown = Log(f"{self.life}/{count}", present, count)
        self.logs.append(grown)
        self.send(keys)
        boundaries = tuple(
            self.draw(st.integers(ends.get(partition, 0), self.ends.get(partition, 0)))
            for partition in range(present)
        )
        self.logs[-1] = replace(grown, boundaries=boundaries)
        self.send(keys)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Keys and where they went, through several lives that may grow several times."""
    keys = draw(st.lists(st.binary(max_size=6), min_size=1, max_size=12, unique=True))
    lives: list[Life] = []
    sent: list[Sent] = []
    count = draw(st.integers(1, 3))
    for number in range(draw(st.integers(1, 3))):
        producer = Producer(draw, number, count, sent)
        producer.send(keys)
        for _ in range(draw(st.integers(0, 3))):
            count *= draw(st.integers(2, 3))
            producer.grow(count, keys)
        lives.append(Life(tuple(producer.logs)))
        count *= draw(st.sampled_from((1, 1, 2)))
    return Story(tuple(lives), sent)


def remembered(story: Story) -> None:
    """Of each key: everywhere it ever was is its own partition or remembered there, up to there."""
    present = story.lives[-1]
    for one in story.sent:
        home = home_partition(one.key, present.partitions)
        told = {each.log_id: each for each in inherited(story.lives, home)}
        if one.life == len(story.lives) - 1 and one.partition == home:
            assert present.log_of(home).log_id == one.log_id
            assert one.log_id not in told
            continue
        each = told[one.log_id]
        assert each.partition == one.partition
        assert each.last is None or one.offset <= each.last
        assert each.lives == (one.life == len(story.lives) - 1)


@given(stories())
@settings(deadline=None)
def test_wherever_a_key_was_is_remembered_by_the_partition_it_has_now(story: Story) -> None:
    remembered(story)


@given(stories())
@settings(deadline=None)
def test_of_each_log_exactly_one_partition_is_remembered(story: Story) -> None:
    present = story.lives[-1]
    for partition in range(present.partitions):
        found = inherited(story.lives, partition)
        assert len({each.log_id for each in found}) == len(found)
        for each in found:
            [life] = [one for one in story.lives if each.log_id in {log.log_id for log in one.logs}]
            assert life.log_of(each.partition).log_id == each.log_id
            assert each.lives == (life is present)
            # Of what lives on, the end is always said: it grows for ever.
            assert each.last is not None or life is not present


@given(stories())
@settings(deadline=None)
def test_every_record_is_at_home_by_the_count_that_holds_at_its_offset(story: Story) -> None:
    """What workers refuse as astray is nothing that a producer wrote who keeps to the rules."""
    for one in story.sent:
        counts = story.lives[one.life].counts(one.partition)
        assert list(counts) == sorted(counts)
        count = [count for since, count in counts if since <= one.offset][-1]
        assert home_partition(one.key, count) == one.partition


def shifted(name: str, change: Callable[[int], int]) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(patch: pytest.MonkeyPatch) -> None:
        left_at = growth._left_at

        def left(*args: object) -> int | None:
            last = left_at(*args)  # type: ignore[arg-type]  # as they come
            return None if last is None else change(last)

        patch.setattr(growth, "_left_at", left)

    plant.__name__ = name
    return plant


def only_the_latest_log(patch: pytest.MonkeyPatch) -> None:
    told = growth.inherited
    patch.setattr(f"{__name__}.inherited", lambda *args: told(*args)[:1])


def only_the_present_life(patch: pytest.MonkeyPatch) -> None:
    told = growth.inherited
    patch.setattr(
        f"{__name__}.inherited", lambda *args: [each for each in told(*args) if each.lives]
    )


def of_another_partition(patch: pytest.MonkeyPatch) -> None:
    told = growth.inherited
    patch.setattr(f"{__name__}.inherited", lambda lives, partition: told(lives, partition // 2))


@pytest.mark.parametrize(
    "plant",
    [
        shifted("one_record_too_few", lambda last: last - 1),
        only_the_latest_log,
        only_the_present_life,
        of_another_partition,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_rule_taken_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    tried = settings(
        max_examples=500, deadline=None, derandomize=True, database=None, report_multiple_bugs=False
    )(given(stories())(remembered))
    with pytest.raises((AssertionError, KeyError)):
        tried()


# -- by hand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("life", "partition", "expected"),
    [
        (ONCE, 1, []),
        (ONCE, 5, [Inherited("a", 1, 10, True)]),
        (TWICE, 1, []),
        (TWICE, 5, [Inherited("a", 1, 10, True)]),
        (TWICE, 9, [Inherited("a", 1, 20, True)]),
        (TWICE, 13, [Inherited("b", 5, 5, True), Inherited("a", 1, 10, True)]),
        (TWICE, 17, [Inherited("a", 1, 20, True)]),
        (TWICE, 23, [Inherited("b", 7, 7, True), Inherited("a", 3, 12, True)]),
    ],
)
def test_what_a_partition_remembers_of_its_own_life(
    life: Life, partition: int, expected: list[Inherited]
) -> None:
    assert inherited((life,), partition) == expected


def test_of_a_life_that_ended_all_is_remembered_up_to_where_keys_left() -> None:
    now = Life((Log("z", 0, 8),))
    assert inherited((ONCE, now), 1) == [Inherited("a", 1, None, False)]
    assert inherited((ONCE, now), 5) == [
        Inherited("b", 5, None, False),
        Inherited("a", 1, 10, False),
    ]
    larger = Life((Log("z", 0, 8), Log("y", 8, 16, (3,) * 8)))
    assert inherited((ONCE, larger), 13) == [
        Inherited("z", 5, 2, True),
        Inherited("b", 5, None, False),
        Inherited("a", 1, 10, False),
    ]


def test_a_topic_that_never_grew_remembers_nothing() -> None:
    assert inherited((Life((Log("a", 0, 4),)),), 3) == []
    assert inherited((), 3) == []


def test_counts_say_from_which_offset_on_which_count_holds() -> None:
    assert TWICE.counts(1) == ((0, 4), (11, 8), (21, 24))
    assert TWICE.counts(5) == ((0, 8), (6, 24))
    assert TWICE.counts(23) == ((0, 24),)
    assert (ONCE.partitions, TWICE.partitions) == (8, 24)


def test_each_partition_is_of_the_log_that_brought_it() -> None:
    logs = [TWICE.log_of(partition).log_id for partition in range(24)]
    assert logs == ["a"] * 4 + ["b"] * 4 + ["c"] * 16
    with pytest.raises(LookupError, match="partition 24 of 24"):
        TWICE.log_of(24)


def test_the_ledgers_rows_are_lives_in_their_order() -> None:
    rows = [
        ("a", "a", 0, 4, []),
        ("a", "b", 4, 8, [10, 11, 12, 13]),
        ("z", "z", 0, None, ()),
    ]
    assert lives_of(rows, 8) == (ONCE, Life((Log("z", 0, 8),)))
    assert lives_of([], 8) == ()


# -- its name, and what is refused -----------------------------------------------------------------


def test_the_log_of_a_growth_has_the_same_id_whoever_asks() -> None:
    assert grown_log_id(ROOT, 4, 8) == grown_log_id(ROOT, 4, 8)
    assert str(UUID(grown_log_id(ROOT, 4, 8))) == grown_log_id(ROOT, 4, 8)


def test_no_two_growths_share_an_id() -> None:
    growths = [(root, n, n * by) for root in (ROOT, OTHER) for n in range(1, 40) for by in (2, 3)]
    assert len({grown_log_id(*each) for each in growths} | {ROOT, OTHER}) == len(growths) + 2


@pytest.mark.parametrize(("present", "partitions"), [(4, 4), (4, 8), (4, 12), (1, 7), (12, 36)])
def test_a_whole_multiple_is_no_problem(present: int, partitions: int) -> None:
    assert growth_problem(present, partitions) is None


@pytest.mark.parametrize(
    ("present", "partitions", "said"),
    [
        (4, 3, "must be more than the 4 there are: partitions cannot be taken away"),
        (4, 0, "must be more than the 4 there are: partitions cannot be taken away"),
        (
            4,
            6,
            "must be a whole multiple of the 4 there are, so that each new partition takes over "
            "keys of one alone: 8 or 12, for example",
        ),
    ],
)
def test_another_count_is_a_problem_with_its_reason(
    present: int, partitions: int, said: str
) -> None:
    assert growth_problem(present, partitions) == said
