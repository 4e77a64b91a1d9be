"""A start that is under way is seen, joined and ended, whatever point it has reached."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox import control, process
from sandbox.control import Console, LeftBehindError, NotRunningError, StartingError
from sandbox.down import down
from sandbox.paths import Paths, read_json
from sandbox.process import MARK, Command
from sandbox.starting import starter, starting
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 30.0
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path / "box", f"--dir {tmp_path / 'box'}")
    made.make()
    return made


def ended(paths: Paths) -> list[str]:
    """What `down` says."""
    said: list[str] = []
    down(paths, Console(said.append, said.append))
    return said


@contextmanager
def hanging_up(paths: Paths, java: Path) -> Iterator[subprocess.Popen[str]]:
    """An `up` that looks at the machine for ever: the Java it finds does not answer."""
    (java / "bin").mkdir(parents=True)
    program = java / "bin" / "java"
    program.write_text('#!/bin/sh\necho asked > "$0.asked"\nexec sleep 600\n')
    program.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "sandbox", "up", "--dir", str(paths.dir)],
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": str(java)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            until("Java is asked", (java / "bin" / "java.asked").exists, DEADLINE_S)
            yield child
        finally:
            child.kill()


def test_down_ends_a_start_before_there_is_a_supervisor(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "box")
    with hanging_up(paths, tmp_path / "java") as up:
        assert starter(paths) == process.ref_of(up.pid)
        with pytest.raises(StartingError, match="a start is under way"):
            control.state(paths)
        assert ended(paths) == [f"a start is under way (process {up.pid}); stopping it"]
        assert up.wait(DEADLINE_S) == 130
        assert up.stderr is not None
        assert "Traceback" not in up.stderr.read()
    assert not paths.dir.exists()


def test_a_suspended_start_is_woken_and_ended(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "box")
    with hanging_up(paths, tmp_path / "java") as up:
        up.send_signal(signal.SIGSTOP)
        ended(paths)
        assert up.wait(DEADLINE_S) == 130


def test_down_ends_a_supervisor_that_has_not_registered_yet(paths: Paths) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEP],
        env={**os.environ, MARK: f"{paths.dir}|{process.SUPERVISOR}"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        assert "nothing runs" not in " ".join(ended(paths))
        assert child.wait(DEADLINE_S) == -signal.SIGTERM


def test_parts_of_a_killed_supervisor_are_named_and_ended_and_said_once(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    command = Command((sys.executable, "-c", SLEEP), dict(os.environ), Path("/"))
    child, ref = process.spawn(paths, "kafka", command)
    until("the part is up", lambda: b"up" in paths.log("kafka").read_bytes(), DEADLINE_S)
    with pytest.raises(LeftBehindError, match=rf"left behind kafka \(process {ref.pid}\)") as left:
        control.state(paths)
    assert left.value.fix == f"`tailrace sandbox down --dir {paths.dir}` ends them"
    assert left.value.exit_code == 1
    assert ended(paths) == [f"kafka: process {ref.pid} was left behind; ended by SIGTERM"]
    assert child.wait(DEADLINE_S) == -signal.SIGTERM
    assert caplog.records == []
    with pytest.raises(NotRunningError):
        control.state(paths)


def test_only_one_start_at_a_time_has_the_directory(paths: Paths) -> None:
    with starting(paths) as first, starting(paths) as second:
        assert first is None
        assert second == process.ref_of(os.getpid())
    assert starter(paths) is None


def test_what_a_killed_start_noted_is_nobody(paths: Paths) -> None:
    paths.starting_json.write_text('{"pid": 1, "birth": "another boot:1"}')
    assert starter(paths) is None
    with starting(paths) as other:
        assert other is None
        record = read_json(paths.starting_json)
        assert record is not None
        assert record["pid"] == os.getpid()


def test_folders_made_for_the_note_go_with_it_unless_they_are_used(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "deep" / "box")
    with starting(paths):
        assert paths.run.is_dir()
    assert list(tmp_path.iterdir()) == []
    with starting(paths):
        paths.ports_json.write_text("{}")
    assert [each.name for each in paths.dir.iterdir()] == ["ports.json"]
