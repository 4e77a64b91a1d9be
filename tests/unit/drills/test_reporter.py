"""What a run of drills leaves: an `ok` only with the oracle's word, figures also of a failure."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
from pathlib import Path
from tests.drills.reporter import Reporter

def pytest_configure(config):
    config.addinivalue_line("markers", "drill(name, about): one")
    config.addinivalue_line("markers", "long: left out")
    reporter = Reporter(Path({out!r}), {wanted!r}, full={full!r})
    config.pluginmanager.register(reporter, "drill-reporter")
"""
DRILLS = """
'''What they are about.'''
from types import SimpleNamespace
import pytest
from tests.support import witness
from tests.support.not_run import not_run
from tests.support.oracle import Verdict
from tests.support.witness import Progress

LOST = Verdict(lost=1, differences=("registry: acme one is missing",))

def looked(verdict, events=3):
    books = object()
    for settled in (0, 0, 10):
        seen = Progress(3, 10, events, 10 - settled, settled, 0)
        witness.saw(seen, books, lambda: witness.judged(books, verdict))
    return books

@pytest.mark.drill(name="fine", about="All goes well.")
def test_one():
    witness.seeded("acme", 7)
    for _ in range(3):
        witness.did("SIGKILL to worker 1")
    witness.seen("windows pending", 24)
    witness.proved("completeness 100 %")
    witness.judged(looked(Verdict()), Verdict(compared=("3 identities",)))

@pytest.mark.drill(name="unjudged")
def test_two():
    witness.did("nothing that anybody looked at")

@pytest.mark.drill
def test_loses_one():
    witness.judged(looked(LOST), LOST)

@pytest.mark.drill(name="half-judged")
def test_four():
    looked(LOST)
    witness.judged(looked(Verdict()), Verdict())

@pytest.fixture
def own_stack(tmp_path):
    return SimpleNamespace(directory=tmp_path / "stack")

@pytest.mark.drill(name="broken")
def test_five(own_stack):
    '''Ends before it has judged itself.'''
    looked(LOST)
    assert False, "the worker did not come back"

@pytest.mark.drill(name="elsewhere")
@pytest.mark.parametrize("part", ["a_b"])
def test_six(part):
    not_run("no such machine")

@pytest.fixture
def leaky():
    yield
    raise RuntimeError("a process is left behind")

@pytest.mark.drill(name="leaky")
def test_seven(leaky):
    witness.seen("units pending", 1)
    witness.judged(looked(Verdict()), Verdict())

@pytest.mark.drill(name="unseen")
def test_eight():
    '''Judged, and nothing was broken for all anybody knows.'''
    witness.judged(looked(Verdict()), Verdict())

def test_that_is_no_drill():
    pass
"""


class Run:
    """A run of the drills above in a folder of their own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.out = pytester.path / "reports"

    def __call__(self, *wanted: str, full: bool = False, drills: str = DRILLS) -> pytest.RunResult:
        text = CONFTEST.format(out=str(self.out), wanted=wanted, full=full)
        self.pytester.makeconftest(text)
        self.pytester.makepyfile(test_them=drills)
        quiet = ("-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function")
        return self.pytester.runpytest_inprocess(*quiet)

    def read(self, name: str) -> Any:
        return msgspec.json.decode((self.out / name).read_bytes())

    def report(self, name: str) -> str:
        return (self.out / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    return Run(pytester)


ZEROS = dict.fromkeys(("lost", "double", "phantom", "misattributed", "stuck"), 0)
NOBODY_KNOWS = dict.fromkeys(ZEROS)


def test_the_summary_says_of_each_what_the_oracle_said(run: Run) -> None:
    result = run()
    # Of the drills only the good one passes; `leaky` passes too, until its fixture ends.
    result.assert_outcomes(passed=3, failed=5, skipped=1, errors=1)
    summary = run.read("summary.json")
    assert all(isinstance(one.pop("seconds"), float) for one in summary)
    why = {one["name"]: one.pop("not_run") for one in summary}
    assert {name: reason for name, reason in why.items() if reason is not None} == {
        "elsewhere-a-b": "no such machine"
    }
    assert summary == [
        {"name": "fine", "ok": True, **ZEROS},
        {"name": "unjudged", "ok": False, **NOBODY_KNOWS},
        {"name": "loses-one", "ok": False, **ZEROS, "lost": 1},
        {"name": "half-judged", "ok": False, **ZEROS, "lost": 1},
        {"name": "broken", "ok": False, **ZEROS, "lost": 1},
        {"name": "elsewhere-a-b", "ok": False, **NOBODY_KNOWS},
        {"name": "leaky", "ok": False, **ZEROS},
        {"name": "unseen", "ok": False, **ZEROS},
    ]
    assert not (run.out / "full.json").exists()


def test_an_ok_line_needs_a_verdict(run: Run) -> None:
    result = run()
    lines = [line for line in result.outlines if line.startswith(("ok ", "FAILED  ", "not run "))]
    ok = [" ".join(line.split()[3:]) for line in lines if line.startswith("ok ")]
    assert ok == ["fine lost 0 · double 0 · phantom 0 · misattributed 0 · stuck 0"]
    result.stdout.fnmatch_lines(
        [
            "FAILED *unjudged *the oracle did not run",
            "FAILED *loses-one *lost 1 · double 0*",
            "not run *elsewhere-a-b *no such machine",
        ]
    )


def test_a_report_tells_what_was_done_seen_and_found(run: Run) -> None:
    run()
    fine = run.report("fine")
    assert fine.startswith("# fine: ok\n\nAll goes well.\n\n**lost 0 · double 0")
    assert "seeds of the usage: acme 7" in fine
    assert "SIGKILL to worker 1 (3 times)" in fine
    assert "compared: 3 identities." in fine
    worst = next(line for line in fine.splitlines() if line.startswith("| most pending"))
    assert "10 of 10 units pending" in worst
    rows = [line for line in fine.splitlines() if line.startswith("| ")]
    assert rows[2].startswith("| **seen first** |")
    assert rows[2].endswith(" s | 24 windows pending |")
    assert "\n- completeness 100 %\n" in fine
    assert "s: *3 of 3 events admitted, 0 of 10 units pending" in fine
    broken = run.report("broken")
    assert "The failed state was not shown" in broken
    assert broken.startswith("# broken: FAILED\n\nEnds before it has judged itself.\n\n**lost 1")
    assert "- registry: acme one is missing" in broken
    assert "the worker did not come back" in broken
    assert re.search(r"^tailrace sandbox up --dir \S+/stack$", broken, re.MULTILINE)
    assert "sandbox up" not in fine + run.report("unjudged")
    assert "a process is left behind" in run.report("leaky")
    assert "the oracle did not run" in run.report("unjudged")
    assert "nobody counted it before the recovery" in run.report("unseen")
    assert run.report("elsewhere-a-b").startswith("# elsewhere-a-b: not run\n\nWhat they are")


def test_a_full_run_leaves_a_record_of_all_with_what_was_not_run(run: Run) -> None:
    run(full=True)
    drills = run.read("full.json")["drills"]
    assert [(one["name"], one["ok"]) for one in drills] == [
        (one["name"], one["ok"]) for one in run.read("summary.json")
    ]
    (elsewhere,) = (one for one in drills if one["not_run"])
    assert (elsewhere["name"], elsewhere["not_run"]) == ("elsewhere-a-b", "no such machine")
    fine = drills[0]
    assert (fine["about"], fine["units"], fine["pending_at_worst"]) == ("All goes well.", 10, 10)
    assert [one["seen"] for one in drills[:2]] == [["24 windows pending"], []]


def test_drills_are_chosen_by_name(run: Run) -> None:
    result = run("fine")
    assert result.ret == 0
    assert [one["name"] for one in run.read("summary.json")] == ["fine"]


def test_one_that_runs_alone_runs_by_its_name_only(run: Run) -> None:
    more = (
        "\n@pytest.mark.drill(name='endless', alone=True)\n"
        "def test_endless(): witness.judged(looked(Verdict()), Verdict())\n"
    )
    run(drills=DRILLS + more, full=True)
    assert "endless" not in {one["name"] for one in run.read("full.json")["drills"]}
    run("endless", drills=DRILLS + more)
    assert [one["name"] for one in run.read("summary.json")] == ["endless"]
    assert run.read("endless.alone.json")["name"] == "endless"
    assert not (run.out / "fine.alone.json").exists()


def test_a_name_that_no_drill_has_is_refused(run: Run) -> None:
    result = run("fine", "fien")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "no such drill: fien" in str(result.stderr)


@pytest.mark.parametrize(
    ("second", "said"),
    [("fine", "are both called 'fine'"), ("so und so", "'so und so' is no name")],
)
def test_names_tell_drills_apart(run: Run, second: str, said: str) -> None:
    more = f"\n@pytest.mark.drill(name={second!r})\ndef test_again(): pass\n"
    result = run(drills=DRILLS + more)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in str(result.stderr)


def test_nothing_is_written_where_no_drill_runs(run: Run, tmp_path: Path) -> None:
    assert run(drills="def test_plain(): pass").ret == 0
    assert not run.out.exists()
