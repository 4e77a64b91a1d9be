"""State machines against planted bugs: a sequence that shows one must be found."""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def assert_caught(machine: type[RuleBasedStateMachine], *, examples: int, steps: int) -> None:
    """The machine fails with what is planted, the same way in every run."""
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True,
        database=None, phases=[Phase.generate], report_multiple_bugs=False,
    )  # fmt: skip
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=chosen)
