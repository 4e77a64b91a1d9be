"""`python -m tests.bench [NAME ...]`: the contenders against each other, round by round.

Starts a sandbox of its own, writes the workload, lets the contenders run one after the other, three
rounds, and stops everything. Writes heats.json, summary.md, two plots and its goals in summary.json
into build/bench; a race of some NAMEs alone into build/bench/part. Exit code 0 if every contender
was exact, 1 otherwise: a goal that is not met is reported, and is no error.

`python -m tests.bench measures`: what the race does not measure, each also alone by its name:
`state`, `recovery`, `drain`, `facts`, `latency`, `scaling`; `python -m tests.bench NAME --help`.
`python -m tests.bench goals`: every goal so far, whoever measured it.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streams import topics
from tests.bench import installed, report
from tests.bench.contender import Heat
from tests.bench.contenders import CONTENDERS, PROFILE
from tests.bench.hottest import hottest, shares
from tests.bench.measures import COMMANDS
from tests.bench.oracle import Tally, tally
from tests.bench.race import Figures, heat
from tests.bench.stack import ROOT, BenchError, Stack, running
from tests.bench.summary import FOLDER, load
from tests.bench.workload import Message, Shape, messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

SMALL: Final = "bench.small"
DEADLINE_S: Final = 240.0


def main() -> int:
    """The whole benchmark."""
    asked = _arguments()
    began_s = time.monotonic()
    launchers, missing = _launchers(asked.names or list(CONTENDERS))
    folder = Path(tempfile.mkdtemp(prefix="tailrace-bench-"))
    try:
        with running(folder / "sandbox", keep=asked.keep) as stack:
            _say(f"stack ready after {time.monotonic() - began_s:.0f} s")
            record = _race(Race(stack, folder, asked, launchers))
    except BenchError as error:
        _say(f"bench: {error}\nkept: {folder}")
        return 1
    record.missing = missing
    record.facts["took"] = f"{time.monotonic() - began_s:.0f} s in all"
    _say(report.write(asked.out, record))
    _draw(asked.out)
    wrong = report.disqualified(record.rounds)
    if asked.keep or wrong:
        _say(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return int(bool(wrong))


def _stop(_number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)


def _launchers(names: list[str]) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """How each contender is started, and why others cannot be."""
    launchers: dict[str, tuple[str, ...]] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            launchers[name] = CONTENDERS[name].launcher(_say)
        except installed.MissingError as error:
            missing[name] = str(error)
            _say(f"{name} is not run: {error}")
    return launchers, missing


@dataclass(frozen=True, slots=True)
class Race:
    """What the rounds need."""

    stack: Stack
    folder: Path
    asked: argparse.Namespace
    launchers: Mapping[str, tuple[str, ...]]

    def source(self, name: str) -> str:
        """The topic that a contender reads: the slow one has fewer events for as much work."""
        return SMALL if name == report.NAIVE else topics.EVENTS

    def heat(self, number: int, name: str, expected: Tally, *, profile: bool = False) -> Figures:
        """One heat in a folder of its own."""
        own = self.folder / f"{number}-{name}"
        own.mkdir()
        place = Heat(self.stack, self.source(name), own, number, self.launchers[name], profile)
        return heat(CONTENDERS[name](place), expected, DEADLINE_S)


def _race(race: Race) -> report.Record:
    asked, names = race.asked, list(race.launchers)
    sizes = {topics.EVENTS: asked.events, SMALL: asked.small}
    expected = {
        source: _write(race.stack, source, Shape(sizes[source], seed=asked.seed))
        for source in sorted({race.source(name) for name in names})
    }
    rounds: list[report.Round] = []
    for number in range(1, asked.runs + 1):
        rounds.append({})
        for name in names:
            figures = race.heat(number, name, expected[race.source(name)])
            rounds[-1][name] = figures
            _say(_line(number, figures))
    facts = {
        "ran on": time.strftime("%Y-%m-%d", time.gmtime()),
        "workload": f"{asked.events:,} events ({asked.small:,} for {report.NAIVE}), seed "
        f"{asked.seed}, 5,000 Zipf tenants, 5 % copies, 1 % late, 0.1 % malformed, 12 partitions",
        "measured": "CPU of the process tree from its start until the job was done; no broker, no "
        "database",
        "machine": f"{os.cpu_count()} CPUs, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the end",
        **{name: CONTENDERS[name].says for name in names},
    }
    record = report.Record(facts, rounds)
    if report.OURS in names and not asked.no_profile:
        record.profile = _profile(race, asked.runs + 1, expected[topics.EVENTS], rounds[-1])
    return record


def _profile(race: Race, number: int, expected: Tally, last: report.Round) -> str:
    """Where our own time goes, of one more heat that does not count."""
    figures = race.heat(number, report.OURS, expected, profile=True)
    if figures.wrong:
        raise BenchError(f"under the profiler: {'; '.join(figures.wrong)}")
    functions = hottest(race.folder / f"{number}-{report.OURS}" / PROFILE)
    return f"by thread: {shares(last[report.OURS].threads)}; main thread: {functions}"


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


def _draw(folder: Path) -> None:
    """The plots, by the environment that has matplotlib; the race counts without them as well."""
    try:
        command = (str(installed.python(_say)), "-m", "tests.bench.plots", str(folder))
    except installed.MissingError as error:
        _say(f"no plots: {error}")
    else:
        subprocess.run(command, cwd=ROOT, check=True)


def _line(number: int, figures: Figures) -> str:
    if figures.wrong:
        return f"round {number}  {figures.name:<13} DNF: {'; '.join(figures.wrong)}"
    return (
        f"round {number}  {figures.name:<13} {figures.rate:>8,.0f} events/CPU-s  second half "
        f"{figures.rate_warm:>8,.0f}  CPU {figures.cpu_s:5.1f} s  wall {figures.wall_s:5.1f} s"
        f"  RSS {figures.rss_peak_mb:4.0f} MB  state {figures.state_per_id:5.1f} B/id  exact"
    )


def _goals() -> int:
    """What every benchmark has put in so far."""
    entries = load(FOLDER)
    _say(report.reached(entries) if entries else "nothing has been measured: make bench")
    return 0


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
    add("--no-profile", action="store_true", help="leave out the heat under a profiler")
    add("--out", type=Path, help="where the records go: build/bench, or part in it for some alone")
    asked = parser.parse_args()
    # Some contenders alone must not take the place of a whole race.
    asked.out = asked.out or (FOLDER / "part" if asked.names else FOLDER)
    return asked


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # Also when it is told to end, a sandbox and what runs beside it are stopped on the way out.
    signal.signal(signal.SIGTERM, _stop)
    if (named := "".join(sys.argv[1:2])) in COMMANDS:
        sys.exit(COMMANDS[named](sys.argv[2:]))
    sys.exit(_goals() if named == "goals" else main())
