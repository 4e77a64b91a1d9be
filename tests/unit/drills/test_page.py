"""The page of drills: from the record of a full run, and from nothing else."""

from pathlib import Path

import msgspec
import pytest

from tests.drills.page import Drilled, Record, main, page

FINE = Drilled(
    name="broker-killed",
    ok=True,
    lost=0,
    double=0,
    phantom=0,
    misattributed=0,
    stuck=0,
    seconds=41.25,
    about="SIGKILL | to the broker",
    long=False,
    not_run=None,
    units=9_000,
    pending_at_worst=4_000,
    seen=["24 windows pending", "1 worker dead"],
    proofs=[],
)
BAD = msgspec.structs.replace(FINE, name="slot-moved", ok=False, lost=7, stuck=2)
UNJUDGED = msgspec.structs.replace(
    FINE, name="no-start", ok=False, lost=None, double=None, stuck=None, seen=[]
)
ELSEWHERE = msgspec.structs.replace(
    FINE, name="disk-full", ok=False, lost=None, not_run="no tmpfs here"
)
RECORD = Record("2026-11-30T01:00:00Z", [FINE, BAD, UNJUDGED, ELSEWHERE])


def test_each_drill_has_its_line_with_its_figures() -> None:
    text = page(RECORD)
    assert "The run began 2026-11-30T01:00:00Z. 1 of 3 drills are ok, 1 were not run." in text
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    assert rows["broker-killed"].endswith(
        "| 24 windows pending, 1 worker dead | ok: lost 0 · double 0 | 41.2 |"
    )
    assert "SIGKILL \\| to the broker" in rows["broker-killed"]
    assert "| **failed**: lost 7 · double 0 · stuck 2 |" in rows["slot-moved"]
    assert "| **not shown** (4000 of 9000 units pending at worst) |" in rows["no-start"]
    assert "| **failed**: nobody has judged it |" in rows["no-start"]
    assert rows["disk-full"].endswith("| no tmpfs here |")


def test_a_drill_that_counted_no_failed_state_is_told_apart() -> None:
    silent = msgspec.structs.replace(FINE, seen=[], pending_at_worst=0)
    assert "| **not shown** | ok: lost 0 · double 0 |" in page(Record("", [silent]))


def test_nothing_is_said_of_what_was_not_left_out() -> None:
    assert "Not run" not in page(Record("2026-11-30T01:00:00Z", [FINE]))


def test_the_page_is_written_from_the_record(tmp_path: Path) -> None:
    record, target = tmp_path / "full.json", tmp_path / "drills.md"
    record.write_bytes(msgspec.json.encode(RECORD))
    assert main(record, target) == 0
    assert target.read_text(encoding="utf-8") == page(RECORD)


def test_what_runs_alone_is_told_with_what_it_measured(tmp_path: Path) -> None:
    record, target = tmp_path / "full.json", tmp_path / "drills.md"
    record.write_bytes(msgspec.json.encode(RECORD))
    soak = msgspec.structs.replace(FINE, name="soak", proofs=["seed 7", "50000 events, 100 kills"])
    (tmp_path / "soak.alone.json").write_bytes(msgspec.json.encode(soak))
    assert main(record, target) == 0
    text = target.read_text(encoding="utf-8")
    assert "1 of 3 drills are ok" in text
    told = text.partition("## As long as one likes")[2].partition("## Not run")[0]
    assert "| `soak` |" in told
    assert "- seed 7\n- 50000 events, 100 kills" in told


def test_without_a_run_there_is_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path / "full.json", tmp_path / "drills.md") == 1
    assert "`make drill` leaves it" in capsys.readouterr().err
    assert not (tmp_path / "drills.md").exists()
