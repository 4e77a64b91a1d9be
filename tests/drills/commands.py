"""`tailrace drill list` and `run`: the drills of this checkout, through pytest.

In: what was typed. Out: a table or a run, and the exit code: 0 all is well, 1 a drill failed or
could not be run, 69 nothing of what was asked for can run here.
"""

import contextlib
import difflib
import io
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from sandbox.machine import probe
from sandbox.paths import Paths
from sandbox.prerequisites import find_problems
from streams.cli import terminal
from streams.cli.errors import (
    FINDING,
    FINE,
    ConfigurationError,
    UnavailableError,
    UsageProblemError,
)
from tests.drills.drill import Drill, drills_of
from tests.drills.outcome import Outcome
from tests.drills.reporter import Reporter
from tests.support.stack import ROOT, StackError, provider_of

FOLDER: Final = ROOT / "tests" / "drills"
SEEDS: Final = 1_000_000
"""Of as many a run without a seed chooses one."""


class _Watch:
    """What of a run of pytest is needed afterwards."""

    def __init__(self) -> None:
        self.drills: Mapping[str, Drill] = {}
        self.reporter: Reporter | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Which drills there are."""
        self.drills = {name: drill for name, (drill, _) in drills_of(session.items).items()}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """What became of them."""
        self.reporter = session.config.pluginmanager.get_plugin("drill-reporter")


def show(*, as_json: bool, folder: Path = FOLDER) -> int:
    """Prints every drill with its size, and why none can run here if that is so."""
    drills, reason = _collected(folder), _missing(os.environ)
    if as_json:
        rows = [
            {"name": d.name, "size": d.size, "about": d.about, "not_run": reason or None}
            for d in drills.values()
        ]
        terminal.emit_json({"drills": rows})
        return FINE
    terminal.show_table(
        ("name", "size", "what happens"), ((d.name, d.size, d.about) for d in drills.values())
    )
    if reason:
        terminal.say(f"not run: {reason}")
    return FINE


@dataclass(frozen=True, slots=True)
class Length:
    """How long the drills take that take as long as one likes, and from which seed."""

    minutes: float | None = None
    seed: int | None = None

    @property
    def given(self) -> bool:
        return self != Length()

    def options(self) -> Iterator[str]:
        """For pytest; the seed is chosen here, so that a run without one has another each time."""
        if self.minutes is not None:
            yield f"--drill-minutes={self.minutes}"
        yield f"--drill-seed={secrets.randbelow(SEEDS) if self.seed is None else self.seed}"


def run(
    names: Sequence[str],
    *,
    everything: bool,
    out: Path | None,
    where_possible: bool = False,
    length: Length = Length(),
    folder: Path = FOLDER,
) -> int:
    """Runs drills and leaves a report of each; blocks until the stack is down again.

    Raises:
        UsageProblemError: no drill is named, or one that is not there.
        ConfigurationError: the machine cannot run a stack; nothing was started.
        UnavailableError: none of the named drills can run here.
        KeyboardInterrupt: it was stopped; the stack is down.
    """
    if everything == bool(names):
        raise UsageProblemError("name drills, or give --all", fix="`tailrace drill list`")
    drills = _collected(folder)
    wanted = _chosen(names, drills)
    if length.given and not any(drills[name].alone for name in wanted):
        alone = ", ".join(name for name, drill in drills.items() if drill.alone)
        raise UsageProblemError(
            "--minutes and --seed are not for these drills", fix=f"they are for {alone}"
        )
    reason = _missing(os.environ)
    if reason:
        raise ConfigurationError(
            f"no drill can run here: {reason}",
            fix="`tailrace sandbox up` tells the way out of each",
        )
    chosen = [f"--drill={name}" for name in wanted] or ["--drill-full"]
    where = [] if out is None else [f"--drill-out={Path.cwd() / out}"]
    watch = _Watch()
    options = (*chosen, *where, *length.options())
    code = pytest.main(["-q", *options, *_place(folder)], plugins=[watch])
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    outcomes = [] if watch.reporter is None else list(watch.reporter.outcomes.values())
    if not outcomes or code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        raise ConfigurationError(f"pytest ended with {code}", fix="see what it printed")
    if not any(outcome.begun and outcome.not_run is None for outcome in outcomes):
        why = outcomes[0].not_run or "what it needs could not be started, see above"
        raise UnavailableError(f"not run: {why}", fix="run it on a machine that has it")
    left_out = _tell_left_out(outcomes)
    if everything:
        terminal.say("`python -m tests.drills.page` writes docs/drills.md from this run")
    proven = code == pytest.ExitCode.OK and (where_possible or not left_out)
    return FINE if proven else FINDING


def _tell_left_out(outcomes: Sequence[Outcome]) -> bool:
    """Says which drills could not be run and why; whether there are any."""
    left_out = [outcome for outcome in outcomes if outcome.not_run is not None]
    for outcome in left_out:
        terminal.say(f"not run: {outcome.drill.name}: {outcome.not_run}")
    return bool(left_out)


def _place(folder: Path) -> tuple[str, ...]:
    """Where the drills are, whatever directory the command is typed in."""
    return ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), str(folder))


def _collected(folder: Path) -> Mapping[str, Drill]:
    watch, said = _Watch(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(["--collect-only", "-q", *_place(folder)], plugins=[watch])
    if code != pytest.ExitCode.OK:
        raise ConfigurationError(
            f"the drills cannot be read:\n{said.getvalue()}", fix="mend what is named"
        )
    return watch.drills


def _chosen(names: Sequence[str], drills: Mapping[str, Drill]) -> list[str]:
    """The drills of these names; `worker-killed` is all that begin with `worker-killed-`, too."""
    wanted: list[str] = []
    for name in names:
        found = [each for each in drills if each == name or each.startswith(f"{name}-")]
        if not found:
            near = difflib.get_close_matches(name, drills, n=3)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise UsageProblemError(f"no such drill: {name}.{meant}", fix="`tailrace drill list`")
        wanted += found
    return wanted


def _missing(environ: Mapping[str, str]) -> str:
    """What keeps a stack from starting on this machine; empty where it can."""
    try:
        if provider_of(environ) == "docker":
            return ""
    except StackError as error:
        return str(error)
    with tempfile.TemporaryDirectory() as place:
        problems = find_problems(probe(Paths(Path(place)), environ))
    return "; ".join(problem.what for problem in problems)
