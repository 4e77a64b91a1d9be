"""`python -m tests.simulation`: many seeds, one of them with its history, or planted bugs."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

from tests.simulation import strikes, summary
from tests.simulation.faults import AIMED, FAULTS
from tests.simulation.hunt import hunt_named
from tests.simulation.mutants import SEEDS_MAX, every
from tests.simulation.run import Outcome, Tally, quiet, run_seed
from tests.simulation.workers import CORES, in_order

TOLD_EVERY = 100
"""Seeds between two lines of a long run."""
INTERRUPTED = 130


def main() -> int:
    """Runs what is asked for; 1 where something was found, 2 where it cannot be asked for."""
    try:
        return _run(_parser())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: no summary is written\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read has seen enough; what is left in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=_some, default=SEEDS_MAX, help="how many, at the most")
    parser.add_argument("--from", dest="first", type=_some, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its history")
    parser.add_argument(
        "--forced", type=_faults, default=(), help="faults that strike in each, by comma"
    )
    parser.add_argument("--brief", action="store_true", help="these alone, for two hours")
    parser.add_argument("--mutant", type=_mutant, help="the seeds that notice this planted bug")
    parser.add_argument("--mutants", action="store_true", help="the same for every one")
    parser.add_argument("--workers", type=_some, default=CORES, help="processes that share them")
    return parser


def _some(text: str) -> int:
    """None at all would find nothing, and say so as if it had looked."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, is {text!r}")
    return int(text)


def _known(name: str, what: str, names: Sequence[str]) -> str:
    if name not in names:
        raise argparse.ArgumentTypeError(f"no {what} {name!r}; there are: {', '.join(names)}")
    return name


def _faults(text: str) -> tuple[str, ...]:
    return tuple(_known(name, "fault", sorted(FAULTS | AIMED)) for name in text.split(",") if name)


def _mutant(name: str) -> str:
    return _known(name, "planted bug", sorted(mutant.name for mutant in every()))


def _run(parser: argparse.ArgumentParser) -> int:
    asked = parser.parse_args()
    if asked.mutant or asked.mutants:
        return _hunt(asked.mutant, asked.seeds, asked.workers)
    if asked.seed is not None:
        return _replay(asked.seed, asked.forced, short=asked.brief)
    seeds = range(asked.first, asked.first + asked.seeds)
    live = partial(run_seed, forced=asked.forced, short=asked.brief)
    # The figures are those of seeds as they come, not of a part of what happens in them.
    return _seeds(seeds, live, asked.workers, whole=not (asked.forced or asked.brief))


def _seeds(seeds: range, live: Callable[[int], Outcome], workers: int, *, whole: bool) -> int:
    _out(f"simulation: {len(seeds)} seeds from {seeds.start} on, {workers} at a time")
    tally = Tally()
    for outcome in in_order(live, seeds, workers):
        tally.add(outcome)
        if outcome.violations:
            _tell(outcome)
        if tally.seeds % TOLD_EVERY == 0:
            _out(tally.line())
    _out(tally.line())
    for line in strikes.lines(tally.strikes):
        _out(line)
    if tally.failed:
        _out(f"the first of {len(tally.failed)} seeds that fail: {tally.failed[0].command}")
    for name in tally.missing:
        _out(f"never met in {tally.seeds} seeds: {name}")
    if whole:
        summary.write(tally.document())
    return 1 if tally.failed or tally.missing else 0


def _replay(seed: int, forced: Sequence[str], *, short: bool) -> int:
    with quiet():
        outcome = run_seed(seed, forced, keep=True, short=short)
    _out("\n".join(outcome.notes))
    _out(f"history {outcome.history}")
    if outcome.violations:
        _tell(outcome)
    else:
        _out(f"seed {outcome.seed} ({', '.join(outcome.faults) or 'no faults'}): ok")
    return 1 if outcome.violations else 0


def _hunt(name: str | None, seeds_max: int, workers: int) -> int:
    names = [mutant.name for mutant in every() if name in {None, mutant.name}]
    found = {}
    for caught in in_order(partial(hunt_named, seeds_max=seeds_max), names, workers):
        found[caught.mutant.name] = caught
        _out(caught.line())
    if name is None:
        summary.write({"mutants": {one: caught.document() for one, caught in found.items()}})
    return 0 if found and all(caught.caught for caught in found.values()) else 1


def _tell(outcome: Outcome) -> None:
    _out(f"seed {outcome.seed} ({', '.join(outcome.faults) or 'no faults'}):")
    for violation in outcome.violations[:20]:
        _out(f"  {violation.name}: {violation.detail}")
    _out(f"  {outcome.command}")


def _out(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
