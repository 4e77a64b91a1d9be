"""Ctrl-C from the first import to the last word: one line, exit 130, never a traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.cli import entry, errors
from tests.support.waiting import NotInTimeError

ROOT = Path(__file__).parents[3]
WAITS = "import signal; print('here', flush=True); signal.pause()"

ENTERED = "from streams.cli import entry; entry.enter('typed')"


def as_in_a_terminal() -> None:
    """A shell's background job inherits SIGINT ignored; what Ctrl-C reaches never does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def as_in_the_background() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def interrupted(
    folder: Path, module: str, before: Callable[[], None] = as_in_a_terminal
) -> subprocess.CompletedProcess[str]:
    """Enters the module as the console script does; Ctrl-C once it has said `here`."""
    (folder / "typed.py").write_text(module, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", ENTERED],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,  # noqa: PLW1509 - this test has no threads
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        try:
            out, err = pressed(child, then_ended=before is as_in_the_background)
        finally:
            child.kill()
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)


def pressed(child: subprocess.Popen[str], *, then_ended: bool) -> tuple[str, str]:
    """Presses Ctrl-C, and again, as people do, while nothing comes of it.

    The interpreter loses one that comes after it last looked and before it waits for a lock.
    """
    for _ in range(20):
        child.send_signal(signal.SIGINT)
        if then_ended:
            child.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.communicate(timeout=2)
    raise NotInTimeError("the child's end", 40)


@pytest.mark.parametrize(
    "module",
    [
        WAITS,
        f"def run(arguments):\n    {WAITS}",
        # An import hook, a callback or a library may swallow an exception; nobody swallows an exit.
        f"try:\n    {WAITS}\nexcept BaseException:\n    signal.pause()",
        "import threading\n"
        "def linger():\n"
        "    threading.main_thread().join()\n"
        "    print('here', flush=True)\n"
        "    threading.Event().wait()\n"
        "def run(arguments):\n"
        "    threading.Thread(target=linger).start()\n"
        "    return 0",
    ],
    ids=["while it loads", "while it runs", "while it loads and swallows", "after it has ended"],
)
def test_ctrl_c_is_one_line_and_130_at_every_moment(tmp_path: Path, module: str) -> None:
    done = interrupted(tmp_path, module)
    assert done.returncode == 130
    assert set(done.stderr.splitlines()) == {entry.STOPPED}


def test_a_background_job_goes_on_ignoring_it(tmp_path: Path) -> None:
    done = interrupted(tmp_path, WAITS, as_in_the_background)
    assert done.returncode == -signal.SIGTERM
    assert done.stderr == ""


def test_commands_are_loaded_under_the_guard(tmp_path: Path) -> None:
    done = interrupted(
        tmp_path,
        "import sys\n"
        "sys.argv[1:] = ['status']\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'streams.cli.status':\n"
        f"            {WAITS}\n"
        "from streams.cli.main import run\n"
        "sys.meta_path.insert(0, Slow())\n",
    )
    assert done.returncode == 130
    assert done.stderr == f"{entry.STOPPED}\n"


def test_the_console_script_enters_here_and_has_next_to_nothing_to_load_before() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"tailrace": "streams.cli.entry:main"}
    script = (
        "import sys; before = set(sys.modules)\n"
        "import streams.cli.entry; print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("streams")}
    assert ours == {"streams", "streams.cli", "streams.cli.entry"}
    assert {name.partition(".")[0] for name in set(loaded) - ours} <= sys.stdlib_module_names
    assert "typing" not in loaded


def test_both_know_one_exit_code() -> None:
    assert errors.INTERRUPTED == entry.INTERRUPTED == 130
