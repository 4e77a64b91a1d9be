"""One heat: start a contender, sample it until the job is done, stop it, hold it to the oracle."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tests.bench import process_tree
from tests.bench.oracle import Tally, differences
from tests.bench.stack import ROOT, BenchError

if TYPE_CHECKING:
    from tests.bench.contender import Contender

_SAMPLE_S: Final = 0.05
_STOP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One heat, measured."""

    name: str
    events: int
    wrong: tuple[str, ...]
    """Why it is disqualified; empty when it was exact."""
    cpu_s: float = 0.0
    """Of the whole process tree from its start until the job was done."""
    wall_s: float = 0.0
    rss_peak_mb: float = 0.0
    started_cpu_s: float = 0.0
    """Of that, until its first output was seen."""
    started_share: float = 0.0
    """Share of the outputs that stood there by then."""
    threads: dict[str, float] = field(default_factory=dict)
    """CPU seconds by name of thread, of the process itself."""

    @property
    def rate(self) -> float:
        """Events per CPU-second, start included."""
        return self.events / self.cpu_s if self.cpu_s else 0.0

    @property
    def rate_running(self) -> float:
        """Events per CPU-second from the first output on."""
        cpu_s = self.cpu_s - self.started_cpu_s
        return self.events * (1 - self.started_share) / cpu_s if cpu_s > 0 else 0.0


def heat(contender: Contender, expected: Tally, deadline_s: float) -> Figures:
    """Runs one contender to the end of the source topic; its process is ended in any case."""
    command = contender.prepare()
    warm_up = (sys.executable, "-c", f"import {contender.module}")
    subprocess.run(warm_up, env=command.env, cwd=ROOT, check=True)
    log = contender.heat.folder / "process.log"
    with log.open("wb") as file:
        child = subprocess.Popen(
            command.argv,
            env=command.env,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        measured = _measure(contender, child, expected, deadline_s)
        found = contender.tell()
        wrong = tuple(differences(expected, found))
    except BenchError as error:
        return Figures(contender.name, expected.records, (f"{error}; see {log}",))
    finally:
        _end(child)
        contender.clean()
    return replace(measured, wrong=wrong)


def _measure(
    contender: Contender, child: subprocess.Popen[bytes], expected: Tally, deadline_s: float
) -> Figures:
    began_s = time.monotonic()
    outputs = contender.stack.watcher(contender.outputs())
    started: tuple[float, float] | None = None
    while True:
        if started is None and (count := outputs()):
            started = (process_tree.usage(child.pid).cpu_s, count / expected.outputs)
        if contender.finished(expected):
            break
        wall_s = time.monotonic() - began_s
        if child.poll() is not None:
            raise BenchError(f"{contender.name} ended by itself with {child.returncode}")
        if wall_s > deadline_s:
            raise BenchError(
                f"{contender.name} was not done after {deadline_s:.0f} s: {outputs()} of "
                f"{expected.outputs} outputs"
            )
        time.sleep(_SAMPLE_S)
    used = process_tree.usage(child.pid)
    wall_s = time.monotonic() - began_s
    started_cpu_s, started_share = started or (0.0, 0.0)
    return Figures(
        name=contender.name,
        events=expected.records,
        wrong=(),
        cpu_s=used.cpu_s,
        wall_s=wall_s,
        rss_peak_mb=used.rss_peak_mb,
        started_cpu_s=started_cpu_s,
        started_share=started_share,
        threads=process_tree.threads(child.pid),
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the process this heat started, and nothing else."""
    if child.stdin is not None:
        child.stdin.close()
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
