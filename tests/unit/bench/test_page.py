"""The page of performance: from the records of a race, and from nothing else."""

from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.page import main, page
from tests.bench.report import OURS, STREAMS
from tests.bench.summary import Goal, put
from tests.unit.bench.test_report import race, ran

GOALS = {
    "P1": Goal(">= 50x", "61.00x", met=True),
    "P3": Goal("<= 32 B", "37.5 B", met=False, why="levels take 9 B"),
    "P4": Goal("<= 4 s a million", "3.10 s", met=True),
}


def test_a_goal_that_was_missed_stands_there_with_its_reason() -> None:
    text = page(race(1.0), GOALS)
    assert "| P1 | >= 50x | 61.00x | yes |" in text
    assert "| P3 | <= 32 B | 37.5 B | **no**: levels take 9 B |" in text


def test_sizing_comes_from_the_second_half_of_our_own_heats() -> None:
    text = page(race(1.0), GOALS)
    # 1,000 events: 500 of them in half a CPU second and half a second.
    assert "| events per second, one worker, all it can | 1,000 |" in text
    assert "| CPU-seconds per million events | 1000.0 |" in text
    assert "| disk per million identities | 40.0 MB |" in text
    assert "| recovery of a lost disk | 3.10 s (<= 4 s a million) |" in text
    # 10,000/s: ten cores, twenty workers at half a core, and 40 B for each event of seven days.
    assert "| 10,000 | 10.00 | 20 | 241.9 GB |" in text
    assert "| 100 | 0.10 | 1 | 2.4 GB |" in text


def test_nothing_is_said_that_was_not_measured() -> None:
    record = race(1.0)
    assert "| recovery of a lost disk | not measured |" in page(record, {})
    record.rounds[0][OURS] = ran(OURS, "totals: 1 of 2 differ")
    text = page(record, GOALS)
    assert "Sizing" not in text
    assert "DNF round 1: tailrace: totals: 1 of 2 differ" in text
    lame = race(1.0, without=STREAMS)
    lame.missing = {STREAMS: "no Java compiler"}
    assert "kafka-streams was not run: no Java compiler" in page(lame, {})


def test_the_page_is_written_from_the_records_with_its_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "performance.md"
    assert main(tmp_path / "none", target) == 1
    assert "make bench" in capsys.readouterr().err
    report.write(tmp_path, race(1.0))
    put(GOALS, tmp_path)
    (tmp_path / "rates.svg").write_text("<svg/>", encoding="utf-8")
    assert main(tmp_path, target) == 0
    assert target.read_text(encoding="utf-8") == page(
        race(1.0), {**report.goals(race(1.0)), **GOALS}, ["rates"]
    )
    assert "](performance-rates.svg)" in target.read_text(encoding="utf-8")
    assert (tmp_path / "performance-rates.svg").exists()
