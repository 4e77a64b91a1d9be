"""The daemon that keeps the stack: wishes → processes, restarted if they die, stopped in order."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from sandbox import capture, postgres
from sandbox import wanted as wishes
from sandbox.board import Board
from sandbox.paths import write_json
from sandbox.process import GENTLE, left_behind, ref_of, stop
from sandbox.runner import Runner, StepRunner
from sandbox.watch import CaptureWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.board import PartState
    from sandbox.paths import Paths
    from sandbox.process import ProcessRef
    from sandbox.stack import Stack
    from sandbox.worker import Worker

log = logging.getLogger("sandbox")

FOLLOW_S = 0.2
"""How often the wishes are read again."""

STOP_ORDER = ("webhook", "connect", "kafka", "postgres", "stripe")
"""After the workers and the undoing of the steps: first who reads, then who is read."""


class AlreadyRunningError(Exception):
    """Another supervisor holds this directory."""


class Supervisor:
    """Runs one stack until it is told to stop, or until its start fails."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.wanted = stack.wanted
        self.workers: dict[int, Worker] = {}
        self.board = Board(stack.paths, self._render)
        self.runners: dict[str, Runner] = {}
        self.steps: list[StepRunner] = []

    def run(self) -> int:
        """Blocks for the life of the stack.

        Returns:
            0 after an ordered stop, 1 if the start failed.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.board.stopping.set())
        for part in self.stack.parts():
            self._begin(Runner(part, self.board))
        for step in self.stack.steps():
            runner = StepRunner(step, self.board)
            self.steps.append(runner)
            runner.start()
        self._follow_wishes()
        CaptureWatch(self.board, lambda: capture.look(self.stack.installation)).start()
        began_s = time.monotonic()
        while not self.board.stopping.is_set() and self.board.failure is None:
            self._tick(began_s)
        self._stop_all()
        return 0 if self.board.failure is None else 1

    def _tick(self, began_s: float) -> None:
        self.board.wait_change(FOLLOW_S)
        self._follow_wishes()
        if self.board.stack == "starting" and self.board.all_ready():
            self.board.become("ready")
            self.board.log("stack", "ready", f"{time.monotonic() - began_s:.1f} s")

    def _follow_wishes(self) -> None:
        wanted = wishes.read(self.stack.paths.wanted_json)
        if wanted is None:
            return
        self.wanted = wanted
        for number in range(wanted.workers):
            if number not in self.workers:
                part, self.workers[number] = self.stack.worker(number)
                self._begin(Runner(part, self.board))
        for number in [each for each in self.workers if each >= wanted.workers]:
            name = f"worker-{number}"
            self.runners.pop(name).finish()
            del self.workers[number]
            self.board.remove(name)
            self.board.log(name, "removed", "scaled away")
        for name, runner in self.runners.items():
            runner.hold(name in wanted.held)

    def _begin(self, runner: Runner) -> None:
        self.runners[runner.part.name] = runner
        runner.hold(runner.part.name in self.wanted.held)
        runner.start()

    def _stop_all(self) -> None:
        self.board.stopping.set()
        self.board.become("stopping")
        if self.board.failure is not None:
            log.error("start failed: %s", self.board.failure)
            self.board.log("stack", "failed", self.board.failure)
        # Whoever is stopped first may have to ask a later one, which must be awake for that.
        for runner in self.runners.values():
            runner.wake()
        self._stop_parts()
        for line in sweep(self.stack.paths):
            log.warning("%s", line)
        self.stack.paths.sandbox_json.unlink(missing_ok=True)
        self.board.log("stack", "stopped")

    def _stop_parts(self) -> None:
        workers = [runner for name, runner in self.runners.items() if name.startswith("worker-")]
        for runner in workers:
            runner.leave()
        for worker in workers:
            worker.finish()
        for step in reversed(self.steps):
            step.finish()
        for name in STOP_ORDER:
            if name in self.runners:
                self.runners[name].finish()

    def _render(self, parts: dict[str, PartState], stack: str) -> dict[str, Any]:
        return self.stack.render(parts, stack, self.workers)


def sweep(paths: Paths) -> list[str]:
    """Ends every other process of this sandbox that is still there, gently; a line for each.

    Raises:
        StillRunningError: One of them outlives even the last signal.
    """
    if not paths.run.is_dir():
        return []
    lines = []
    for part, ref in sorted(left_behind(paths), key=_stop_rank):
        if ref.pid == os.getpid():
            continue
        how = stop(ref, postgres.STOP if part == "postgres" else GENTLE)
        if how != "gone":
            lines.append(f"{part}: process {ref.pid} was left behind; ended by {how}")
        paths.pid_file(part).unlink(missing_ok=True)
    return lines


def _stop_rank(found: tuple[str, ProcessRef]) -> int:
    return STOP_ORDER.index(found[0]) if found[0] in STOP_ORDER else -1


@contextlib.contextmanager
def holding(paths: Paths) -> Iterator[None]:
    """Holds the directory while the supervisor lives; the kernel lets go when it is killed.

    Raises:
        AlreadyRunningError: Another supervisor has it.
    """
    with paths.lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{paths.dir} is held by another supervisor"
            raise AlreadyRunningError(message) from None
        me = ref_of(os.getpid())
        write_json(paths.pid_file_of_supervisor, {"pid": os.getpid(), "birth": me and me.birth})
        yield
        paths.pid_file_of_supervisor.unlink(missing_ok=True)
