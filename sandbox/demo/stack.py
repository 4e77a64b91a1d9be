"""The demo's own stack: started for it, asked while it runs, stopped with it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sandbox.stripe_sandbox.client import StandIn

POLL_S = 0.1


class DemoError(Exception):
    """The demo cannot go on; the text says what was waited for and where to look."""


@dataclass(frozen=True, slots=True)
class DemoStack:
    """A running sandbox, by its directory."""

    directory: Path

    def facts(self) -> Mapping[str, Any]:
        """`sandbox.json` as it is now: process ids change when parts restart."""
        return msgspec.json.decode((self.directory / "sandbox.json").read_bytes(), type=dict)

    def worker_pid(self) -> int:
        """The worker's process id now."""
        return int(self.facts()["pids"]["workers"][0]["pid"])

    def kill_worker(self) -> int:
        """SIGKILL, as a machine that loses power would."""
        pid = self.worker_pid()
        os.kill(pid, signal.SIGKILL)
        return pid

    @property
    def stand_in(self) -> StandIn:
        """Stripe, as far as this stack is concerned."""
        return StandIn(self.facts()["stripe_url"])

    def tailrace(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the product against this stack."""
        return subprocess.run(
            [sys.executable, "-m", "streams.cli.main", *arguments, "--dir", str(self.directory)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


def sandbox(*arguments: str, directory: Path) -> int:
    """Runs `tailrace sandbox …`, its lines shown as they come.

    Ctrl-C reaches it too, so it is waited for: it stops what it has started.
    """
    command = [sys.executable, "-m", "sandbox", *arguments, "--dir", str(directory)]
    with subprocess.Popen(command) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.wait()
            raise


def wait_for(what: str, deadline_s: float, condition: Callable[[], bool]) -> None:
    """Waits for a condition.

    Raises:
        DemoError: it did not come true in time.
    """
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            message = f"waited {deadline_s:.0f} s for {what}; the logs are in the demo's directory"
            raise DemoError(message)
        time.sleep(POLL_S)
