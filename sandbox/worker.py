"""The worker as a part: addresses of the stack → one `tailrace worker` with its own data."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.ports import LOOPBACK
from sandbox.process import Command
from sandbox.stripe import ROOT, answers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker of the sandbox."""

    number: int
    data: Path
    metrics_port: int
    settings: Callable[[], Mapping[str, str]]
    """TAILRACE_* that all workers share, as they are when it starts."""
    env: Mapping[str, str]

    @property
    def metrics_url(self) -> str:
        """Base address of /ready, /health and /metrics."""
        return f"http://{LOOPBACK}:{self.metrics_port}"

    def prepare(self) -> None:
        """Makes the data directory."""
        self.data.mkdir(parents=True, exist_ok=True)

    def command(self) -> Command:
        """The worker in the foreground."""
        env = {
            **self.env,
            **self.settings(),
            "TAILRACE_DATA_DIR": str(self.data),
            "TAILRACE_METRICS_PORT": str(self.metrics_port),
        }
        return Command((sys.executable, "-m", "streams.cli.main", "worker"), env, ROOT)

    def ready(self) -> str | None:
        """The address once the worker says it is ready, or None."""
        return f"metrics {self.metrics_url}" if answers(f"{self.metrics_url}/ready") else None
