"""Capture under watch: after each start of Connect and every minute → guard, then heal, then said.

Connect starts its connectors by itself when it comes back, with no guard before them, and it calls
a connector RUNNING whose task has failed. So somebody looks: a connector that endangers rows is
stopped and named, a failed task is started again.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import psycopg

from connectors.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.board import Board

log = logging.getLogger("sandbox")

EVERY_S = 60.0
RETRY_S = 5.0
"""The pause before the next look when Connect or the database did not answer."""
TICK_S = 0.2


class CaptureWatch(threading.Thread):
    """Looks at the connector as long as the stack runs."""

    def __init__(self, board: Board, look: Callable[[], str | None]) -> None:
        """Watches with `look`, which returns what is wrong, or None."""
        super().__init__(name="watch", daemon=True)
        self._board = board
        self._look = look
        self._starts: str | None = None
        self._said: str | None = None

    def run(self) -> None:
        """Looks when it is time, until the stack stops."""
        next_s = 0.0
        while not self._board.stopping.wait(TICK_S):
            if not self._capture_runs():
                continue
            if self._restarted() or time.monotonic() >= next_s:
                next_s = time.monotonic() + (EVERY_S if self._once() else RETRY_S)

    def _capture_runs(self) -> bool:
        capture, worker = (self._board.state_of(name) for name in ("capture", "connect"))
        states = (capture and capture.state, worker and worker.state)
        return states == ("done", "ready")

    def _restarted(self) -> bool:
        """Whether Connect is another process than at the last look."""
        worker = self._board.state_of("connect")
        birth = worker.ref.birth if worker is not None and worker.ref is not None else None
        changed = birth != self._starts
        self._starts = birth
        return changed

    def _once(self) -> bool:
        try:
            wrong = self._look()
        except (CaptureError, psycopg.Error) as problem:
            log.warning("capture: could not be looked at: %s", problem)
            return False
        if wrong is not None and wrong != self._said:
            log.error("capture: %s", wrong)
            self._board.log("capture", "refused", wrong)
        self._said = wrong
        return wrong is None
