"""Workers of the product beside a `Stack`, started and stopped as often as a measure likes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import requests

from sandbox.ports import free_ports
from tests.bench import process_tree
from tests.bench.contenders import Tailrace
from tests.bench.stack import ROOT, BenchError, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.contender import Command, Heat
    from tests.bench.oracle import Tally
    from tests.bench.process_tree import Usage

STOP_S: Final = 30.0
READY_S: Final = 120.0
POLL_S: Final = 0.01


@dataclass(slots=True)
class Worker:
    """One process."""

    child: subprocess.Popen[bytes]
    url: str
    log: Path
    began_s: float

    @property
    def usage(self) -> Usage:
        """CPU and memory so far."""
        return process_tree.usage(self.child.pid)

    @property
    def ready(self) -> bool:
        """Whether it serves.

        Raises:
            BenchError: it has ended by itself.
        """
        if self.child.poll() is not None:
            raise BenchError(f"a worker ended with {self.child.returncode}; see {self.log}")
        try:
            return requests.get(f"{self.url}/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    def metrics(self) -> dict[str, float]:
        """Its figures, by name with labels."""
        text = requests.get(f"{self.url}/metrics", timeout=10).text
        lines = [line.rpartition(" ") for line in text.splitlines() if line[:1] != "#"]
        return {name: float(value) for name, _, value in lines}

    def owned(self) -> int:
        """Partitions whose state it has open."""
        return sum("usage_partition_applied_offset" in name for name in self.metrics())


class Crew(Tailrace):
    """Workers of one group on one ledger."""

    def __init__(self, heat: Heat) -> None:
        super().__init__(heat)
        self.workers: list[Worker] = []
        self._command: Command | None = None
        self._judged: Counter[str] = Counter()

    @property
    def environment(self) -> dict[str, str]:
        """Settings that all workers share; what else is started with them meets the same ledger."""
        return self._prepared().env

    def _prepared(self) -> Command:
        if self._command is None:
            self._command = self.prepare()
        return self._command

    def start(self, number: int) -> Worker:
        """Starts a worker, which has the data directory of its number; does not wait for it."""
        command = self._prepared()
        folder = self.heat.folder / f"worker-{number}"
        folder.mkdir(exist_ok=True)
        port = free_ports(1)[0]
        env = {
            **command.env,
            "TAILRACE_DATA_DIR": str(folder / "data"),
            "TAILRACE_METRICS_PORT": str(port),
        }
        log = folder / "process.log"
        with log.open("ab") as file:
            began_s = time.monotonic()
            child = subprocess.Popen(
                command.argv, env=env, cwd=ROOT, stdout=file, stderr=file,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        worker = Worker(child, f"http://127.0.0.1:{port}", log, began_s)
        self.workers.append(worker)
        return worker

    def serve(self, count: int, partitions: int) -> None:
        """Starts so many workers and waits until each has its share of the partitions."""
        for number in range(count):
            self.start(number)
        shares = {partitions // count, -(-partitions // count)}
        wait_for(
            f"{count} workers to share {partitions} partitions",
            lambda: (
                all(w.ready for w in self.workers)
                and sum(owned := [w.owned() for w in self.workers]) == partitions
                and set(owned) <= shares
            ),
            READY_S,
        )

    def stop(self, worker: Worker) -> None:
        """Ends a worker in order, keeping what it counted."""
        self._judged.update(_judged(worker))
        self._end(worker)

    def stop_all(self) -> None:
        """Ends what still runs, whatever it counted."""
        for worker in list(self.workers):
            self._end(worker)

    def await_done(self, expected: Tally, deadline_s: float) -> None:
        """Waits until the ledger holds the facts of every record."""
        wait_for("the workers to finish", lambda: self.finished(expected), deadline_s)

    def tell(self) -> Tally:
        """As of one worker, with the records that each of all of them judged in its lives."""
        self._metrics = f"{self.workers[0].url}/metrics"
        tally = super().tell()
        judged = Counter(self._judged)
        for worker in self.workers:
            judged.update(_judged(worker))
        tally.records, tally.duplicates = judged["records"], judged["duplicates"]
        return tally

    def _end(self, worker: Worker) -> None:
        self.workers.remove(worker)
        if worker.child.poll() is None:
            worker.child.send_signal(signal.SIGTERM)
        try:
            worker.child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            worker.child.kill()
            worker.child.wait()


def _judged(worker: Worker) -> Counter[str]:
    metrics = worker.metrics()
    return Counter(
        {
            "records": int(metrics.get("usage_records_total", 0)),
            "duplicates": int(metrics.get('usage_verdicts_total{verdict="duplicate"}', 0)),
        }
    )
