"""`sandbox` and `demo` are the checkout's own command lines, or say where those come from."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streams.cli import sandbox_commands
from streams.cli.errors import ConfigurationError
from streams.cli.main import run

Ran = list[tuple[str, list[str]]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Which command line was run, with which arguments; it ends with 7."""
    seen: Ran = []

    def load(module: str) -> SimpleNamespace:
        def its_run(arguments: list[str]) -> int:
            seen.append((module, arguments))
            return 7

        return SimpleNamespace(run=its_run)

    original = sandbox_commands.hand_on
    monkeypatch.setattr(
        sandbox_commands, "hand_on", lambda module, arguments: original(module, arguments, load)
    )
    return seen


@pytest.mark.parametrize(
    ("typed", "module", "passed"),
    [
        (["sandbox", "up", "--workers", "3"], "sandbox.commands", ["up", "--workers", "3"]),
        (["sandbox", "--help"], "sandbox.commands", ["--help"]),
        (["sandbox"], "sandbox.commands", []),
        (["demo", "--check"], "sandbox.demo.story", ["--check"]),
        (["sandbox", "up", "--debug"], "sandbox.commands", ["--debug", "up"]),
    ],
)
def test_arguments_are_handed_on_as_they_are_and_the_exit_code_comes_back(
    ran: Ran, typed: list[str], module: str, passed: list[str]
) -> None:
    assert run(typed) == 7
    assert ran == [(module, passed)]


def test_without_a_checkout_it_says_where_the_sandbox_comes_from() -> None:
    with pytest.raises(ConfigurationError, match="comes with a checkout") as caught:
        sandbox_commands.hand_on("nowhere.demo", [])
    assert "clone the repository" in caught.value.fix
