"""The summary is one file for all benchmarks, and each keeps to its own entries."""

from pathlib import Path

import msgspec

from tests.bench.summary import Goal, load, put

FAST = Goal(">= 50x", "61.00x", met=True)
SLOW = Goal("<= 4 s", "5.00 s", met=False, why="3 s of it are spent in decoding")
UNKNOWN = Goal(">= 4x", "not run", met=None, why="no Java")


def test_an_entry_holds_goal_figure_met_and_why(tmp_path: Path) -> None:
    put({"P4": SLOW, "P1": UNKNOWN}, tmp_path / "new")
    written = (tmp_path / "new" / "summary.json").read_bytes()
    assert msgspec.json.decode(written) == {
        "P1": {"goal": ">= 4x", "figure": "not run", "met": None, "why": "no Java"},
        "P4": {
            "goal": "<= 4 s",
            "figure": "5.00 s",
            "met": False,
            "why": "3 s of it are spent in decoding",
        },
    }


def test_a_benchmark_replaces_its_own_entries_and_leaves_the_others(tmp_path: Path) -> None:
    assert load(tmp_path) == {}
    put({"P1": UNKNOWN, "P4": SLOW}, tmp_path)
    put({"P1": FAST}, tmp_path)
    assert load(tmp_path) == {"P1": FAST, "P4": SLOW}
