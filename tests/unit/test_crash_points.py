import pytest

from streams.crash_points import STEPS, crash_at, never


@pytest.mark.parametrize(("spec", "dies_at"), [("decided", 1), ("decided:1", 1), ("decided:3", 3)])
def test_a_hook_kills_at_the_named_step_the_named_time(spec: str, dies_at: int) -> None:
    killed: list[int] = []
    turns: list[int] = []
    reached = crash_at(spec, lambda: killed.append(turns[-1]))
    for turn in range(1, 6):
        turns.append(turn)
        for step in STEPS:
            reached(step)
    assert killed == [dies_at]


@pytest.mark.parametrize("spec", ["", "nowhere", "decided:0", "decided:x", "decided:-1", ":2"])
def test_a_step_that_does_not_exist_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="crash point"):
        crash_at(spec, lambda: None)


def test_production_reaches_every_step_unharmed() -> None:
    for step in STEPS:
        never(step)
