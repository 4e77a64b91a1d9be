"""What the demo prints: one line a step, with the seconds since the start."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Screen:
    """Lines with time stamps; talk goes where data would not be disturbed."""

    elapsed_s: Callable[[], float]
    failures: list[str] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        """A heading."""
        self._print(f"\n{title}")

    def line(self, text: str) -> None:
        """One thing that happened."""
        self._print(f"{self.elapsed_s():6.1f} s  {text}")

    def check(self, text: str, *, holds: bool) -> None:
        """One thing that must be so; a failure fails the demo."""
        self.line(f"{'ok  ' if holds else 'FAIL'} {text}")
        if not holds:
            self.failures.append(text)

    def plain(self, text: str) -> None:
        """Text as it is."""
        self._print(text)

    def _print(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
