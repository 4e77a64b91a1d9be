"""What CI runs: every suite once, three lanes, and nothing on two stacks at a time."""

import re
import threading

import pytest

from tests import run
from tests.run import ROOT, Suite, drive, lanes


def paths(suite: Suite) -> set[str]:
    return {word for command in suite.commands for word in command if word.startswith("tests/")}


def test_every_folder_of_tests_runs_in_one_lane() -> None:
    chosen = [path for suite in lanes().suites() for path in paths(suite)]
    assert len(chosen) == len(set(chosen))
    folders = {p.parent for p in (ROOT / "tests").rglob("test_*.py")}
    left = {
        str(folder.relative_to(ROOT))
        for folder in folders
        if not any(folder.is_relative_to(ROOT / path) for path in chosen)
    }
    assert not left, "name them in tests/run.py"


def test_nothing_that_starts_a_stack_runs_beside_another_stack() -> None:
    chosen = lanes()
    words = {w for s in chosen.suites() for command in s.commands for w in command}
    alone = {path for suite in chosen.on_the_stack for path in paths(suite)}
    starts = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests/integration").rglob("*.py")
        if re.search(r"\b(?:live_stack|open_stack)\(", file.read_text(encoding="utf-8"))
    ]
    assert starts
    beside = [
        name
        for name in starts
        if name not in alone
        and f"--ignore={name}" not in words
        and not any(name.startswith(f"{path}/") for path in alone)
    ]
    assert not beside, "name their folder in ON_THE_STACK of tests/run.py"


def test_what_one_suite_leaves_out_another_runs() -> None:
    words = [w for suite in lanes().suites() for command in suite.commands for w in command]
    for ignored in (w.removeprefix("--ignore=") for w in words if w.startswith("--ignore=")):
        assert ignored in words
        assert (ROOT / ignored).exists()


def test_a_suite_for_any_lane_runs_once_in_the_one_that_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[tuple[str, str]] = []
    free, busy = threading.Event(), threading.Event()

    def go(suite: Suite) -> None:
        if suite.name == "slow":
            busy.set()
            assert free.wait(10)
        ran.append((threading.current_thread().name, suite.name))

    monkeypatch.setattr(run.Suite, "run", go)
    either = [Suite("first", ()), Suite("second", ())]
    told: list[str] = []
    slow = threading.Thread(
        target=drive, args=([Suite("slow", ())], either, lambda s: told.append(s.name)), name="a"
    )
    slow.start()
    assert busy.wait(10)
    drive([Suite("quick", ())], either, lambda suite: told.append(suite.name))
    free.set()
    slow.join(10)
    here = threading.current_thread().name
    assert ran == [(here, "quick"), (here, "first"), (here, "second"), ("a", "slow")]
    assert sorted(told) == ["first", "quick", "second", "slow"]


def test_a_suite_that_runs_nothing_has_failed() -> None:
    suite = Suite("none", (("true",),))
    suite.run()
    assert suite.failed
