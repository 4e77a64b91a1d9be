"""What a witness keeps of a drill."""

import pytest

from tests.support import witness
from tests.support.oracle import Verdict
from tests.support.witness import Progress, witnessed


def seen(settled: int) -> Progress:
    return Progress(3, 10, 3, 10 - settled, settled, 0)


def look(*settled: int) -> None:
    for each in settled:
        witness.saw(seen(each), look, lambda: None)


def test_of_a_state_that_lasts_its_ends_are_kept_and_the_worst_is_its_last() -> None:
    with witnessed() as one:
        look(4, 0, 0, 0, 0, 10)
    assert [progress.settled for _, progress in one.progress] == [4, 0, 0, 10]
    assert one.worst == one.progress[2]
    assert one.worst[1].pending == 10


def test_the_last_word_on_the_same_books_counts() -> None:
    first, second = object(), object()
    with witnessed() as one:
        witness.judged(first, Verdict(stuck=5))
        witness.judged(second, Verdict(lost=1))
        witness.judged(first, Verdict())
    assert one.verdict == Verdict(lost=1)


def test_nobody_listens_outside_of_a_drill() -> None:
    with witnessed() as one:
        pass
    look(1)
    witness.did("something")
    witness.seeded("acme", 1)
    witness.judged(object(), Verdict())
    assert (one.actions, one.progress, one.seeds, one.verdict) == ([], [], {}, None)


def test_a_failed_state_is_kept_with_its_number_and_told_where_it_was_seen() -> None:
    with witnessed() as one:
        witness.did("Stripe is away")
        witness.seen("windows pending", 24)
        witness.did("Stripe is well again")
    assert [str(failure) for failure in one.failures] == ["24 windows pending"]
    told = [moment.what for moment in one.actions]
    assert told[1] == "**seen before anything is healed: 24 windows pending**"


def test_where_nothing_is_broken_there_is_no_recovery_to_show() -> None:
    with pytest.raises(AssertionError, match="no failed state to recover from: 0 windows pending"):
        witness.seen("windows pending", 0)
