"""A real stack for tests, with workers that the test starts and kills itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sandbox import clock
from sandbox.paths import Paths
from sandbox.stripe_sandbox.client import StandIn
from tests.support import witness
from tests.support.stack import Stack, open_stack
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
MAIN = "streams.cli.main"


class WatchedStandIn(StandIn):
    """A stand-in whose orders a drill's report tells of."""

    def arm(self, **fault: object) -> Mapping[str, Any]:
        words = ", ".join(f"{name} {value}" for name, value in fault.items())
        witness.did(f"Stripe from now on: {words}")
        return super().arm(**fault)

    def clear_faults(self) -> None:
        struck = ", ".join(f"{kind} {number} times" for kind, number in self.strikes())
        witness.did(f"Stripe is well again{f' after {struck}' if struck else ''}")
        super().clear_faults()

    def strikes(self) -> list[tuple[str, int]]:
        """Of each fault that is ordered now its kind, and how many requests it has struck.

        Raises:
            requests.RequestException: nobody answers.
        """
        return [(str(fault["kind"]), int(fault["struck"])) for fault in self.faults()]

    def assert_all_struck(self) -> None:
        """Else a fault has passed by, and the drill shows nothing of it."""
        struck = self.strikes()
        assert struck, "no fault is ordered"
        assert all(number for _, number in struck), f"a fault met no request: {struck}"

    def change_settings(self, **changes: object) -> None:
        witness.did(f"Stripe from now on: {changes}")
        super().change_settings(**changes)


@dataclass(slots=True)
class LiveWorker:
    """One worker process of a test."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    log: Path
    log_began_bytes: int = 0
    """How long the log was when it started: what others of its name said before is not its own."""

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def suspended(self) -> bool:
        """Whether SIGSTOP holds it."""
        if not self.alive:
            return False
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] == "T"

    @property
    def name(self) -> str:
        return self.log.stem.removeprefix("test-")

    def signal(self, number: signal.Signals) -> None:
        witness.did(f"{number.name} to worker {self.name}")
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(30)

    def ends_within(self, deadline_s: float) -> bool:
        try:
            self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def own_log(self) -> bytes:
        """All that it has logged."""
        return self.log.read_bytes()[self.log_began_bytes :]

    def said(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of one event, the oldest first."""
        mark = f'"event": "{event}"'.encode()
        lines = [line for line in self.own_log().splitlines() if mark in line]
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]

    def await_suspension(self, deadline_s: float = 60) -> None:
        """Waits until it has suspended itself."""
        until(lambda: f"suspension of {self.log.name}", lambda: self.suspended, deadline_s)
        witness.did(f"worker {self.name} is suspended")

    def await_death(self, deadline_s: float = 60) -> int:
        """The return code, once it has died by itself."""
        until(lambda: f"death of {self.log.name}", lambda: not self.alive, deadline_s)
        witness.did(f"worker {self.name} died, return code {self.process.returncode}")
        return int(self.process.returncode)


@dataclass(slots=True)
class LiveStack:
    """A running stack and the workers that a test runs beside it."""

    parts: Stack
    workers: list[LiveWorker] = field(default_factory=list)
    owners: dict[str, object] = field(default_factory=dict)
    """Who writes down what of a tenant: two that shared one would judge each other's usage."""
    judges: dict[int, Callable[[], object]] = field(default_factory=dict)
    """By books, how they were judged last: what comes later may change them once more."""
    expected_findings: set[int] = field(default_factory=set)
    """Contradictions in the ledger that a test has provoked on purpose, and accounted for."""

    @property
    def directory(self) -> Path:
        return self.parts.directory

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.parts.facts

    @property
    def stand_in(self) -> WatchedStandIn:
        """Stripe, as far as this stack is concerned."""
        return WatchedStandIn(self.facts["stripe_url"])

    def start_worker(
        self,
        name: str,
        *,
        crash_at: str = "",
        module: str = MAIN,
        clock_file: Path | None = None,
        **settings: object,
    ) -> LiveWorker:
        """A worker with the data directory of that name, which it keeps over restarts.

        Args:
            name: of its directory and its log.
            crash_at: the step at which it is struck, as its setting has it.
            module: what is run, where it is not the worker as it is.
            clock_file: of a clock of its own, where the stack's clock can be shifted.
            settings: others than the stack's own, by their names in `Settings`.
        """
        data_dir = self.directory / "test-workers" / name
        data_dir.mkdir(parents=True, exist_ok=True)
        log = self.directory / "logs" / f"test-{name}.log"
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TAILRACE_")},
            **self._clock(clock_file),
            **self.facts["settings"],
            "TAILRACE_DATA_DIR": str(data_dir),
            "TAILRACE_METRICS_PORT": "0",
            "TAILRACE_CRASH_AT": crash_at,
            **{f"TAILRACE_{name.upper()}": str(value) for name, value in settings.items()},
        }
        with log.open("ab") as output:
            began_bytes = output.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", module, "worker"],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        worker = LiveWorker(process, data_dir, log, began_bytes)
        how = {**({"crash_at": crash_at} if crash_at else {}), **settings}
        witness.did(f"worker {worker.name} started{f' with {how}' if how else ''}")
        self.workers.append(worker)
        return worker

    def _clock(self, own: Path | None) -> dict[str, str]:
        """What a worker needs to follow the clock of a stack that has one of its own."""
        paths = Paths(self.directory)
        if clock.read_offset(paths.clock) is None:
            return {}
        library = str(paths.dir / clock.LIBRARY)
        return {"LD_PRELOAD": library, "SHIFT_CLOCK_FILE": str(own or paths.clock)}

    def stop_workers(self) -> None:
        """Stops those that live, all at once; none is left, and one that does not stop is named.

        Raises:
            AssertionError: one had to be killed.
        """
        living = [worker for worker in self.workers if worker.alive]
        self.workers.clear()
        for worker in living:
            worker.signal(signal.SIGCONT)
            worker.signal(signal.SIGTERM)
        stubborn = [worker for worker in living if not worker.ends_within(30)]
        for worker in stubborn:
            worker.kill()
        assert not stubborn, f"SIGTERM did not end {', '.join(w.name for w in stubborn)}"

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
        witness.did(f"{part} is back")

    def tailrace(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "streams.cli.main", *arguments, "--dir", str(self.directory)],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        last = done.stdout.strip().rpartition("\n")[2]
        witness.did(f"tailrace {' '.join(arguments)}: exit code {done.returncode}, {last}")
        return done


@contextmanager
def live_stack(directory: Path) -> Iterator[LiveStack]:
    """A fresh stack of the chosen provider, without workers; nothing is left at the end."""
    with open_stack(directory, os.environ) as parts:
        stack = LiveStack(parts)
        try:
            yield stack
        finally:
            stack.stop_workers()
