import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox import process
from sandbox.paths import Paths
from sandbox.process import KILL, Command, ProcessRef, StillRunningError, StopStep

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal,time; signal.signal(15,1); print('up',flush=True); time.sleep(600)"


Spawn = Callable[..., tuple[subprocess.Popen[bytes], ProcessRef]]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path / "box")
    made.make()
    return made


@pytest.fixture
def spawn(paths: Paths) -> Iterator[Spawn]:
    children = []

    def start(code: str = SLEEP) -> tuple[subprocess.Popen[bytes], ProcessRef]:
        child, ref = process.spawn(paths, "part", command(code))
        children.append(child)
        log = paths.log("part")
        while b"up" not in log.read_bytes():
            assert child.poll() is None
        return child, ref

    yield start
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()


def command(code: str) -> Command:
    return Command((sys.executable, "-c", code), dict(os.environ), Path("/"))


def test_a_process_is_known_by_id_and_birth(paths: Paths, spawn: Spawn) -> None:
    child, ref = spawn()
    assert process.alive(ref)
    assert not process.alive(ProcessRef(ref.pid, "another boot:17"))
    child.kill()
    child.wait()
    assert not process.alive(ref)


def test_a_zombie_is_not_alive(paths: Paths, spawn: Spawn) -> None:
    child, ref = spawn()
    os.kill(ref.pid, signal.SIGKILL)
    os.waitid(os.P_PID, ref.pid, os.WEXITED | os.WNOWAIT)
    assert not process.alive(ref)
    child.wait()


def test_nothing_is_signalled_that_was_not_started_here(paths: Paths, spawn: Spawn) -> None:
    child, ref = spawn()
    stranger = ProcessRef(ref.pid, "before the machine was started anew:1")
    assert process.send(stranger, signal.SIGKILL) is False
    assert process.stop(stranger, KILL) == "gone"
    assert child.poll() is None


def test_the_gentle_signal_is_enough_for_a_process_that_obeys(paths: Paths, spawn: Spawn) -> None:
    child, ref = spawn()
    assert process.stop(ref, process.GENTLE) == "SIGTERM"
    assert child.wait() == -signal.SIGTERM


def test_a_suspended_process_is_woken_so_that_it_can_obey(paths: Paths, spawn: Spawn) -> None:
    child, ref = spawn()
    child.send_signal(signal.SIGSTOP)
    assert process.stop(ref, process.GENTLE) == "SIGTERM"
    assert child.wait() == -signal.SIGTERM


def test_a_deaf_process_is_killed_after_its_grace(paths: Paths, spawn: Spawn) -> None:
    child, ref = spawn(DEAF)
    steps = (StopStep(signal.SIGTERM, 0.2), StopStep(signal.SIGKILL, 5.0))
    assert process.stop(ref, steps) == "SIGKILL"
    child.wait()


def test_a_process_that_outlives_the_last_signal_is_an_error(paths: Paths, spawn: Spawn) -> None:
    child, ref = spawn(DEAF)
    with pytest.raises(StillRunningError, match=f"process {ref.pid}"):
        process.stop(ref, (StopStep(signal.SIGTERM, 0.2),))
    assert child.poll() is None


def test_children_of_a_part_end_with_it(paths: Paths, spawn: Spawn) -> None:
    parent = f"import subprocess,sys; subprocess.Popen([sys.executable,'-c',{SLEEP!r}]); {SLEEP}"
    child, ref = spawn(parent)
    group = process.left_behind(paths)
    assert ref.pid in {each.pid for _, each in group}
    process.stop(ref, process.GENTLE)
    child.wait()
    assert list(process.left_behind(paths)) == []


def test_a_child_that_outlives_its_parent_is_waited_for_and_killed(
    paths: Paths, spawn: Spawn
) -> None:
    parent = (
        f"import subprocess,sys; c=subprocess.Popen([sys.executable,'-c',{DEAF!r}],"
        f"stdout=subprocess.PIPE); c.stdout.readline(); {SLEEP}"
    )
    child, ref = spawn(parent)
    steps = (StopStep(signal.SIGTERM, 0.5), StopStep(signal.SIGKILL, 5.0))
    assert process.stop(ref, steps) == "SIGKILL"
    assert child.wait() == -signal.SIGTERM
    assert list(process.left_behind(paths)) == []


def test_what_a_killed_supervisor_left_is_found_by_pid_file(paths: Paths, spawn: Spawn) -> None:
    _, ref = spawn()
    assert ("part", ref) in list(process.left_behind(paths))


def test_what_it_started_without_writing_a_pid_file_is_found_by_its_mark(
    paths: Paths, spawn: Spawn
) -> None:
    _, ref = spawn()
    paths.pid_file("part").unlink()
    assert list(process.left_behind(paths)) == [("part", ref)]


def test_another_sandbox_is_left_alone(spawn: Spawn, tmp_path: Path) -> None:
    spawn()
    other = Paths(tmp_path / "box-2")
    other.make()
    assert list(process.left_behind(other)) == []


def test_a_pid_file_of_another_boot_names_nobody(paths: Paths, spawn: Spawn) -> None:
    file = paths.pid_file("part")
    file.write_text(f'{{"pid": {os.getpid()}, "birth": "another boot:1", "part": "part"}}')
    assert list(process.left_behind(paths)) == []
