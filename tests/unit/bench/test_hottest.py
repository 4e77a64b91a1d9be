"""Where the time goes is said by name, the most expensive first, and waiting is no work."""

import cProfile
import select
from pathlib import Path

from tests.bench.hottest import hottest, shares


def burn() -> int:
    return sum(number * number for number in range(300_000))


def rest() -> None:
    with select.epoll() as poll:
        poll.poll(0.5)


def test_the_function_that_works_is_named_and_not_the_one_that_waits(tmp_path: Path) -> None:
    record = tmp_path / "worker.pstats"
    with cProfile.Profile() as profile:
        burn()
        rest()
    profile.dump_stats(record)
    said = hottest(record, named=1)
    assert said.startswith("test_hottest.<genexpr> ")
    assert "epoll" not in hottest(record, named=50)


def test_threads_are_told_by_their_share() -> None:
    assert shares({"rdk:broker": 1.0, "python": 3.0}) == "python 75%, rdk:broker 25%"
    assert shares({}) == ""
