"""`sandbox` and `demo` become the checkout's own programs, or say where those come from."""

from __future__ import annotations

import sys

import pytest

from streams.cli import sandbox_commands
from streams.cli.errors import ConfigurationError
from streams.cli.main import run

Became = list[tuple[str, list[str]]]


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> Became:
    """What the command would have become."""
    seen: Became = []

    def hand_on(module: str, arguments: list[str]) -> None:
        original(module, arguments, lambda program, argv: seen.append((program, argv)))

    original = sandbox_commands.hand_on
    monkeypatch.setattr(sandbox_commands, "hand_on", hand_on)
    return seen


@pytest.mark.parametrize(
    ("typed", "module", "passed"),
    [
        (["sandbox", "up", "--workers", "3"], "sandbox", ["up", "--workers", "3"]),
        (["sandbox", "--help"], "sandbox", ["--help"]),
        (["sandbox"], "sandbox", []),
        (["demo", "--check"], "sandbox.demo", ["--check"]),
    ],
)
def test_arguments_are_handed_on_as_they_are(
    became: Became, typed: list[str], module: str, passed: list[str]
) -> None:
    assert run(typed) == 0
    assert became == [(sys.executable, [sys.executable, "-m", module, *passed])]


def test_without_a_checkout_it_says_where_the_sandbox_comes_from() -> None:
    with pytest.raises(ConfigurationError, match="comes with a checkout") as caught:
        sandbox_commands.hand_on("nowhere.demo", [])
    assert "clone the repository" in caught.value.fix
