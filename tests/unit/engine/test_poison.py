"""Isolation of records that kill, with workers that die and partitions that idle."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.engine.group_offsets import Carried, carried
from streams.engine.poison import Alone, Held, Isolation, Mark, Whole


class Partition:
    """A partition moving from worker to worker; only marks and the applied offset survive."""

    def __init__(self, end: int, chunk: int = 100) -> None:
        self.applied = -1
        self.end = end
        self.chunk = chunk
        self.metadata = ""
        self.suspects: list[int] = []
        self.deaths = 0
        self.single = 0
        self.held = False

    def life(self, kills: Callable[[int, bool], bool], chunks: int = 10_000) -> bool:
        """One worker until it dies (True), is done, or has settled so many chunks."""
        isolation = Isolation(carried(self.metadata).mark)
        for _ in range(chunks):
            if self.applied >= self.end or self.held:
                return False
            first, last = self.applied + 1, min(self.applied + self.chunk, self.end)
            plan = isolation.plan(self.applied, first, last)
            if isinstance(plan, Held):
                self.held = True
                return False
            self.mark(isolation, plan.mark)
            if self.dies(plan, first, last, kills):
                self.deaths += 1
                return True
            self.metadata = Carried(isolation.after(self.applied)).encode()
        return False

    def dies(
        self, plan: Whole | Alone, first: int, last: int, kills: Callable[[int, bool], bool]
    ) -> bool:
        suspect = isinstance(plan, Alone) and plan.suspect
        if isinstance(plan, Alone):
            self.single += 1
            last = first
        if any(kills(offset, suspect) for offset in range(first, last + 1)):
            return True
        if suspect:
            self.suspects.append(first)
        self.applied = last
        return False

    def resume(self) -> None:
        """Somebody has decided that it goes on."""
        self.held = False
        self.metadata = Carried(Isolation(carried(self.metadata).mark).resumed().mark).encode()

    def mark(self, isolation: Isolation, mark: Mark | None) -> None:
        if mark is not None:
            self.metadata = Carried(mark).encode()
            isolation.marked(mark)

    def run(self, kills: Callable[[int, bool], bool]) -> None:
        for _ in range(100):
            if not self.life(kills):
                return
        pytest.fail("the partition never came to an end")


@pytest.mark.parametrize("killer", [0, 57, 99, 100, 263, 299])
def test_a_record_that_kills_is_parked_after_few_deaths_and_nothing_else_is(killer: int) -> None:
    partition = Partition(end=299)
    partition.run(lambda offset, suspect: offset == killer and not suspect)
    assert partition.suspects == [killer]
    assert partition.applied == 299
    assert partition.deaths <= 5
    assert partition.single <= 102


def test_two_killers_in_one_chunk_are_both_parked() -> None:
    partition = Partition(end=299)
    partition.run(lambda offset, suspect: offset in (110, 150) and not suspect)
    assert partition.suspects == [110, 150]
    assert partition.applied == 299


def test_a_record_that_kills_even_when_parked_holds_its_partition() -> None:
    partition = Partition(end=299)
    partition.run(lambda offset, _: offset == 42)
    assert partition.held
    assert partition.applied == 41
    assert partition.deaths <= 8


def test_a_partition_that_goes_on_by_decision_tries_its_record_undecoded_and_twice() -> None:
    """Whole and decoded it would kill as often as at first."""
    partition = Partition(end=299)
    partition.run(lambda offset, _: offset == 42)
    before = partition.deaths
    partition.resume()
    partition.run(lambda offset, _: offset == 42)
    assert partition.held
    assert partition.deaths == before + 2


def test_a_record_that_was_decided_on_is_a_dead_letter_where_it_kills_no_more_undecoded() -> None:
    partition = Partition(end=299)
    partition.run(lambda offset, _: offset == 42)
    before = partition.deaths
    partition.resume()
    partition.run(lambda offset, suspect: offset == 42 and not suspect)
    assert partition.suspects == [42]
    assert partition.deaths == before
    assert partition.applied == 299


def test_a_decision_that_stands_for_ever_lets_a_record_kill_once_more_and_never_again() -> None:
    """Whoever holds it next is told of the decision as well, and goes on at once."""
    partition = Partition(end=299)
    partition.run(lambda offset, _: offset == 42)
    before = partition.deaths
    for _ in range(20):
        partition.resume()
        partition.run(lambda offset, _: offset == 42)
    assert partition.held
    assert partition.deaths == before + 2
    plan = Isolation(carried(partition.metadata).mark).plan(41, 42, 141)
    assert isinstance(plan, Held)
    assert plan.decided
    assert "even after it was decided to skip it" in plan.reason


def test_the_next_record_that_kills_has_a_decision_of_its_own() -> None:
    partition = Partition(end=299)
    partition.run(lambda offset, _: offset == 42)
    partition.resume()
    partition.run(lambda offset, suspect: offset == 43 or (offset == 42 and not suspect))
    assert (partition.held, partition.applied) == (True, 42)
    before = partition.deaths
    partition.resume()
    partition.run(lambda offset, suspect: offset == 43 and not suspect)
    assert (partition.deaths, partition.applied) == (before, 299)


def test_what_was_held_for_another_reason_goes_on_as_if_nothing_had_been() -> None:
    assert Isolation(None).resumed().mark is None
    assert Isolation(Mark(9, 2, 99)).resumed().mark is None
    assert Isolation(Mark(9, 3, 99, trying=10, tries=2)).resumed().mark is None


def test_an_idle_partition_is_never_suspect_however_often_it_moves() -> None:
    partition = Partition(end=-1)
    for _ in range(50):
        assert not partition.life(lambda *_: True)
    assert partition.metadata == ""
    partition.end = 299
    partition.run(lambda *_: False)
    assert (partition.suspects, partition.single) == ([], 0)


@given(st.lists(st.integers(1, 4), max_size=30))
def test_workers_that_die_elsewhere_after_progress_make_nothing_suspect(lives: list[int]) -> None:
    """Each worker settles something, then dies with a chunk in hand that is not to blame."""
    partition = Partition(end=100_000)
    for chunks in lives:
        partition.life(lambda *_: False, chunks)
        partition.life(lambda *_: True, 1)
    assert partition.suspects == []


def test_a_chunk_that_was_not_to_blame_is_not_counted() -> None:
    mark: Mark | None = None
    for _ in range(20):
        isolation = Isolation(mark)
        plan = isolation.plan(-1, 0, 99)
        assert isinstance(plan, Whole)
        assert plan.mark is not None
        before = isolation.marked(plan.mark)
        isolation.undone(before)
        mark = isolation.mark
    assert mark is None


def test_a_healthy_assignment_is_marked_once() -> None:
    isolation = Isolation(None)
    first = isolation.plan(-1, 0, 99)
    assert first == Whole(Mark(-1, 1, 99))
    isolation.marked(Mark(-1, 1, 99))
    assert isolation.plan(99, 100, 199) == Whole(None)


@pytest.mark.parametrize("text", [None, "", "x", "{}", '{"applied": "1"}', "[]", '{"applied":1}'])
def test_other_metadata_counts_as_no_mark(text: str | None) -> None:
    assert carried(text) == Carried()


def test_a_mark_survives_its_text() -> None:
    mark = Mark(7, 3, 99, 8, 2)
    assert carried(Carried(mark, "note").encode()) == Carried(mark, "note")


def test_a_commit_without_progress_leaves_only_the_mark_of_its_place() -> None:
    isolation = Isolation(Mark(7, 1, 99))
    assert isolation.at(7) == Mark(7, 1, 99)
    assert isolation.at(8) is None
    assert Isolation(None).at(7) is None
