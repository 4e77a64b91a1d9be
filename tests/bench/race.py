"""One heat: start a contender, sample it until the job is done, stop it, hold it to the oracle."""

from __future__ import annotations

import signal
import subprocess
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
class Half:
    """A moment within a heat."""

    cpu_s: float
    wall_s: float
    share: float
    """Of the outputs that stood there."""


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
    half: Half | None = None
    """Where it stood when the first half of its outputs was there."""
    state_bytes: int = 0
    """On disk, after it was ended in order."""
    ids: int = 0
    """Identities that the state has to know."""
    threads: dict[str, float] = field(default_factory=dict)
    """CPU seconds by name of thread, of the process itself."""

    @property
    def rate(self) -> float:
        """Events per CPU-second, start included."""
        return self.events / self.cpu_s if self.cpu_s else 0.0

    @property
    def rate_warm(self) -> float:
        """Events per CPU-second in the second half, when compilers have compiled."""
        if self.half is None or self.cpu_s <= self.half.cpu_s:
            return 0.0
        return self.events * (1 - self.half.share) / (self.cpu_s - self.half.cpu_s)

    @property
    def pace_warm(self) -> float:
        """Events per second of wall time in the second half."""
        if self.half is None or self.wall_s <= self.half.wall_s:
            return 0.0
        return self.events * (1 - self.half.share) / (self.wall_s - self.half.wall_s)

    @property
    def state_per_id(self) -> float:
        """Bytes on disk for each identity, with totals and whatever else a normal stop leaves."""
        return self.state_bytes / self.ids if self.ids else 0.0


def heat(contender: Contender, expected: Tally, deadline_s: float) -> Figures:
    """Runs one contender to the end of the source topic; its process is ended in any case."""
    command = contender.prepare()
    if contender.module is not None:
        # What fails here fails again below, with a log.
        warm_up = (*contender.heat.launcher, "-c", f"import {contender.module}")
        subprocess.run(warm_up, env=command.env, cwd=ROOT, check=False, capture_output=True)
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
    state_bytes = sum(f.stat().st_size for f in contender.heat.data.rglob("*") if f.is_file())
    ids = expected.accepted + expected.late
    return replace(measured, wrong=wrong, state_bytes=state_bytes, ids=ids)


def _measure(
    contender: Contender, child: subprocess.Popen[bytes], expected: Tally, deadline_s: float
) -> Figures:
    began_s = time.monotonic()
    outputs = contender.stack.watcher(contender.outputs())
    half: Half | None = None
    while True:
        if half is None and 2 * (count := outputs()) >= expected.outputs:
            cpu_s = process_tree.usage(child.pid).cpu_s
            half = Half(cpu_s, time.monotonic() - began_s, count / expected.outputs)
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
    return Figures(
        name=contender.name,
        events=expected.records,
        wrong=(),
        cpu_s=used.cpu_s,
        wall_s=wall_s,
        rss_peak_mb=used.rss_peak_mb,
        half=half,
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
