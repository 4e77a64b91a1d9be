"""The progress log of a supervisor → lines for people, until the stack is ready, failed or gone."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.process import alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.paths import Paths
    from sandbox.process import ProcessRef

POLL_S = 0.1
SHOWN = {"ready", "done", "backoff", "held", "removed", "refused", "stopped"}


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the progress log."""

    part: str
    event: str
    text: str


@dataclass
class Follower:
    """Reads the progress log as it grows."""

    paths: Paths
    supervisor: ProcessRef
    say: Callable[[str], None]
    offset: int = 0
    """Bytes of the log that were read already."""

    def until(self, *ends: str, within_s: float = math.inf) -> Event:
        """Prints what happens until the stack as a whole reaches one of these events.

        Returns:
            That event; `gone` if the supervisor ended without a word, `late` if it did neither.
        """
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            # Asked before reading: what it wrote before it died is read in this round.
            there = alive(self.supervisor)
            for event in self._fresh():
                if event.event in SHOWN:
                    self.say(describe(event))
                if event.part == "stack" and event.event in ends:
                    return event
            if not there:
                return Event("stack", "gone", "")
            time.sleep(POLL_S)
        return Event("stack", "late", "")

    def _fresh(self) -> Iterator[Event]:
        if not self.paths.progress.exists():
            return
        with self.paths.progress.open("rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                value: dict[str, Any] = msgspec.json.decode(line)
                yield Event(value["part"], value["event"], value["text"])


def describe(event: Event) -> str:
    """`postgres ready 1.1 s (wal_level=logical, port 41233)`."""
    word = "ready" if event.event == "done" else event.event
    return " ".join(part for part in (event.part, word, event.text) if part)
