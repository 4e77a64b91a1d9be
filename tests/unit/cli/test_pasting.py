"""Commands that are offered for pasting: a name that somebody else chose is a word, no command."""

from __future__ import annotations

import shlex

import pytest

from streams.cli.parked_outcomes import _target, _too_old_outcomes
from streams.cli.pauses import Scope

NAMES = ("acme", "it's $(touch x)", "a; rm -rf ~", "`id`", '"')


@pytest.mark.parametrize("name", NAMES)
def test_a_pause_is_typed_of_exactly_its_subject(name: str) -> None:
    assert shlex.split(Scope("tenant", name).option) == ["--tenant", name]


@pytest.mark.parametrize("name", NAMES)
def test_a_correction_is_typed_of_exactly_its_tenant_and_meter(name: str) -> None:
    parked = {
        "parked_id": 7, "tenant_id": name, "metric": name, "units": "3", "window_start_us": 0,
    }  # fmt: skip
    for command, _ in _too_old_outcomes(parked):
        words = shlex.split(command)
        assert words[2:6] == ["--tenant", name, "--metric", name]


def test_what_is_not_known_is_left_to_whoever_types() -> None:
    assert "--tenant … --metric … " in _target(
        {"tenant_id": None, "metric": None, "window_start_us": 0}
    )
