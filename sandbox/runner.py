"""One thread per part: start it, wait until it is ready, start it again if it dies, stop it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.board import Board, StoppingError
from sandbox.process import (
    GENTLE,
    Command,
    ProcessRef,
    StillRunningError,
    StopStep,
    spawn,
    stop,
    wake,
)

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

log = logging.getLogger("sandbox")

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 10.0
STEADY_S = 30.0
"""A part that ran this long starts its next backoff afresh."""
TICK_S = 0.1


def backoff_s(failures: int) -> float:
    """The wait before the start after so many deaths in a row: 0.5 s doubling to 10 s."""
    return float(min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** max(0, failures - 1)))


@dataclass(frozen=True, slots=True)
class Part:
    """What the supervisor needs to know of one process."""

    name: str
    prepare: Callable[[], None]
    command: Callable[[], Command]
    ready: Callable[[], str | None]
    """A text for people once the part is ready, None until then. May block for a few seconds."""
    after: tuple[str, ...] = ()
    stop: tuple[StopStep, ...] = GENTLE
    deadline_s: float = 60.0
    """How long a start may take before it counts as failed."""
    starts_max: int = 3
    """Failed starts in a row that end the start of the stack; later ones are repeated for ever."""


class Runner(threading.Thread):
    """Keeps one part running. Everything it does is on the board and in the supervisor's log."""

    def __init__(self, part: Part, board: Board) -> None:
        super().__init__(name=part.name, daemon=True)
        self.part = part
        self.board = board
        self._leave = threading.Event()
        self._held = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._ref: ProcessRef | None = None
        self._failures = 0
        self._was_ready = False
        board.add(part.name)

    def hold(self, held: bool) -> None:
        """Stops the part until it is released, or releases it."""
        if held:
            self._held.set()
        else:
            self._held.clear()

    def wake(self) -> None:
        """Lets the part's process go on if somebody has suspended it; others may depend on it."""
        ref = self._ref
        if ref is not None:
            wake(ref)

    def leave(self) -> None:
        """Begins to stop the part for good, without waiting: several may stop at the same time."""
        self._leave.set()

    def finish(self) -> None:
        """Stops the part for good; blocks until its process is gone."""
        self.leave()
        self.join()

    def run(self) -> None:
        """The life of the part, until `finish` is called or the start of the stack fails."""
        try:
            self.board.wait_for(self.part.after)
            while not self._leave.is_set():
                self._life()
                if self._start_aborted():
                    break
        except StoppingError:
            pass
        except Exception as problem:
            log.exception("%s: cannot be run", self.part.name)
            self.board.fail(f"{self.part.name}: {problem}")
        finally:
            self._end("stopped")

    def _life(self) -> None:
        """One life: from the start to the death, the hold or the end."""
        if self._held.is_set():
            self._end("held")
            self._wait(lambda: not self._held.is_set())
            return
        began_s = time.monotonic()
        self._start()
        if self._become_ready(began_s):
            ready_s = time.monotonic()
            self._wait(self._exited)
            if time.monotonic() - ready_s > STEADY_S:
                self._failures = 0
        if self._interrupted():
            self._end("held" if self._held.is_set() else "stopped")
            return
        self._mourn()

    def _start(self) -> None:
        self.part.prepare()
        self._child, self._ref = spawn(self.board.paths, self.part.name, self.part.command())
        self.board.report(self.part.name, "starting", f"pid {self._ref.pid}", ref=self._ref)

    def _become_ready(self, began_s: float) -> bool:
        deadline = time.monotonic() + self.part.deadline_s
        while time.monotonic() < deadline and not self._exited() and not self._interrupted():
            text = self.part.ready()
            if text is not None and not self._exited():
                self._was_ready = True
                seconds = time.monotonic() - began_s
                self.board.report(
                    self.part.name, "ready", f"{seconds:.1f} s ({text})", ref=self._ref
                )
                return True
            self._leave.wait(TICK_S)
        return False

    def _mourn(self) -> None:
        """The part died or never became ready: says so and waits before the next start."""
        self._failures += 1
        code = None if self._child is None else self._child.poll()
        if code is None:
            what = f"not ready after {self.part.deadline_s:.0f} s"
            self._kill()
        else:
            what = f"ended with {code}" if code >= 0 else f"killed by signal {-code}"
        if not self._was_ready and self._failures >= self.part.starts_max:
            tail = log_tail(self.board, self.part.name)
            self.board.fail(
                f"{self.part.name}: {what}, {self._failures} times. Its log ends:\n{tail}"
            )
            raise StoppingError
        if self.board.stopping.is_set():
            raise StoppingError
        wait_s = backoff_s(self._failures)
        log.warning("%s: %s; starting it again in %.1f s", self.part.name, what, wait_s)
        self.board.report(self.part.name, "backoff", f"{what}; starting it again in {wait_s:.1f} s")
        until = time.monotonic() + wait_s
        self._wait(lambda: time.monotonic() >= until)

    def _end(self, state: str) -> None:
        how = self._kill()
        if how != "":
            log.info("%s: stopped by %s", self.part.name, how)
        known = self.board.state_of(self.part.name)
        if known is not None and known.state != state:
            self.board.report(self.part.name, state, how)

    def _kill(self) -> str:
        """Stops the process if there is one; the text says by which signal."""
        child, ref = self._child, self._ref
        self._child = self._ref = None
        if child is None or ref is None:
            return ""
        try:
            how = stop(ref, self.part.stop)
        except StillRunningError:
            log.exception("%s: left running", self.part.name)
            return "nothing: it is still there"
        child.wait()
        self.board.paths.pid_file(self.part.name).unlink(missing_ok=True)
        return how

    def _wait(self, done: Callable[[], bool]) -> None:
        while not done() and not self._interrupted():
            self._leave.wait(TICK_S)

    def _exited(self) -> bool:
        return self._child is None or self._child.poll() is not None

    def _interrupted(self) -> bool:
        """Whether the part has to be stopped now. While it is held, that is no interruption."""
        if self._leave.is_set() or self._start_aborted():
            return True
        return self._held.is_set() and self._child is not None

    def _start_aborted(self) -> bool:
        """Whether the stack is stopping while this part never came up: nobody depends on it yet."""
        return self.board.stopping.is_set() and not self._was_ready


@dataclass(frozen=True, slots=True)
class Step:
    """Work that is done once the parts it needs are ready: an installation, not a process."""

    name: str
    run: Callable[[], str]
    """Does it, repeatably, and returns a text for people."""
    after: tuple[str, ...]
    undo: Callable[[], str] | None = None
    """Called before the parts are stopped."""


class StepRunner(threading.Thread):
    """Does one step; a step that fails ends the start of the stack."""

    def __init__(self, step: Step, board: Board) -> None:
        super().__init__(name=step.name, daemon=True)
        self.step = step
        self.board = board
        self._done = False
        board.add(step.name)

    def run(self) -> None:
        """Waits for what the step needs, does it, reports."""
        try:
            self.board.wait_for(self.step.after)
            began_s = time.monotonic()
            text = self.step.run()
        except StoppingError:
            return
        except Exception as problem:
            log.exception("%s: failed", self.step.name)
            self.board.fail(f"{self.step.name}: {problem}")
            return
        self._done = True
        self.board.report(self.step.name, "done", f"{time.monotonic() - began_s:.1f} s ({text})")

    def finish(self) -> None:
        """Undoes the step where there is something to undo; never keeps the stack from stopping."""
        self.join()
        if not self._done or self.step.undo is None:
            return
        try:
            text = self.step.undo()
        except Exception as problem:
            log.exception("%s: not undone", self.step.name)
            text = f"not undone: {problem}"
        self.board.report(self.step.name, "stopped", text)


def log_tail(board: Board, part: str, lines: int = 15) -> str:
    """The last lines of a part's log."""
    with contextlib.suppress(FileNotFoundError):
        text = board.paths.log(part).read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])
    return "(no log)"
