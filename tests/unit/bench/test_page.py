"""The page of performance and the sizes: from the records of a run, and from nothing else."""

from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.page import (
    BEGIN,
    DEPLOY,
    END,
    PAGE,
    Kept,
    deploy,
    kept_path,
    main,
    page,
    read_kept,
)
from tests.bench.report import OURS, STREAMS
from tests.bench.summary import Goal, put, put_sizes
from tests.unit.bench.test_report import race, ran

GOALS = {
    "P1": Goal(">= 50x", "61.00x", met=True),
    "P3": Goal("<= 32 B", "37.5 B", met=False, why="levels take 9 B"),
    "P4": Goal("<= 4 s a million", "3.10 s", met=True),
}
SIZES = {"state_bytes_an_id": 30.0, "recovery_s_a_million": 3.1}


def test_a_goal_that_was_missed_stands_there_with_its_reason() -> None:
    text = page(Kept(race(1.0), GOALS))
    assert "| P1 | >= 50x | 61.00x | yes |" in text
    assert "| P3 | <= 32 B | 37.5 B | **no**: levels take 9 B |" in text


def test_sizing_comes_from_the_second_half_of_our_own_heats_and_from_the_measures() -> None:
    text = page(Kept(race(1.0), GOALS, SIZES))
    # 1,000 events: 500 of them in half a CPU second and half a second.
    assert "| admission | 1,000 to 1,000 events a CPU-second |" in text
    assert "| CPU-seconds per million events | 1000.0 |" in text
    assert "| state on disk, files merged | 30.0 bytes an identity |" in text
    assert "| state rebuilt from `usage.admit-log` | 3.1 s a million |" in text
    # 10,000/s: ten cores, twenty workers at half a core, and 30 B for each event of 28/3 days.
    assert "| 10,000 | 10.00 | 20 | 241.9 GB |" in text
    assert "| 100 | 0.10 | 1 | 2.4 GB |" in text


def test_the_page_about_deploying_says_the_same() -> None:
    text = f"before\n\n{BEGIN}what was{END}\n\nafter\n"
    made = deploy(text, Kept(race(1.0), GOALS, SIZES))
    assert made.startswith(f"before\n\n{BEGIN}| what | figure | how known |")
    assert made.endswith(f"{END}\n\nafter\n")
    assert "what was" not in made
    assert "| state on disk, files merged | 30.0 bytes an identity | [`make bench`]" in made
    assert "divided by 500, and one to spare" in made
    assert "4/3 × 30 bytes" in made
    assert "7 days are 24 GB" in made
    assert deploy(made, Kept(race(1.0), GOALS, SIZES)) == made


def test_nothing_is_said_that_was_not_measured() -> None:
    record = race(1.0)
    assert "rebuilt" not in page(Kept(record, {}))
    record.rounds[0][OURS] = ran(OURS, "totals: 1 of 2 differ")
    text = page(Kept(record, GOALS, SIZES))
    assert "Sizing" not in text
    assert "DNF round 1: tailrace: totals: 1 of 2 differ" in text
    lame = race(1.0, without=STREAMS)
    lame.missing = {STREAMS: "no Java compiler"}
    assert "kafka-streams was not run: no Java compiler" in page(Kept(lame, {}))


def test_the_pages_are_written_from_the_records_with_the_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, deploying = tmp_path / "performance.md", tmp_path / "deploy.md"
    deploying.write_text(f"{BEGIN}{END}", encoding="utf-8")
    assert main(tmp_path / "none", target, deploying) == 1
    assert "make bench" in capsys.readouterr().err
    report.write(tmp_path, race(1.0))
    put(GOALS, tmp_path)
    put_sizes(SIZES, tmp_path)
    (tmp_path / "rates.svg").write_text("<svg/>", encoding="utf-8")
    assert main(tmp_path, target, deploying) == 0
    kept = Kept(race(1.0), {**report.goals(race(1.0)), **GOALS}, SIZES, ["rates"])
    assert read_kept(target) == kept
    assert target.read_text(encoding="utf-8") == page(kept)
    assert "](performance-rates.svg)" in target.read_text(encoding="utf-8")
    assert (tmp_path / "performance-rates.svg").exists()
    assert deploying.read_text(encoding="utf-8") == deploy(f"{BEGIN}{END}", kept)


def test_the_pages_say_what_they_were_made_of() -> None:
    text = DEPLOY.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    # Before the first full run there is neither a page nor what it is made of.
    assert PAGE.exists() == kept_path(PAGE).exists()
    if PAGE.exists():
        kept = read_kept(PAGE)
        assert PAGE.read_text(encoding="utf-8") == page(kept), "run `python -m tests.bench.page`"
        assert text == deploy(text, kept), "run `python -m tests.bench.page`"
