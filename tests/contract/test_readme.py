"""Every command that the README names exists."""

import re
import shlex

import pytest

from streams.cli.main import run
from tests.support.readme import blocks

COMMANDS = [
    line
    for heading in (
        "For upstream engineers",
        "For platform engineers",
        "For finance and analysts",
    )
    for block in blocks(heading)
    for line in block
    if line.startswith("tailrace")
]


def test_there_are_commands_to_look_for() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_the_readme_names_exists(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for word in shlex.split(command) if not word.startswith("-")]
    names = [word for word in words[1:] if re.fullmatch(r"[a-z]+", word)][:2]
    if run([*names, "--help"]) != 0:
        assert run([names[0], "--help"]) == 0, capsys.readouterr().err
