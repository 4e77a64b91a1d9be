"""`python -m tests.bench scaling`: what a worker is worth when there are two, three, four of them.

The workers share the partitions before there is anything to read: the whole workload then appears
at once, as one transaction. CPU is that of all workers together from then on until the ledger holds
the facts of every record, so the start of a worker is not in it, and waiting for the slowest is.
Exit code 1 if a total is wrong.

What a single worker has judged is then replayed, dry, by `tailrace replay`: the rate of that is
held against the worker's of the same minute.

On a machine of two cores, workers, broker and database share what one worker had nearly alone. What
that alone costs is shown by a control: a process that only counts, beside as many others of itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer

from streams import topics
from tests.bench.contender import Heat
from tests.bench.crew import Crew
from tests.bench.oracle import Tally, differences, tally
from tests.bench.output import say
from tests.bench.replayed import Replay, replay
from tests.bench.stack import PARTITIONS, BenchError, Stack, running
from tests.bench.summary import FOLDER, Goal, put_sizes, spread, tell
from tests.bench.workload import Message, Shape, messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GOAL_SHARE: Final = 0.9
GOAL_REPLAY: Final = 0.8
DONE_S: Final = 300.0
WORKERS: Final = (1, 2, 3, 4)
CONTROL: Final = """
import time
numbers = {}
for n in range(3_000_000):
    numbers[n * 7919 % 500_009] = n
print(time.process_time())
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of so many workers."""

    workers: int
    events: int
    cpu_s: tuple[float, ...]
    """Of each worker, from when there was something to read."""
    wall_s: float
    wrong: tuple[str, ...]
    replay: Replay | None = None
    """Of what a single worker judged, once that worker was gone."""

    @property
    def rate(self) -> float:
        """Events per CPU-second of all workers together."""
        return self.events / sum(self.cpu_s)

    def line(self) -> str:
        """For a person."""
        each = " ".join(f"{s:.1f}" for s in self.cpu_s)
        return (
            f"scaling  {self.workers} worker(s)  {self.rate:9,.0f} events/CPU-s  CPU {each} s  "
            f"wall {self.wall_s:.1f} s  {'; '.join(self.wrong) or 'exact'}"
        )


def run(
    stack: Stack, folder: Path, workers: int, heat: int, kept: Sequence[Message], expected: Tally
) -> Run:
    """One run, from an empty topic."""
    folder.mkdir()
    stack.renew(topics.EVENTS)
    crew = Crew(Heat(stack, topics.EVENTS, folder, heat))
    try:
        crew.serve(workers, PARTITIONS)
        producer = _hidden(stack, kept)
        before_s = [worker.usage.cpu_s for worker in crew.workers]
        producer.commit_transaction(60)
        began_s = time.monotonic()
        crew.await_done(expected, DONE_S)
        wall_s = time.monotonic() - began_s
        cpu_s = tuple(
            worker.usage.cpu_s - before
            for worker, before in zip(crew.workers, before_s, strict=True)
        )
        wrong = tuple(differences(expected, crew.tell()))
        crew.stop_all()
        again = replay(stack, crew.environment, folder, expected) if workers == 1 else None
    finally:
        crew.stop_all()
        crew.clean()
    return Run(workers, expected.records, cpu_s, wall_s, wrong, again)


def _hidden(stack: Stack, kept: Sequence[Message]) -> Producer:
    """A producer with everything written and nothing committed: no worker sees any of it yet."""
    producer = Producer(
        {
            "bootstrap.servers": stack.bootstrap,
            "transactional.id": "bench-scaling",
            "transaction.timeout.ms": 120_000,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "queue.buffering.max.messages": len(kept) + 1,
            "queue.buffering.max.kbytes": 1 << 21,
            "log_level": 3,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for message in kept:
        producer.produce(topics.EVENTS, message.value, message.key, headers=list(message.headers))
    if left := producer.flush(60):
        raise BenchError(f"{topics.EVENTS}: {left} records were not taken in time")
    return producer


def control(processes: int) -> float:
    """CPU seconds that a process needs for the same work beside so many less one like it."""
    argv = (sys.executable, "-c", CONTROL)
    children = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    said = [child.communicate()[0] for child in children]
    return median(map(float, said))


def goals(runs: Sequence[Run], control_s: Mapping[int, float]) -> dict[str, Goal]:
    """The goal: each number of workers by its median, against one worker in the same round."""
    alone = [r.rate for r in runs if r.workers == 1]
    shares = {
        count: [
            r.rate / one
            for r, one in zip((r for r in runs if r.workers == count), alone, strict=True)
        ]
        for count in dict.fromkeys(r.workers for r in runs)
        if count > 1
    }
    exact = not any(r.wrong for r in runs)
    met = exact and all(median(each) >= GOAL_SHARE for each in shares.values())
    figure = ", ".join(f"{count}: {spread(each, '')}" for count, each in shares.items())
    beside = ", ".join(
        f"{control_s[1] / seconds:.2f} beside {count - 1}"
        for count, seconds in control_s.items()
        if count > 1
    )
    return {
        "P8": Goal(
            f"2, 3, 4 workers: >= {GOAL_SHARE} of the single worker's events per CPU-second each",
            f"{figure} (one: {median(alone):,.0f} events/CPU-s)",
            met=met,
            why=f"{os.cpu_count()} CPUs; a process that only counts keeps {beside} of itself",
        ),
        "P8_replay": _replayed(runs),
    }


def _replayed(runs: Sequence[Run]) -> Goal:
    """Each replay against the worker whose records it read again."""
    pairs = [(r, r.replay) for r in runs if r.replay is not None]
    shares = [again.rate / r.rate for r, again in pairs]
    wrong = [line for _, again in pairs for line in again.wrong]
    calls = sum(again.calls for _, again in pairs)
    exact = not wrong and not any(r.wrong for r, _ in pairs)
    met = exact and bool(shares) and median(shares) >= GOAL_REPLAY
    why = "" if met else "CPU of its start and imports is in the replay's, not in the worker's"
    return Goal(
        f"dry replay of a whole topic >= {GOAL_REPLAY}x the fresh rate with 0 Stripe calls",
        f"{spread(shares, 'x') if exact else 'DNF'} in records per CPU-second, {calls} calls",
        met=met,
        why="; ".join([*wrong, why]).strip("; "),
    )


def main(arguments: Sequence[str]) -> int:
    """All runs."""
    asked = _arguments(arguments)
    kept = list(messages(Shape(asked.events)))
    expected = tally([message.value for message in kept])
    folder = Path(tempfile.mkdtemp(prefix="tailrace-scaling-"))
    runs: list[Run] = []
    try:
        with running(folder / "sandbox", keep=False) as stack:
            for number in range(asked.runs):
                for workers in WORKERS:
                    heat = number * len(WORKERS) + workers
                    own = folder / f"run-{heat}"
                    runs.append(run(stack, own, workers, heat, kept, expected))
                    say(runs[-1].line())
                    if (again := runs[-1].replay) is not None:
                        say(again.line())
    except BenchError as error:
        say(f"scaling: {error}\nkept: {folder}")
        return 1
    shutil.rmtree(folder)
    reached = goals(runs, {count: control(count) for count in WORKERS})
    replays = [r.replay.rate for r in runs if r.replay is not None]
    put_sizes({"replay_per_cpu_s": median(replays)}, asked.out)
    tell(reached, asked.out)
    return int(any(r.wrong or (r.replay is not None and r.replay.wrong) for r in runs))


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench scaling", description=__doc__)
    add = parser.add_argument
    add("--events", type=int, default=300_000, help="records")
    add("--runs", type=int, default=2, help="rounds")
    add("--out", type=Path, default=FOLDER, help="where the summary goes")
    return parser.parse_args(arguments)
