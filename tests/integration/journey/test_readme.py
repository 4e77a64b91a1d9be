"""The README's own commands, typed as they stand."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.live import ROOT
from tests.support.readme import blocks

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
BIN = Path(sys.executable).parent


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
