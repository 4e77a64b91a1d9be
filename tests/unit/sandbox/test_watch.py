"""When capture is looked at, and what is said of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.errors import CaptureError
from sandbox import watch
from sandbox.board import Board
from sandbox.paths import Paths
from sandbox.process import ProcessRef
from sandbox.watch import CaptureWatch
from tests.support.waiting import until

DEADLINE_S = 20.0


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setattr(watch, "TICK_S", 0.01)
    paths = Paths(tmp_path)
    paths.make()
    paths.progress.write_text("")
    made = Board(paths, lambda *_: {})
    yield made
    made.stopping.set()


def flowing(board: Board, birth: str = "first") -> None:
    board.report("connect", "ready", ref=ProcessRef(1, birth))
    board.report("capture", "done")


def refusals(board: Board) -> int:
    return board.paths.progress.read_text().count('"refused"')


class Looks:
    """Answers in turn; the last one for ever."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers = list(answers)
        self.count = 0

    def __call__(self) -> str | None:
        answer = self.answers[min(self.count, len(self.answers) - 1)]
        self.count += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_nobody_looks_before_capture_has_started(board: Board) -> None:
    looks = Looks(None)
    watcher = CaptureWatch(board, looks)
    watcher.start()
    board.report("connect", "ready", ref=ProcessRef(1, "first"))
    board.report("capture", "waiting")
    board.stopping.set()
    watcher.join()
    assert looks.count == 0


def test_each_new_process_of_connect_is_looked_at(board: Board) -> None:
    looks = Looks(None)
    CaptureWatch(board, looks).start()
    flowing(board)
    until("looked once", lambda: looks.count == 1, DEADLINE_S)
    board.report("connect", "backoff")
    flowing(board, "second")
    until("looked twice", lambda: looks.count == 2, DEADLINE_S)


def test_what_is_wrong_is_said_once_and_looked_at_again_soon(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "RETRY_S", 0.01)
    looks = Looks("slot-ahead: 3,392 bytes; run the repair")
    CaptureWatch(board, looks).start()
    flowing(board)
    until("looked five times", lambda: looks.count >= 5, DEADLINE_S)
    assert refusals(board) == 1


def test_a_database_that_is_away_is_no_finding(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "RETRY_S", 0.01)
    looks = Looks(CaptureError("away"), CaptureError("away"), None)
    CaptureWatch(board, looks).start()
    flowing(board)
    until("looked three times", lambda: looks.count == 3, DEADLINE_S)
    assert refusals(board) == 0


def test_it_is_looked_at_again_every_while(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.01)
    looks = Looks(None)
    CaptureWatch(board, looks).start()
    flowing(board)
    until("looked three times", lambda: looks.count >= 3, DEADLINE_S)
