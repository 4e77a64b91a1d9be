"""The state of every part, in one place: reports → sandbox.json and the progress log."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sandbox.paths import write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sandbox.paths import Paths
    from sandbox.process import ProcessRef


class StoppingError(Exception):
    """The stack is being stopped: whoever waits for a part stops waiting."""


@dataclass
class PartState:
    """What is known of one part."""

    state: str = "waiting"
    """waiting, starting, ready, backoff, held, stopped, done."""
    ref: ProcessRef | None = None
    restarts: int = 0
    text: str = ""


@dataclass
class Board:
    """Shared by the threads of the supervisor; every change is written out before it returns."""

    paths: Paths
    render: Callable[[dict[str, PartState], str], dict[str, Any]]
    """Part states and stack state → the content of sandbox.json."""
    began_s: float = field(default_factory=time.monotonic)
    stack: str = "starting"
    failure: str | None = None

    def __post_init__(self) -> None:
        """Makes what the threads share."""
        self.parts: dict[str, PartState] = {}
        self._changed = threading.Condition()
        self.stopping = threading.Event()

    def add(self, part: str) -> None:
        """Makes a part known."""
        with self._changed:
            self.parts[part] = PartState()

    def remove(self, part: str) -> None:
        """Forgets a part that was scaled away."""
        with self._changed:
            self.parts.pop(part, None)
            self._write()
            self._changed.notify_all()

    def report(
        self, part: str, state: str, text: str = "", *, ref: ProcessRef | None = None
    ) -> None:
        """Records a part's new state; `ref` is its process, None when it has none."""
        with self._changed:
            known = self.parts.setdefault(part, PartState())
            if state == "starting" and known.ref is None and known.state == "backoff":
                known.restarts += 1
            known.state, known.ref, known.text = state, ref, text
            self._write()
            self.log(part, state, text)
            self._changed.notify_all()

    def log(self, part: str, event: str, text: str = "") -> None:
        """Appends one line to the progress log."""
        line = {
            "t": round(time.monotonic() - self.began_s, 3),
            "part": part,
            "event": event,
            "text": text,
        }
        with self.paths.progress.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def fail(self, text: str) -> None:
        """Ends the start: the supervisor stops everything that runs."""
        with self._changed:
            self.failure = self.failure or text
            self._changed.notify_all()

    def become(self, stack: str) -> None:
        """Moves the stack as a whole: starting, ready, stopping."""
        with self._changed:
            self.stack = stack
            self._write()
            self._changed.notify_all()

    def wait_for(self, parts: Iterable[str]) -> None:
        """Blocks until all these parts are ready.

        Raises:
            StoppingError: The stack is being stopped instead.
        """
        names = tuple(parts)
        with self._changed:
            while not self._all_ready(names):
                self._changed.wait(0.2)
                if self.stopping.is_set():
                    raise StoppingError

    def state_of(self, part: str) -> PartState | None:
        """What is known of a part now, and written out already; None if there is no such part."""
        with self._changed:
            known = self.parts.get(part)
            return None if known is None else replace(known)

    def all_ready(self) -> bool:
        """Whether every part is ready or stopped on purpose."""
        with self._changed:
            return self._all_ready(tuple(self.parts))

    def wait_change(self, seconds: float) -> None:
        """Blocks until something changes or the time is over."""
        with self._changed:
            self._changed.wait(seconds)

    def _all_ready(self, names: tuple[str, ...]) -> bool:
        settled = {"ready", "done", "held"}
        return all(name in self.parts and self.parts[name].state in settled for name in names)

    def _write(self) -> None:
        write_json(self.paths.sandbox_json, self.render(self.parts, self.stack))
