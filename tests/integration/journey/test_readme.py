"""The README's own commands, typed as they stand."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def blocks(heading: str) -> Iterator[list[str]]:
    """The code blocks of a section, as lines without their comments."""
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    # Every fence is read, or the end of one block would be taken for the start of the next.
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    for block in (text for language, text in fences if not language):
        lines = [line.split(" #")[0].strip() for line in block.splitlines()]
        yield [line for line in lines if line]


def run(command: str, directory: Path, deadline_s: float = 120) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "TAILRACE_DIR": str(directory),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    return subprocess.run(
        shlex.split(command),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline_s,
    )


def test_the_first_own_row_is_billed_by_the_commands_of_the_readme(tmp_path: Path) -> None:
    (block,) = blocks("Your own first row, in five minutes")
    commands = [line for line in block if line.startswith("tailrace")]
    assert commands[0] == "tailrace sandbox up"
    assert commands[-1] == "tailrace sandbox down"
    said = []
    try:
        for command in commands[:-1]:
            done = run(command, tmp_path / "own")
            said.append(done.stdout)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    finally:
        down = run(commands[-1], tmp_path / "own")
    assert down.returncode == 0, down.stderr
    assert any("my-first-row" in text and "outbox row" in text for text in said)
    assert said[-1].rstrip().endswith("lost 0 · double 0")


@pytest.mark.parametrize(
    "command",
    [
        line
        for heading in ("For platform engineers", "For finance and analysts")
        for block in blocks(heading)
        for line in block
        if line.startswith("tailrace")
    ],
)
def test_every_command_that_the_readme_names_exists(command: str, tmp_path: Path) -> None:
    words = [word for word in shlex.split(command) if not word.startswith("-")]
    names = [word for word in words[1:] if re.fullmatch(r"[a-z]+", word)][:2]
    done = run(shlex.join(["tailrace", *names, "--help"]), tmp_path, 30)
    if done.returncode:
        done = run(shlex.join(["tailrace", names[0], "--help"]), tmp_path, 30)
    assert done.returncode == 0, done.stderr
