"""Seeds on several processes, and the summary that they leave behind."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.simulation.hunt import hunt_named
from tests.simulation.run import Tally, quiet, run_seed
from tests.simulation.summary import MutantFigures, Summary, write
from tests.simulation.workers import in_order

ROOT = Path(__file__).resolve().parents[2]
brief_seed = partial(run_seed, short=True)


def test_results_are_the_same_and_in_order_whatever_the_number_of_processes() -> None:
    alone = list(in_order(brief_seed, range(1, 7), 1))
    shared = list(in_order(brief_seed, range(1, 7), 3))
    assert [one.seed for one in shared] == list(range(1, 7))
    assert shared == alone


def _fails(seed: int) -> int:
    raise ValueError(seed)


def test_what_goes_wrong_in_another_process_is_raised_here() -> None:
    with pytest.raises(ValueError, match="7"):
        list(in_order(_fails, [7], 2))


def test_the_summary_says_what_was_tried_and_found(tmp_path: Path) -> None:
    path, tally = tmp_path / "sim" / "summary.json", Tally()
    for outcome in in_order(brief_seed, range(1, 3), 1):
        tally.add(outcome)
    write(tally.document(), path)
    with quiet():
        caught = hunt_named("late_counted", 3)
    write({"mutants": {"late_counted": caught.document()}}, path)

    # Each part is written without the other's; no field is missing, and none of another type.
    found = msgspec.json.decode(path.read_bytes(), type=Summary)
    assert found.keys() == Summary.__annotations__.keys()
    assert found["seeds"] == 2
    assert found["hours"] > 4
    assert found["violations"] == 0
    mutant = found["mutants"]["late_counted"]
    assert mutant.keys() == MutantFigures.__annotations__.keys()
    assert mutant["caught"] is True
    assert mutant["seeds"] >= 1
    assert mutant["invariant"] in {"double", "phantom", "silent"}


BROKEN = """
import sys
from tests.simulation import checks
checks.HOUR_US = 1  # the oracle looks for cells that Stripe has not
from tests.simulation import __main__ as program
sys.argv = ["simulation", "--seeds", "2", "--workers", "1", *sys.argv[1:]]
sys.exit(program.main())
"""


def _typed(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=directory, env={"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_seed_that_fails_is_named_with_the_command_that_replays_it(tmp_path: Path) -> None:
    done = _typed(tmp_path, "-c", BROKEN)
    assert done.returncode == 1, done.stderr
    command = ".venv/bin/python -m tests.simulation --seed 1"
    assert f"the first of 2 seeds that fail: {command}\n" in done.stdout
    assert msgspec.json.decode((tmp_path / "build/sim/summary.json").read_bytes())["violations"] > 0


def test_a_part_of_what_happens_leaves_the_figures_of_the_whole_alone(tmp_path: Path) -> None:
    done = _typed(tmp_path, "-c", BROKEN, "--brief")
    assert done.returncode == 1, done.stderr
    command = ".venv/bin/python -m tests.simulation --seed 1 --brief"
    assert f"the first of 2 seeds that fail: {command}\n" in done.stdout
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seeds", "0"), "must be a whole number from 1 on, is '0'"),
        (("--seeds", "-3"), "must be a whole number from 1 on, is '-3'"),
        (("--workers", "0"), "must be a whole number from 1 on, is '0'"),
        (("--forced", "nonsense"), "no fault 'nonsense'; there are: "),
        (("--mutant", "nope"), "no planted bug 'nope'; there are: "),
    ],
)
def test_what_would_prove_nothing_is_refused(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = _typed(tmp_path, "-m", "tests.simulation", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "build").exists()


def test_a_seed_that_is_fine_says_so(tmp_path: Path) -> None:
    done = _typed(tmp_path, "-m", "tests.simulation", "--seed", "1", "--brief")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("seed 1 (no faults): ok\n")
