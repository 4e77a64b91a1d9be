"""A real stack for tests, with workers that the test starts and kills itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.stripe_sandbox.client import StandIn
from tests.support.stack import Stack, open_stack
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True)
class LiveWorker:
    """One worker process of a test."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    log: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def await_death(self, deadline_s: float = 60) -> int:
        """The return code, once it has died by itself."""
        until(lambda: f"death of {self.log.name}", lambda: not self.alive, deadline_s)
        return int(self.process.returncode)


@dataclass(slots=True)
class LiveStack:
    """A running stack and the workers that a test runs beside it."""

    parts: Stack
    workers: list[LiveWorker] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        return self.parts.directory

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.parts.facts

    @property
    def stand_in(self) -> StandIn:
        """Stripe, as far as this stack is concerned."""
        return StandIn(self.facts["stripe_url"])

    def start_worker(self, name: str, *, crash_at: str = "", **settings: object) -> LiveWorker:
        """A worker with the data directory of that name, which it keeps over restarts.

        Args:
            name: of its directory and its log.
            crash_at: the step of the chunk protocol at which it kills itself.
            settings: others than the stack's own, by their names in `Settings`.
        """
        data_dir = self.directory / "test-workers" / name
        data_dir.mkdir(parents=True, exist_ok=True)
        log = self.directory / "logs" / f"test-{name}.log"
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TAILRACE_")},
            **self.facts["settings"],
            "TAILRACE_DATA_DIR": str(data_dir),
            "TAILRACE_METRICS_PORT": "0",
            "TAILRACE_CRASH_AT": crash_at,
            **{f"TAILRACE_{name.upper()}": str(value) for name, value in settings.items()},
        }
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "streams.cli.main", "worker"],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        worker = LiveWorker(process, data_dir, log)
        self.workers.append(worker)
        return worker

    def stop_workers(self) -> None:
        for worker in self.workers:
            if worker.alive:
                worker.stop()
        self.workers.clear()

    def kill_part(self, part: str) -> int:
        """SIGKILL to a part of the stack, which is started again; its process id until now."""
        pid = int(self.facts["pids"][part])
        self.parts.kill(part, signal.SIGKILL)
        return pid

    def await_restart(self, part: str, old_pid: int, deadline_s: float = 60) -> None:
        def back() -> bool:
            facts = self.facts
            fresh = facts["pids"][part] not in {None, old_pid}
            return bool(fresh and facts["parts"][part]["state"] == "ready")

        until(lambda: f"{part} to come back", back, deadline_s)

    def tailrace(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "streams.cli.main", *arguments, "--dir", str(self.directory)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )


@contextmanager
def live_stack(directory: Path) -> Iterator[LiveStack]:
    """A fresh stack of the chosen provider, without workers; nothing is left at the end."""
    with open_stack(directory, os.environ) as parts:
        stack = LiveStack(parts)
        try:
            yield stack
        finally:
            stack.stop_workers()
