"""`python -m tests.bench recovery`: how long until a worker serves, with and without its disk.

A worker judges the workload and is stopped. Then it starts again with its disk, and again with an
empty one, so that all it knows comes from the packed log. At the end it is given copies of earlier
records and fresh ones: what it had forgotten would count twice. Exit code 1 if a total is wrong.
Time is from the start of the process until it serves, less what Faust alone takes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from streams import topics
from tests.bench import process_tree
from tests.bench.contender import Heat
from tests.bench.crew import POLL_S, READY_S, STOP_S, Crew
from tests.bench.hottest import shares
from tests.bench.oracle import Tally, differences, tally
from tests.bench.output import say
from tests.bench.stack import PARTITIONS, ROOT, BenchError, Stack, running
from tests.bench.summary import FOLDER, Goal, put_sizes, spread, tell
from tests.bench.workload import Message, Shape, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

GOAL_COLD_S: Final = 4.0
GOAL_WARM_S: Final = 1.0
MILLION: Final = 1_000_000
DONE_S: Final = 600.0
AGAIN: Final = 2_000
"""Records after the last recovery: half of them copies."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a worker, from its process until it served."""

    seconds: float
    cpu_s: float
    rss_mb: float
    threads: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds by name of thread."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """All starts, and what came of them."""

    ids: int
    faust_s: tuple[float, ...]
    warm: tuple[Start, ...]
    cold: tuple[Start, ...]
    log_bytes: int
    """Of the packed log on the broker's disk."""
    wrong: tuple[str, ...]

    def beyond(self, starts: Sequence[Start]) -> list[float]:
        """Seconds beyond what Faust alone takes."""
        faust_s = median(self.faust_s)
        return [start.seconds - faust_s for start in starts]


def recover(stack: Stack, folder: Path, events: int, runs: int) -> Recovered:
    """The whole story of one worker."""
    values, copies, fresh = _written(stack, events)
    say(f"recovery  {events:,} records are in the topic")
    crew = Crew(Heat(stack, topics.EVENTS, folder, 1))
    try:
        worker = crew.start(0)
        crew.await_done(Tally(records=events), DONE_S)
        crew.stop(worker)
        log_bytes = _bytes_on_disk(stack, topics.ADMIT_LOG)
        warm = [_started(crew, "warm") for _ in range(runs)]
        cold = [
            _started(crew, "cold", empty=True, stay=number == runs - 1) for number in range(runs)
        ]
        stack.produce(topics.EVENTS, copies + fresh)
        expected = tally(values + [message.value for message in copies + fresh])
        crew.await_done(expected, DONE_S)
        wrong = tuple(differences(expected, crew.tell()))
    finally:
        crew.stop_all()
        crew.clean()
    env = crew.heat.environment()
    # The first one compiles what it imports.
    faust_s = [_faust(folder / f"faust-{number}", env) for number in range(runs + 1)]
    # The oracle is slow and asked once; of the fresh ones no more than these were added since.
    ids = expected.accepted + expected.late - len(fresh)
    return Recovered(ids, tuple(faust_s[1:]), tuple(warm), tuple(cold), log_bytes, wrong)


def _written(stack: Stack, events: int) -> tuple[list[bytes], list[Message], list[Message]]:
    """Fills the topic; the values in it, some of its records, and some that are not in it yet."""
    values: list[bytes] = []
    copies: list[Message] = []
    fresh: list[Message] = []

    def shown() -> Iterator[Message]:
        for number, message in enumerate(messages(Shape(events + AGAIN // 2))):
            if number >= events:
                fresh.append(message)
                continue
            values.append(message.value)
            if number % (2 * events // AGAIN) == 0 and not tally([message.value]).malformed:
                copies.append(message)
            yield message

    stack.renew(topics.EVENTS)
    stack.produce(topics.EVENTS, shown())
    return values, copies, fresh


def _bytes_on_disk(stack: Stack, topic: str) -> int:
    """What the broker has written of a topic, as it lies in its segments."""
    return sum(
        segment.stat().st_size
        for folder in stack.directory.rglob(f"{topic}-*")
        if folder.name.removeprefix(f"{topic}-").isdigit()
        for segment in folder.glob("*.log")
    )


def _started(crew: Crew, how: str, *, empty: bool = False, stay: bool = False) -> Start:
    if empty:
        shutil.rmtree(crew.heat.folder / "worker-0" / "data")
    worker = crew.start(0)
    _until(lambda: worker.ready, "the worker to serve", READY_S)
    seconds = time.monotonic() - worker.began_s
    used, threads = worker.usage, process_tree.threads(worker.child.pid)
    if (owned := worker.owned()) != PARTITIONS:
        raise BenchError(f"it serves with {owned} of {PARTITIONS} partitions")
    if not stay:
        crew.stop(worker)
    say(f"recovery  {how}: serves after {seconds:.2f} s, CPU {used.cpu_s:.2f} s, "
        f"RSS {used.rss_peak_mb:.0f} MB")  # fmt: skip
    return Start(seconds, used.cpu_s, used.rss_peak_mb, threads)


def _faust(folder: Path, env: Mapping[str, str]) -> float:
    """Seconds from the start of the process until a bare Faust app runs its task."""
    folder.mkdir()
    started = folder / "started"
    began_s = time.monotonic()
    argv = (sys.executable, "-m", "tests.bench.bare_start", str(started))
    child = subprocess.Popen(argv, env=env, cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        _until(started.exists, "Faust to start", READY_S)
        return time.monotonic() - began_s
    finally:
        child.terminate()
        child.wait(STOP_S)


def _until(condition: Callable[[], bool], what: str, deadline_s: float) -> None:
    """Asks a hundred times a second: what is measured here is told in hundredths."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise BenchError(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(POLL_S)


def goals(found: Recovered) -> dict[str, Goal]:
    """The goals by their medians; a total that is wrong misses both."""
    cold = [s / (found.ids / MILLION) for s in found.beyond(found.cold)]
    warm = found.beyond(found.warm)
    told = f"{found.ids / MILLION:.2f} M ids"
    rss = max(start.rss_mb for start in found.cold)
    cpu = median(start.cpu_s for start in found.cold)
    exact = not found.wrong
    return {
        "P4": Goal(
            f"recovery from the changelog alone <= {GOAL_COLD_S:.0f} s per million ids",
            f"{spread(cold, ' s')} ({told}, CPU {cpu:.1f} s, RSS {rss:.0f} MB)",
            met=(quick := median(cold) <= GOAL_COLD_S) and exact,
            why=_why(found.wrong, found.cold, quick),
        ),
        "P4_warm": Goal(
            f"warm restart <= {GOAL_WARM_S:.0f} s beyond Faust's own start",
            f"{spread(warm, ' s')} ({told}; Faust alone {median(found.faust_s):.2f} s)",
            met=(quick := median(warm) <= GOAL_WARM_S) and exact,
            why=_why(found.wrong, found.warm, quick),
        ),
    }


def _why(wrong: Sequence[str], starts: Sequence[Start], quick: bool) -> str:
    """What was wrong, and by thread where the time of a start that took too long went."""
    return "; ".join([*wrong, *([] if quick else [f"by thread: {shares(starts[-1].threads)}"])])


def sizes(found: Recovered) -> dict[str, float]:
    """What a disk, a restart and a loss are reckoned from."""
    millions = found.ids / MILLION
    return {
        "admit_log_bytes_an_id": found.log_bytes / found.ids,
        "recovery_s_a_million": median(found.beyond(found.cold)) / millions,
        "recovery_rss_mb": max(start.rss_mb for start in found.cold),
        "warm_restart_s": median(start.seconds for start in found.warm),
    }


def main(arguments: Sequence[str]) -> int:
    """The whole measure."""
    asked = _arguments(arguments)
    folder = Path(tempfile.mkdtemp(prefix="tailrace-recovery-"))
    try:
        with running(folder / "sandbox", keep=False) as stack:
            found = recover(stack, folder, asked.events, asked.runs)
    except BenchError as error:
        say(f"recovery: {error}\nkept: {folder}")
        return 1
    shutil.rmtree(folder)
    reached = goals(found)
    put_sizes(sizes(found), asked.out)
    tell(reached, asked.out)
    return int(bool(found.wrong))


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench recovery", description=__doc__)
    add = parser.add_argument
    add("--events", type=int, default=1_100_000, help="records, a twentieth of them copies")
    add("--runs", type=int, default=3, help="starts of each kind")
    add("--out", type=Path, default=FOLDER, help="where the summary goes")
    return parser.parse_args(arguments)
