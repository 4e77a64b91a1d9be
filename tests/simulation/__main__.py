"""`python -m tests.simulation`: many seeds, one of them with its history, or planted bugs."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial

from tests.simulation import strikes, summary
from tests.simulation.hunt import hunt_named
from tests.simulation.mutants import SEEDS_MAX, every
from tests.simulation.run import Outcome, Tally, quiet, run_seed
from tests.simulation.workers import CORES, in_order

TOLD_EVERY = 1_000
"""Seeds between two lines of a long run."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many, at the most")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its history")
    parser.add_argument("--forced", default="", help="faults that strike in each, by comma")
    parser.add_argument("--brief", action="store_true", help="these alone, for two hours")
    parser.add_argument("--mutant", help="the seeds that notice this planted bug")
    parser.add_argument("--mutants", action="store_true", help="the same for every one")
    parser.add_argument("--workers", type=int, default=CORES, help="processes that share them")
    asked = parser.parse_args()
    forced = tuple(filter(None, asked.forced.split(",")))
    if asked.mutant or asked.mutants:
        return _hunt(asked.mutant, asked.seeds, asked.workers)
    if asked.seed is not None:
        return _replay(asked.seed, forced, short=asked.brief)
    seeds = range(asked.first, asked.first + asked.seeds)
    return _seeds(seeds, partial(run_seed, forced=forced, short=asked.brief), asked.workers)


def _seeds(seeds: range, live: Callable[[int], Outcome], workers: int) -> int:
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
    summary.write(tally.document())
    return 1 if tally.failed or tally.missing else 0


def _replay(seed: int, forced: Sequence[str], *, short: bool) -> int:
    with quiet():
        outcome = run_seed(seed, forced, keep=True, short=short)
    _out("\n".join(outcome.notes))
    _out(f"history {outcome.history}")
    _tell(outcome)
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
