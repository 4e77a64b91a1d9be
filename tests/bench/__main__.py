"""`python -m tests.bench [NAME ...]`: the contenders against each other, round by round.

Starts a sandbox of its own, writes the workload, lets the contenders run one after the other, three
rounds, and stops everything. Writes build/bench/summary.json and summary.md. Exit code 0 if every
contender was exact, 1 otherwise: a goal that is not met is reported, and is no error.

`python -m tests.bench measures`: what the race does not measure, each also alone by its name:
`state`, `recovery`, `drain`, `facts`, `latency`, `scaling`; `python -m tests.bench NAME --help`.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streams import topics
from tests.bench import report
from tests.bench.contender import Heat
from tests.bench.contenders import CONTENDERS, NaiveFaust
from tests.bench.measures import COMMANDS
from tests.bench.oracle import Tally, tally
from tests.bench.race import Figures, heat
from tests.bench.stack import BenchError, Stack, running
from tests.bench.summary import FOLDER
from tests.bench.workload import Message, Shape, messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SMALL: Final = "bench.small"
DEADLINE_S: Final = 240.0


def main() -> int:
    """The whole benchmark."""
    asked = _arguments()
    began_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="tailrace-bench-"))
    try:
        with running(folder / "sandbox", keep=asked.keep) as stack:
            _say(f"stack ready after {time.monotonic() - began_s:.0f} s")
            rounds, facts = _race(stack, folder, asked)
    except BenchError as error:
        _say(f"bench: {error}\nkept: {folder}")
        return 1
    facts["took"] = f"{time.monotonic() - began_s:.0f} s in all"
    _say(report.write(asked.out, rounds, facts))
    wrong = report.disqualified(rounds)
    if asked.keep or wrong:
        _say(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return int(bool(wrong))


def _stop(_number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)


def _race(
    stack: Stack, folder: Path, asked: argparse.Namespace
) -> tuple[list[dict[str, Figures]], dict[str, str]]:
    names = asked.names or list(CONTENDERS)
    sources = {name: SMALL if CONTENDERS[name] is NaiveFaust else topics.EVENTS for name in names}
    sizes = {topics.EVENTS: asked.events, SMALL: asked.small}
    expected = {
        source: _write(stack, source, Shape(sizes[source], seed=asked.seed))
        for source in sorted(set(sources.values()))
    }
    rounds: list[dict[str, Figures]] = []
    for number in range(1, asked.runs + 1):
        rounds.append({})
        for name in names:
            own = folder / f"{number}-{name}"
            own.mkdir()
            contender = CONTENDERS[name](
                Heat(stack, sources[name], own, number, profile=asked.profile)
            )
            figures = heat(contender, expected[sources[name]], DEADLINE_S)
            rounds[-1][name] = figures
            _say(_line(number, figures))
    facts = {
        "workload": f"{asked.events:,} events ({asked.small:,} for {NaiveFaust.name}), seed "
        f"{asked.seed}, 5,000 Zipf tenants, 5 % copies, 1 % late, 0.1 % malformed, 12 partitions",
        "measured": "CPU of the process tree from its start until the job was done; no broker, no "
        "database",
        "machine": f"{os.cpu_count()} CPUs, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the end",
        **{name: CONTENDERS[name].says for name in names},
    }
    return rounds, facts


def _write(stack: Stack, source: str, shape: Shape) -> Tally:
    """Puts a workload into a topic; what must come of it."""
    began_s = time.monotonic()
    stack.renew(source)
    values: list[bytes] = []

    def kept() -> Iterator[Message]:
        for message in messages(shape):
            values.append(message.value)
            yield message

    stack.produce(source, kept())
    expected = tally(values)
    _say(
        f"{source}: {expected.records:,} records, of them {expected.accepted:,} to accept, "
        f"{expected.duplicates:,} copies, {expected.late:,} late, {expected.malformed:,} "
        f"malformed; {len(expected.totals):,} totals ({time.monotonic() - began_s:.0f} s)"
    )
    return expected


def _line(number: int, figures: Figures) -> str:
    if figures.wrong:
        return f"round {number}  {figures.name:<12} DNF: {'; '.join(figures.wrong)}"
    return (
        f"round {number}  {figures.name:<12} {figures.rate:>9,.0f} events/CPU-s  running "
        f"{figures.rate_running:>9,.0f}  CPU {figures.cpu_s:6.1f} s  wall {figures.wall_s:6.1f} s"
        f"  RSS {figures.rss_peak_mb:4.0f} MB  exact"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", choices=[*CONTENDERS, []], metavar="NAME", help=", ".join(CONTENDERS))
    # Some twenty CPU seconds for either of the two that are compared: with as many events for both,
    # a start of a second would be nothing to the one and a fifth to the other.
    add("--events", type=int, default=500_000, help="events for all but naive Faust")
    add("--small", type=int, default=20_000, help="events for naive Faust")
    add("--runs", type=int, default=3, help="rounds")
    add("--seed", type=int, default=1, help="of the workload")
    add("--keep", action="store_true", help="keep the sandbox's data and the logs")
    add("--profile", action="store_true", help="with --keep: worker.pstats of the product's worker")
    add("--out", type=Path, default=FOLDER, help="where the summary goes")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # Also when it is told to end, a sandbox and what runs beside it are stopped on the way out.
    signal.signal(signal.SIGTERM, _stop)
    if (named := "".join(sys.argv[1:2])) in COMMANDS:
        sys.exit(COMMANDS[named](sys.argv[2:]))
    sys.exit(main())
