"""The life of a part, with processes that cost nothing."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandbox.board import Board, PartState
from sandbox.paths import Paths, read_json
from sandbox.process import Command, StopStep
from sandbox.runner import BACKOFF_MAX_S, Part, Runner, Step, StepRunner, backoff_s
from sandbox.supervisor import sweep
from tests.support.waiting import until

DEADLINE_S = 30.0
RUN = "import time; time.sleep(600)"


def render(parts: dict[str, PartState], stack: str) -> dict[str, Any]:
    pids = {name: state.ref.pid if state.ref else None for name, state in parts.items()}
    return {"state": stack, "pids": pids}


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    paths = Paths(tmp_path / "box")
    paths.make()
    paths.progress.write_text("")
    made = Board(paths, render)
    yield made
    made.stopping.set()
    sweep(paths)


def part(code: str = RUN, **differences: Any) -> Part:
    command = Command((sys.executable, "-c", code), dict(os.environ), Path("/"))
    values: dict[str, Any] = {
        "name": "part",
        "prepare": lambda: None,
        "command": lambda: command,
        "ready": lambda: "there",
        **differences,
    }
    return Part(**values)


def start(board: Board, **differences: Any) -> Runner:
    runner = Runner(part(**differences), board)
    runner.start()
    return runner


def state(board: Board, name: str = "part") -> str:
    known = board.state_of(name)
    assert known is not None
    return known.state


def pid(board: Board) -> int | None:
    known = board.state_of("part")
    assert known is not None
    return known.ref.pid if known.ref else None


def events(board: Board) -> list[str]:
    lines = board.paths.progress.read_bytes().splitlines()
    return [msgspec.json.decode(line)["event"] for line in lines]


def test_the_wait_between_starts_doubles_to_its_limit() -> None:
    waits = [backoff_s(failures) for failures in range(1, 9)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    assert backoff_s(1_000) == BACKOFF_MAX_S


def test_a_part_becomes_ready_and_stops(board: Board) -> None:
    runner = start(board)
    until("the part is ready", lambda: state(board) == "ready", DEADLINE_S)
    written = read_json(board.paths.sandbox_json)
    assert written is not None
    assert written["pids"]["part"] == pid(board)
    runner.finish()
    assert state(board) == "stopped"
    assert not board.paths.pid_file("part").exists()


def test_a_part_waits_for_what_it_needs(board: Board) -> None:
    board.add("first")
    runner = start(board, after=("first",))
    assert state(board) == "waiting"
    board.report("first", "ready")
    until("the part is ready", lambda: state(board) == "ready", DEADLINE_S)
    runner.finish()


def test_a_part_that_dies_is_started_again_and_its_new_pid_is_written(board: Board) -> None:
    runner = start(board)
    until("the part is ready", lambda: state(board) == "ready", DEADLINE_S)
    first = pid(board)
    assert first is not None
    os.kill(first, 9)
    until(
        "the part is ready again",
        lambda: state(board) == "ready" and pid(board) not in {first, None},
        DEADLINE_S,
    )
    assert board.parts["part"].restarts == 1
    written = read_json(board.paths.sandbox_json)
    assert written is not None
    assert written["pids"]["part"] == pid(board)
    assert events(board) == ["starting", "ready", "backoff", "starting", "ready"]
    runner.finish()


def test_a_part_that_never_starts_ends_the_start_with_its_log(board: Board) -> None:
    runner = start(board, code="print('no such disk'); raise SystemExit(7)", ready=lambda: None)
    until("the start has failed", lambda: board.failure is not None, DEADLINE_S)
    runner.join()
    assert board.failure is not None
    assert "ended with 7, 3 times" in board.failure
    assert "no such disk" in board.failure


def test_a_part_that_is_not_ready_in_time_is_stopped_and_tried_again(board: Board) -> None:
    def ready() -> str | None:
        return "there" if events(board).count("starting") > 1 else None

    runner = start(board, ready=ready, deadline_s=0.1)
    until("the part is ready", lambda: state(board) == "ready", DEADLINE_S)
    assert events(board)[:2] == ["starting", "backoff"]
    runner.finish()


def test_a_command_that_does_not_exist_ends_the_start(board: Board) -> None:
    missing = Command(("/nonexistent/server",), {}, Path("/"))
    runner = start(board, command=lambda: missing)
    runner.join(DEADLINE_S)
    assert board.failure is not None
    assert "/nonexistent/server" in board.failure


def test_a_held_part_is_stopped_until_it_is_released(board: Board) -> None:
    runner = start(board)
    until("the part is ready", lambda: state(board) == "ready", DEADLINE_S)
    runner.hold(True)
    until("the part is held", lambda: state(board) == "held", DEADLINE_S)
    assert pid(board) is None
    runner.hold(False)
    until("the part is ready", lambda: state(board) == "ready", DEADLINE_S)
    assert board.parts["part"].restarts == 0
    runner.finish()


def test_a_part_that_is_still_waiting_leaves_when_the_stack_stops(board: Board) -> None:
    board.add("first")
    runner = start(board, after=("first",))
    board.stopping.set()
    runner.finish()
    assert state(board) == "stopped"


def test_a_part_that_is_starting_leaves_when_the_stack_stops(board: Board) -> None:
    runner = start(board, ready=lambda: None)
    until("the part is starting", lambda: state(board) == "starting", DEADLINE_S)
    board.stopping.set()
    runner.join(DEADLINE_S)
    assert state(board) == "stopped"


def test_a_part_that_dies_while_the_stack_stops_is_not_started_again(board: Board) -> None:
    runner = start(board)
    until("the part is ready", lambda: state(board) == "ready", DEADLINE_S)
    board.stopping.set()
    gone = pid(board)
    assert gone is not None
    os.kill(gone, 9)
    runner.join(DEADLINE_S)
    assert not runner.is_alive()
    assert events(board).count("starting") == 1


def test_a_deaf_part_is_killed_after_its_grace(board: Board) -> None:
    deaf = "import signal,time; signal.signal(15,1); print('up',flush=True); time.sleep(600)"
    log = board.paths.log("part")

    def ready() -> str | None:
        return "there" if log.exists() and b"up" in log.read_bytes() else None

    steps = (StopStep(signal.SIGTERM, 0.2), StopStep(signal.SIGKILL, 5.0))
    runner = start(board, code=deaf, ready=ready, stop=steps)
    until("the part is ready", lambda: state(board) == "ready", DEADLINE_S)
    runner.finish()
    assert board.parts["part"].text == "SIGKILL"


def test_a_step_runs_after_what_it_needs_and_is_undone_at_the_end(board: Board) -> None:
    board.add("part")
    done: list[str] = []

    def do() -> str:
        done.append("done")
        return "two databases"

    def undo() -> str:
        done.append("undone")
        return "stopped"

    runner = StepRunner(Step("step", do, after=("part",), undo=undo), board)
    runner.start()
    assert done == []
    board.report("part", "ready")
    until("the step is done", lambda: state(board, "step") == "done", DEADLINE_S)
    assert "two databases" in board.parts["step"].text
    runner.finish()
    assert done == ["done", "undone"]


def test_a_step_that_fails_ends_the_start_and_is_not_undone(board: Board) -> None:
    def fail() -> str:
        raise ValueError("meters.toml: scale: must be 0 to 12")

    def undo() -> str:
        raise AssertionError("undone, but never done")

    runner = StepRunner(Step("meters", fail, after=(), undo=undo), board)
    runner.start()
    until("the start has failed", lambda: board.failure is not None, DEADLINE_S)
    assert board.failure == "meters: meters.toml: scale: must be 0 to 12"
    runner.finish()


def test_an_undo_that_fails_does_not_keep_the_stack_from_stopping(board: Board) -> None:
    def fail() -> str:
        raise OSError("Connect does not answer")

    runner = StepRunner(Step("capture", lambda: "", after=(), undo=fail), board)
    runner.start()
    until("capture is done", lambda: state(board, "capture") == "done", DEADLINE_S)
    runner.finish()
    assert board.parts["capture"].text == "not undone: Connect does not answer"
