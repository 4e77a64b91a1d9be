"""Drills share a stack while it is sound, and nothing that one leaves behind reaches the next."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import requests

from tests.drills import shared
from tests.drills.shared import SharedStack
from tests.support.stack import StackError


class FakeStack:
    """Stands for a running stack."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fault = ""
        self.calls: list[str] = []
        self.judges: dict[int, Callable[[], object]] = {}

    @property
    def stand_in(self) -> "FakeStack":
        return self

    def clear_faults(self) -> None:
        if self.fault == "Stripe is down":
            raise requests.ConnectionError
        self.calls.append("faults cleared")

    def stop_workers(self) -> None:
        self.calls.append("workers stopped")

    def start_worker(self, name: str) -> None:
        self.calls.append(f"worker {name}")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeStack]:
    """The stacks that were started, in their order."""
    found: list[FakeStack] = []

    @contextmanager
    def live_stack(directory: Path) -> Iterator[FakeStack]:
        found.append(FakeStack(directory))
        yield found[-1]
        found[-1].calls.append("down")

    monkeypatch.setattr(shared, "live_stack", live_stack)
    monkeypatch.setattr(shared, "fault_of", lambda stack: stack.fault)
    monkeypatch.setattr(
        shared, "assert_nothing_lost", lambda stack: stack.calls.append("all that was left is read")
    )
    return found


def test_a_sound_stack_is_given_to_the_next_drill_without_what_the_last_one_left(
    made: list[FakeStack], tmp_path: Path
) -> None:
    with SharedStack(tmp_path) as stacks:
        first = stacks.sound()
        stacks.clear(broken=False)
        assert stacks.sound() is first
        assert made[0].calls == ["faults cleared", "workers stopped"]
    assert made[0].calls[-1] == "down"
    assert len(made) == 1


def test_a_wrecked_stack_is_taken_down_and_the_next_drill_gets_another(
    made: list[FakeStack], tmp_path: Path
) -> None:
    with SharedStack(tmp_path) as stacks:
        stacks.sound()
        stacks.clear(broken=False)
        made[0].fault = "not ready: kafka"
        stacks.sound()
        assert made[0].calls[-1] == "down"
        assert made[1].directory != made[0].directory


def test_a_drill_that_leaves_stripe_down_passes_and_its_stack_is_not_used_again(
    made: list[FakeStack], tmp_path: Path
) -> None:
    with SharedStack(tmp_path) as stacks:
        stacks.sound()
        made[0].fault = "Stripe is down"
        stacks.clear(broken=False)
        assert made[0].calls == ["down"]


def test_the_stack_of_a_drill_that_failed_is_not_used_again(
    made: list[FakeStack], tmp_path: Path
) -> None:
    with SharedStack(tmp_path) as stacks:
        stacks.sound()
        stacks.clear(broken=True)
        assert made[0].calls == ["down"]
        stacks.sound()
        assert len(made) == 2


def test_a_stack_that_cannot_even_be_stopped_keeps_nobody_from_the_next(
    made: list[FakeStack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def stuck(directory: Path) -> Iterator[FakeStack]:
        yield FakeStack(directory)
        raise StackError("down: exit code 1")

    with SharedStack(tmp_path) as stacks:
        with monkeypatch.context() as first:
            first.setattr(shared, "live_stack", stuck)
            stacks.sound()
            stacks.clear(broken=True)
        stacks.sound()
        assert len(made) == 1


def test_all_books_are_judged_once_more_when_nothing_is_on_its_way(
    made: list[FakeStack], tmp_path: Path
) -> None:
    with SharedStack(tmp_path) as stacks:
        stacks.judge_again()
        assert made == []
        stacks.sound()
        stacks.judge_again()
        assert made[0].calls == []

        made[0].judges = {number: partial(made[0].calls.append, f"{number}") for number in (1, 2)}
        stacks.judge_again()
        assert made[0].calls == ["worker last", "all that was left is read", "1", "2"]

        made[0].fault = "not ready: kafka"
        stacks.judge_again()
        assert len(made[0].calls) == 4
