"""The commands as a person meets them, without a stack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def sandbox(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandbox", *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_help_says_what_it_does_and_names_every_command() -> None:
    done = sandbox("--help")
    assert done.returncode == 0
    for word in ("without Docker", "up", "down", "status", "clock", "workers", "stop", "start"):
        assert word in done.stdout
    assert "supervise" not in done.stdout


@pytest.mark.parametrize("command", ["up", "down", "status", "clock", "workers", "stop", "start"])
def test_every_command_explains_itself(command: str) -> None:
    done = sandbox(command, "--help")
    assert done.returncode == 0
    assert "--dir" in done.stdout


def test_up_explains_its_exit_codes() -> None:
    text = " ".join(sandbox("up", "--help").stdout.split())
    for word in ("0 ready", "78 something is missing", "1 the start failed", "130 after Ctrl-C"):
        assert word in text


def test_missing_prerequisites_are_one_screen_on_stderr_and_exit_78(tmp_path: Path) -> None:
    box = tmp_path / "box"
    done = sandbox(
        "up", "--dir", str(box), PATH="/nonexistent", JAVA_HOME="", XDG_CACHE_HOME=str(tmp_path)
    )
    assert done.returncode == 78
    assert done.stdout == ""
    for word in ("Java 17", "Maven", "fix:", "still works:", "Nothing was started."):
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not box.exists()


def test_status_of_nothing_is_exit_3_with_the_way_to_start_it(tmp_path: Path) -> None:
    done = sandbox("status", "--dir", str(tmp_path))
    assert done.returncode == 3
    assert f"no sandbox runs in {tmp_path}" in done.stderr
    assert "sandbox up" in done.stderr


def test_down_of_nothing_is_no_error(tmp_path: Path) -> None:
    done = sandbox("down", TAILRACE_DIR=str(tmp_path / "none"))
    assert done.returncode == 0
    assert "nothing runs in" in done.stdout


def test_wipe_deletes_only_what_a_sandbox_made(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    done = sandbox("down", "--wipe", "--dir", str(tmp_path))
    assert done.returncode == 1
    assert "nothing was deleted" in done.stderr
    assert precious.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("clock", "26h"), "offset '26h': expected a sign"),
        (("clock", "+26h"), "no sandbox runs in"),
        (("workers", "2"), "no sandbox runs in"),
        (("stop", "kafka"), "no sandbox runs in"),
        (("start", "kafka"), "no sandbox runs in"),
    ],
)
def test_a_fault_is_one_message_without_a_traceback(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = sandbox(*arguments, "--dir", str(tmp_path))
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_a_wanted_file_edited_into_nonsense_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "supervisor.json").write_text("{")
    done = sandbox("status", "--dir", str(tmp_path))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
