"""`python -m tests.simulation`: many seeds, one of them with its history, or planted bugs."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.simulation.hunt import Caught, hunt
from tests.simulation.mutants import every
from tests.simulation.run import Outcome, Tally, quiet, run_seed

SUMMARY = Path("build/sim/summary.json")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many, at the most")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its history")
    parser.add_argument("--forced", default="", help="faults that strike in each, by comma")
    parser.add_argument("--brief", action="store_true", help="these alone, for two hours")
    parser.add_argument("--mutant", help="the seeds that notice this planted bug")
    parser.add_argument("--mutants", action="store_true", help="the same for every one")
    asked = parser.parse_args()
    forced = tuple(filter(None, asked.forced.split(",")))
    with quiet():
        if asked.mutant or asked.mutants:
            return _hunt(asked.mutant, asked.seeds)
        if asked.seed is not None:
            return _replay(asked.seed, forced, short=asked.brief)
        seeds = range(asked.first, asked.first + asked.seeds)
        return _seeds(seeds, forced, short=asked.brief)


def _seeds(seeds: range, forced: Sequence[str], *, short: bool) -> int:
    tally = Tally()
    for seed in seeds:
        outcome = run_seed(seed, forced, short=short)
        tally.add(outcome)
        if outcome.violations:
            _tell(outcome)
    _out(tally.line())
    _write(
        seeds=tally.seeds,
        hours=round(tally.hours, 1),
        violations=sum(len(one.violations) for one in tally.failed),
    )
    return 1 if tally.failed else 0


def _replay(seed: int, forced: Sequence[str], *, short: bool) -> int:
    outcome = run_seed(seed, forced, keep=True, short=short)
    _out("\n".join(outcome.notes))
    _out(f"history {outcome.history}")
    _tell(outcome)
    return 1 if outcome.violations else 0


def _hunt(name: str | None, seeds_max: int) -> int:
    found: list[Caught] = []
    for mutant in every():
        if name is None or mutant.name == name:
            found.append(hunt(mutant, seeds_max))
            _out(found[-1].line())
    if name is None:
        _write(mutants={one.mutant.name: one.document() for one in found})
    return 0 if found and all(one.caught for one in found) else 1


def _tell(outcome: Outcome) -> None:
    _out(f"seed {outcome.seed} ({', '.join(outcome.faults) or 'no faults'}):")
    for violation in outcome.violations[:20]:
        _out(f"  {violation.name}: {violation.detail}")
    _out(f"  {outcome.command}")


def _write(**figures: object) -> None:
    """Seeds and mutants are run apart and stand in one summary."""
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    known = {"seeds": 0, "hours": 0.0, "violations": 0, "mutants": {}}
    if SUMMARY.exists():
        known |= msgspec.json.decode(SUMMARY.read_bytes())
    text = json.dumps(known | figures, indent=2)
    SUMMARY.write_text(text + "\n", encoding="utf-8")


def _out(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
