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


def test_status_of_nothing_is_exit_69_with_the_way_to_start_it(tmp_path: Path) -> None:
    done = sandbox("status", "--dir", str(tmp_path))
    assert done.returncode == 69
    assert f"no sandbox runs in {tmp_path}" in done.stderr
    assert f"next: `tailrace sandbox up --dir {tmp_path}`" in done.stderr


def test_every_exit_code_of_status_is_in_its_help() -> None:
    text = " ".join(sandbox("status", "--help").stdout.split())
    for word in ("0 it runs", "69 nothing runs", "1 parts run without a supervisor"):
        assert word in text


@pytest.mark.parametrize("command", ["up", "down", "status", "clock"])
def test_a_file_in_place_of_the_directory_is_named_with_the_rule(
    tmp_path: Path, command: str
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    done = sandbox(command, "--dir", str(file))
    assert done.returncode == 2
    assert f"--dir {file}: is a file; a sandbox lives in a directory" in done.stderr
    assert "next: name a directory" in done.stderr
    below = sandbox(command, TAILRACE_DIR=str(file / "box"))
    assert below.returncode == 78
    assert f"TAILRACE_DIR={file}/box: {file} is a file" in below.stderr
    assert file.read_text() == "mine"


def test_a_directory_that_even_root_cannot_write_is_named_with_its_option() -> None:
    # The permissions of this kernel file system allow root what it refuses.
    done = sandbox("up", "--dir", "/sys/box")
    assert done.returncode == 78
    assert "a directory that can be written: --dir /sys/box is /sys/box" in done.stderr
    assert "fix:         name your own: --dir" in done.stderr
    assert "Nothing was started." in done.stderr
    assert "Traceback" not in done.stderr


def test_down_of_nothing_is_no_error(tmp_path: Path) -> None:
    done = sandbox("down", TAILRACE_DIR=str(tmp_path / "none"))
    assert done.returncode == 0
    assert "nothing runs in" in done.stdout


def test_wipe_deletes_only_what_a_sandbox_made(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    done = sandbox("down", "--wipe", "--dir", str(tmp_path))
    assert done.returncode == 2
    assert "nothing was deleted" in done.stderr
    assert precious.exists()


def test_wiping_nothing_says_so_and_an_empty_directory_goes(tmp_path: Path) -> None:
    none = sandbox("down", "--wipe", "--dir", str(tmp_path / "none"))
    assert (none.returncode, none.stdout) == (0, f"nothing runs in {tmp_path / 'none'}\n")
    (tmp_path / "box").mkdir()
    empty = sandbox("down", "--wipe", "--dir", str(tmp_path / "box"))
    assert (empty.returncode, f"deleted {tmp_path / 'box'}" in empty.stdout) == (0, True)
    assert list(tmp_path.iterdir()) == []


def test_the_demo_empties_no_directory_but_a_sandbox(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.demo", "--dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "nothing was deleted" in done.stderr
    assert precious.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("clock", "26h"), 2, "offset '26h': expected a sign"),
        (("clock", "+26h"), 69, "no sandbox runs in"),
        (("workers", "2"), 69, "no sandbox runs in"),
        (("stop", "kafka"), 69, "no sandbox runs in"),
        (("start", "kafka"), 69, "no sandbox runs in"),
        (("sql", "SELECT 1"), 69, "no sandbox runs in"),
    ],
)
def test_a_fault_is_what_and_what_next_without_a_traceback(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = sandbox(*arguments, "--dir", str(tmp_path))
    assert done.returncode == code
    assert done.stdout == ""
    what, following = done.stderr.splitlines()
    assert words in what
    assert following.startswith("  next: ")


def test_a_record_edited_into_nonsense_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "supervisor.json").write_text("{")
    done = sandbox("status", "--dir", str(tmp_path))
    assert done.returncode == 78
    assert "supervisor.json: is damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_user_is_told_commands_that_the_user_has() -> None:
    """People type `tailrace sandbox`; the module is for processes and maintainers."""
    sources = (ROOT / "sandbox").rglob("*.py")
    told = [
        f"{source.relative_to(ROOT)}: {line.strip()}"
        for source in sources
        for line in source.read_text(encoding="utf-8").splitlines()
        if "python -m sandbox" in line and '"""' not in line and "relock" not in line
    ]
    assert told == []
