import signal

import pytest

from streams.crash_points import PUBLISH_STEPS, STEPS, crash_at, never

ALL = STEPS + PUBLISH_STEPS


@pytest.mark.parametrize(
    ("spec", "struck"),
    [
        ("decided", (1, signal.SIGKILL)),
        ("decided:1", (1, signal.SIGKILL)),
        ("decided:3", (3, signal.SIGKILL)),
        ("answer_unread:2:SIGSTOP", (2, signal.SIGSTOP)),
        ("lane_settled:4:SIGTERM", (4, signal.SIGTERM)),
    ],
)
def test_a_hook_strikes_at_the_named_step_the_named_time(
    spec: str, struck: tuple[int, signal.Signals]
) -> None:
    strikes: list[tuple[int, signal.Signals]] = []
    turns: list[int] = []
    reached = crash_at(spec, lambda number: strikes.append((turns[-1], number)))
    for turn in range(1, 6):
        turns.append(turn)
        for step in ALL:
            reached(step)
    assert strikes == [struck]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("", "one of fetched"),
        ("nowhere", "one of fetched"),
        (":2", "one of fetched"),
        ("decided:0", "1 or more"),
        ("decided:x", "1 or more"),
        ("decided:-1", "1 or more"),
        ("decided::SIGSTOP", "1 or more"),
        ("decided:1:SIGHUP", "one of SIGKILL, SIGSTOP, SIGTERM"),
        ("decided:1:stop", "one of SIGKILL, SIGSTOP, SIGTERM"),
    ],
)
def test_what_is_no_crash_point_is_refused(spec: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"crash point .*{problem}"):
        crash_at(spec, lambda _signal: None)


def test_production_reaches_every_step_unharmed() -> None:
    for step in ALL:
        never(step)


def test_a_step_has_one_name() -> None:
    assert len(set(ALL)) == len(ALL)
