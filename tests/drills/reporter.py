"""The plugin of pytest that makes a drill's report: what was done and seen, and the oracle's word.

In: tests marked `drill`. Out: NAME.md for each and summary.json for all of a run, those that could
not be run with the reason, written as soon as a drill is over; full.json after a run of all of
them. A drill that the oracle has not judged fails, whatever it asserted itself, as does one that
has not counted its failed state, and one that fails on the way is judged where it stands. What is
written into `Books` is judged by itself; a drill with another measure says `witness.judged`.
"""

import contextlib
from collections.abc import Generator, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.drills.drill import Drill, DrillsError, drill_of, drills_of
from tests.drills.outcome import Outcome
from tests.support.not_run import reason_of
from tests.support.witness import Witness, witnessed

SUMMARY: Final = "summary.json"
FULL: Final = "full.json"
ALONE: Final = ".alone.json"
"""After the name of a drill that runs alone: its record, which no full run touches."""
_FINISHED: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
_Report = Generator[None, pytest.TestReport, pytest.TestReport]


class Reporter:
    """Watches the drills of one run."""

    def __init__(self, out: Path, wanted: Iterable[str] = (), *, full: bool = False) -> None:
        """Writes nothing yet.

        Args:
            out: directory of the reports.
            wanted: names of the drills to run; none: what pytest has selected.
            full: whether this is a run of all of them.
        """
        self.out = out
        self.outcomes: dict[str, Outcome] = {}
        self._wanted = tuple(wanted)
        self._full = full
        self._watched: dict[str, tuple[Drill, Witness]] = {}

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keeps what is wanted."""
        try:
            drills = drills_of(items)
        except DrillsError as error:
            raise pytest.UsageError(str(error)) from None
        unknown = sorted(set(self._wanted) - drills.keys())
        if unknown:
            raise pytest.UsageError(f"no such drill: {', '.join(unknown)}")
        if self._wanted:
            kept = [item for name, (_, item) in drills.items() if name in self._wanted]
        elif config.option.collectonly:
            return
        else:
            alone = [item for drill, item in drills.values() if drill.alone]
            kept = [item for item in items if item not in alone]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Listens from the first fixture to the last."""
        drill = drill_of(item)
        if drill is None:
            return (yield)
        with witnessed() as witness:
            self._watched[item.nodeid] = (drill, witness)
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        """Has everything judged."""
        if pyfuncitem.nodeid not in self._watched:
            return (yield)
        _, witness = self._watched[pyfuncitem.nodeid]
        try:
            result = yield
        except (Exception, pytest.fail.Exception):
            with contextlib.suppress(Exception):  # the failure itself is the news
                witness.judge_the_rest()
            raise
        witness.judge_the_rest()
        if witness.verdict is None:
            pytest.fail("the oracle did not run: a drill that nobody has judged proves nothing")
        if not witness.verdict.exact:
            pytest.fail("\n".join((str(witness.verdict), *witness.verdict.differences)))
        if not witness.failures:
            pytest.fail("the failed state was not shown: nobody counted it before the recovery")
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> _Report:
        """Takes down how each phase of a drill went."""
        report = yield
        if item.nodeid in self._watched and (report.when == "call" or not report.passed):
            drill, witness = self._watched[item.nodeid]
            known = self.outcomes.get(drill.name)
            self._take(
                Outcome(
                    drill=drill,
                    began=known.began if known else datetime.fromtimestamp(call.start, UTC),
                    seconds=known.seconds if known else call.duration,
                    passed=report.passed,
                    witness=witness,
                    problem=report.longreprtext if report.failed else "",
                    not_run=_why_not(report),
                    begun=report.when != "setup",
                    left=_stack_of(item) if report.failed else None,
                )
            )
        return report

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """After a run that came to its end: the record of it, if it was of all, or of one alone."""
        if self._full and exitstatus in _FINISHED and self.outcomes:
            began = min(outcome.began for outcome in self.outcomes.values())
            drills = [outcome.record() for outcome in self.outcomes.values()]
            _write(self.out / FULL, {"began": f"{began:%Y-%m-%dT%H:%M:%SZ}", "drills": drills})
        for outcome in self.outcomes.values():
            if outcome.drill.alone and exitstatus in _FINISHED:
                _write(self.out / f"{outcome.drill.name}{ALONE}", outcome.record())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table."""
        if self.outcomes:
            terminalreporter.section(f"drills, reports in {self.out}")
        for outcome in self.outcomes.values():
            terminalreporter.write_line(outcome.line())

    def _take(self, outcome: Outcome) -> None:
        self.outcomes[outcome.drill.name] = outcome
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / f"{outcome.drill.name}.md").write_text(outcome.report(), encoding="utf-8")
        _write(self.out / SUMMARY, [each.summary() for each in self.outcomes.values()])


def _why_not(report: pytest.TestReport) -> str | None:
    if not report.skipped:
        return None
    return reason_of(report) or report.longreprtext or "skipped"


def _stack_of(item: pytest.Item) -> Path | None:
    """Where the stack of a drill keeps its files, once there is one."""
    given = getattr(item, "funcargs", {})
    stack = given.get("stack") or given.get("own_stack")
    return getattr(stack, "directory", None)


def _write(path: Path, value: Any) -> None:
    """Whole or not at all: somebody may read it while the next drill runs."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    fresh.replace(path)
