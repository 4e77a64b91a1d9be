"""A real stack whose wall clock a test moves forward, with workers that follow it.

Only the wall clock of the parts and the workers moves: what is measured by elapsed time (leases as
their holder sees them, breakers, timeouts) takes as long as it does.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.live import LiveStack
from tests.support.stack import NativeStack, open_stack


@dataclass(slots=True)
class ShiftedStack(LiveStack):
    """A live stack, so far ahead of the machine's clock."""

    ahead: timedelta = timedelta(0)

    @property
    def now(self) -> datetime:
        """What the parts of the stack take for now."""
        return datetime.now(UTC) + self.ahead  # noqa: TID251 - the machine's clock is the base

    def move(self, onward: timedelta) -> None:
        """Moves the clock of all parts on, at once."""
        assert isinstance(self.parts, NativeStack)
        self.ahead += onward
        self.parts.shift(f"+{int(self.ahead.total_seconds())}s")

    def move_to(self, instant: datetime) -> None:
        """Moves the clock of all parts on to an instant."""
        self.move(instant - self.now)

    def settle_by_sums(self) -> None:
        """What is in doubt is settled by Stripe's sums, once two readings a day apart agree."""
        for why in ("a request may be in flight", "a sum seen once may grow"):
            early = self.tailrace("reconcile", "--yes", "--reason", why)
            assert "0 findings" in early.stdout, early.stdout + early.stderr
            self.move(timedelta(hours=26))
        settled = self.tailrace("reconcile", "--yes", "--reason", "the sums stood still for a day")
        assert settled.returncode == 0, settled.stdout + settled.stderr


@contextmanager
def shifted_stack(directory: Path) -> Iterator[ShiftedStack]:
    """A fresh stack on the machine's time so far, without workers; nothing is left at the end."""
    with open_stack(directory, os.environ, shift_clock=True) as parts:
        stack = ShiftedStack(parts)
        try:
            yield stack
        finally:
            stack.stop_workers()
