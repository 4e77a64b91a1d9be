"""`python -m tests.simulation`: many seeds, or one of them again with its history."""

import argparse
import json
import sys
from pathlib import Path

from tests.simulation.run import Outcome, Tally, quiet, run_seed

SUMMARY = Path("build/sim/summary.json")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its history")
    asked = parser.parse_args()
    tally = Tally()
    one = asked.seed is not None
    seeds = range(asked.seed, asked.seed + 1) if one else range(asked.first, asked.first + asked.seeds)
    with quiet():
        for seed in seeds:
            outcome = run_seed(seed, keep=one)
            tally.add(outcome)
            if one:
                _out("\n".join(outcome.notes))
            if outcome.violations:
                _tell(outcome)
    _out(tally.line())
    _write(tally)
    return 1 if tally.failed else 0


def _tell(outcome: Outcome) -> None:
    _out(f"seed {outcome.seed} ({', '.join(outcome.faults) or 'no faults'}):")
    for violation in outcome.violations[:20]:
        _out(f"  {violation.name}: {violation.detail}")
    _out(f"  {outcome.command}")


def _write(tally: Tally) -> None:
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "seeds": tally.seeds,
        "hours": round(tally.hours, 1),
        "violations": sum(len(one.violations) for one in tally.failed),
        "mutants": {},
    }
    SUMMARY.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _out(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
