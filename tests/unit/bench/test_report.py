"""Goals come from rounds in which both sides were exact, and processes are measured whole."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.bench import process_tree, report
from tests.bench.race import Figures, Half
from tests.bench.report import NAIVE, OURS, QUIX, STREAMS, Record, Round
from tests.bench.summary import Goal, load

CPU_S = {OURS: 1.0, "loop": 0.9, QUIX: 5.0, STREAMS: 5.0, NAIVE: 60.0}
GOAL = (
    "events per CPU-second: >= 50x naive Faust, 4.5x quixstreams, 4x Kafka Streams, "
    "2.5x Kafka Streams in the second half"
)


def ran(name: str, *wrong: str, ours: float = 1.0) -> Figures:
    """A heat whose second half took half of its CPU seconds, and a third of them on the JVM."""
    cpu_s = CPU_S[name] * (ours if name == OURS else 1.0)
    half = Half(cpu_s * (0.4 if name == STREAMS else 0.5), wall_s=0.5, share=0.5)
    return Figures(name, 1_000, wrong, cpu_s, 1.0, 100.0, half, state_bytes=4_000, ids=100)


def race(*slower: float, without: str = "") -> Record:
    """One round for each factor by which ours was slower than 1,000 events per CPU-second."""
    rounds: list[Round] = [
        {name: ran(name, ours=factor) for name in CPU_S if name != without} for factor in slower
    ]
    return Record({"seed": "1"}, rounds, profile="by thread: python 100%")


def test_a_goal_is_met_by_the_median_of_the_ratios_within_rounds() -> None:
    assert report.goals(race(1.25, 1.0, 0.5)) == {
        "P1": Goal(
            GOAL,
            "naive Faust 48.00x / 60.00x / 120.00x; quixstreams 4.00x / 5.00x / 10.00x; "
            "Kafka Streams 4.00x / 5.00x / 10.00x; "
            "Kafka Streams in the second half 4.80x / 6.00x / 12.00x",
            met=True,
        ),
        "P2": Goal("<= 1.25x the CPU of the bare loop", "0.56x / 1.11x / 1.39x", met=True),
    }


def test_one_part_that_is_missed_misses_the_goal_and_says_where_the_time_goes() -> None:
    reached = report.goals(race(1.15))
    assert reached["P1"].met is False
    assert reached["P1"].why == "missed beside quixstreams; by thread: python 100%"
    assert report.goals(race(1.5))["P2"] == Goal(
        "<= 1.25x the CPU of the bare loop",
        "1.67x / 1.67x / 1.67x",
        met=False,
        why="by thread: python 100%",
    )


def test_a_contender_that_could_not_run_is_listed_and_leaves_the_goal_open() -> None:
    record = race(1.0, without=STREAMS)
    assert set(report.goals(record)) == {"P2"}, "it was not even asked for"
    record.missing = {STREAMS: "no Java compiler"}
    reached = report.goals(record)["P1"]
    assert (reached.met, reached.why) == (None, "kafka-streams not run: no Java compiler")
    assert "| kafka-streams | not run |" in report.heats(record)
    assert "kafka-streams was not run: no Java compiler" in report.told(record)
    slow = race(1.5, without=STREAMS)
    slow.missing = record.missing
    assert report.goals(slow)["P1"].met is False, "what was missed stays missed"


@pytest.mark.parametrize("name", [OURS, QUIX])
def test_one_round_that_was_not_exact_fails_the_goal(name: str) -> None:
    record = race(1.0, 1.0, 1.0)
    record.rounds[2][name] = ran(name, "totals: 1 of 2 differ")
    assert report.goals(record)["P1"].met is False
    assert report.disqualified(record.rounds) == [f"round 3: {name}: totals: 1 of 2 differ"]
    assert "2/3 DNF" in report.heats(record)


def test_each_figure_is_a_ratio_within_its_round() -> None:
    row = next(line for line in report.beside(race(1.0, 2.0)).splitlines() if QUIX in line)
    one, both = "1.00 / **1.00** / 1.00", "2.50 / **3.75** / 5.00"
    assert row == f"| {QUIX} | {both} | {both} | {one} | {one} | {one} |"


def test_the_record_can_be_read_again(tmp_path: Path) -> None:
    record = race(1.0)
    text = report.write(tmp_path, record)
    assert text == (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert load(tmp_path) == report.goals(record)
    kept = (tmp_path / report.HEATS).read_bytes()
    assert msgspec.json.decode(kept, type=Record) == record


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
