"""Goals come from rounds in which both sides were exact, and processes are measured whole."""

import subprocess
import sys
from pathlib import Path

from tests.bench import process_tree, report
from tests.bench.race import Figures
from tests.bench.summary import Goal, load


def heat(name: str, rate: float, *wrong: str) -> Figures:
    return Figures(name, 1_000, wrong, cpu_s=1_000 / rate, wall_s=1.0, rss_peak_mb=100.0)


ROUNDS = [
    {"faust-naive": heat("faust-naive", 10.0), "tailrace": heat("tailrace", naive_times * 10.0)}
    for naive_times in (29.0, 31.0, 40.0)
]


def test_a_goal_is_met_by_the_median_of_the_ratios_within_rounds() -> None:
    assert report.goals(ROUNDS)["P1"] == Goal(
        ">= 30x naive Faust in events per CPU-second", "29.00x / 31.00x / 40.00x", met=True
    )


def test_one_round_that_was_not_exact_fails_the_goal() -> None:
    wrong = {**ROUNDS[2], "tailrace": heat("tailrace", 400.0, "totals: 1 of 2 differ")}
    reached = report.goals([*ROUNDS[:2], wrong])["P1"]
    assert not reached.met
    assert report.disqualified([*ROUNDS[:2], wrong]) == ["round 3: tailrace: totals: 1 of 2 differ"]
    assert "2/3 DNF" in report.table([*ROUNDS[:2], wrong])


def test_the_summary_holds_what_was_reached(tmp_path: Path) -> None:
    text = report.write(tmp_path, ROUNDS, {"seed": "1"})
    assert text == (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert load(tmp_path) == report.goals(ROUNDS)


BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
PARENT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])"


def test_cpu_of_a_child_counts_to_its_parent_while_it_lives() -> None:
    parent = subprocess.Popen(
        (sys.executable, "-c", PARENT), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent:
        try:
            if parent.stdout is not None:
                parent.stdout.readline()
            used = process_tree.usage(parent.pid)
            assert 0.25 < used.cpu_s < 5
            assert used.rss_peak_mb > 5
            assert process_tree.threads(parent.pid)
        finally:
            if parent.stdin is not None:
                parent.stdin.close()


def test_a_process_that_is_gone_counts_as_nothing() -> None:
    with subprocess.Popen((sys.executable, "-c", "")) as gone:
        pass
    assert process_tree.usage(gone.pid) == process_tree.Usage(0.0, 0.0)
