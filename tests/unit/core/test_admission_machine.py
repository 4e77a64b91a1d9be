"""No order of usage, copies, time, chunks, deaths and replays counts an identity twice, or not."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from streams.core.admission import _Admission
from streams.engine import generations
from tests.support.machines import assert_caught
from tests.unit.core import admission_machine
from tests.unit.core.admission_machine import AdmissionMachine, Remembering

STEPS = 40


def test_no_sequence_counts_an_identity_twice_or_not() -> None:
    chosen = settings(max_examples=150, stateful_step_count=STEPS, deadline=None)
    run_state_machine_as_test(AdmissionMachine, settings=chosen)


def _forgets_a_generation_too_soon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(generations, "KEPT", 3)


def _has_no_floor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(generations, "floor_at", lambda *_: -1)


def _has_a_floor_of_all_it_remembers(patch: pytest.MonkeyPatch) -> None:
    def floor_at(floor_us: int, held: Any, _current: int) -> int:
        return int(max([floor_us, *(g.received_max_us for g in held)]))

    patch.setattr(generations, "floor_at", floor_at)


def _marks_only_what_counts(patch: pytest.MonkeyPatch) -> None:
    mark = _Admission._mark

    def only_accepted(self: Any, *given: Any, **named: Any) -> None:
        before = len(self.decided.seen)
        mark(self, *given, **named)
        if "accepted" not in {*given, *named.values()}:
            del self.decided.seen[before:]

    patch.setattr(_Admission, "_mark", only_accepted)


def _cuts_through_generations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Remembering, "chunk", lambda self, log, size: log[self.applied + 1 :][:size])


def _changes_what_it_was_given(patch: pytest.MonkeyPatch) -> None:
    remember = _Admission.remember

    def early(self: Any, contents: Any) -> None:
        remember(self, contents)
        self.place.readings.clear()

    patch.setattr(_Admission, "remember", early)


@pytest.mark.parametrize(
    "plant",
    [
        _forgets_a_generation_too_soon,
        _has_no_floor,
        _has_a_floor_of_all_it_remembers,
        _marks_only_what_counts,
        _cuts_through_generations,
        _changes_what_it_was_given,
    ],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_planted(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert_caught(AdmissionMachine, examples=400, steps=STEPS)


def test_the_machine_knows_the_horizon_that_is_promised() -> None:
    assert admission_machine.WIDTH_MS * 3 * 1_000 == admission_machine.HORIZON_US
