"""What became of a drill: its figures, its line in the table, its report.

A drill is `ok` only if it passed *and* the oracle found nothing: without a verdict it is not.
"""

import shlex
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.drills.drill import Drill
from tests.support.oracle import Verdict
from tests.support.witness import Moment, Witness

FIGURES = tuple(Verdict().figures)
STEPS_MAX = 400
"""Lines of a report's story; what a storm repeats is told once, with its number."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One drill's run."""

    drill: Drill
    began: datetime
    seconds: float
    """Of the drill itself, without the start of the stack."""
    passed: bool
    witness: Witness
    problem: str = ""
    """What pytest says of a failure."""
    not_run: str | None = None
    """Why it could not be made here."""
    begun: bool = True
    """Whether it had what it needs, a stack above all."""
    left: Path | None = None
    """Where the stack of one that failed is; it is stopped, with its data and logs."""

    @property
    def verdict(self) -> Verdict | None:
        return self.witness.verdict

    @property
    def ok(self) -> bool:
        return self.passed and self.verdict is not None and self.verdict.exact

    @property
    def word(self) -> str:
        if self.not_run is not None:
            return "not run"
        return "ok" if self.ok else "FAILED"

    @property
    def said(self) -> str:
        """The figures, or why there are none."""
        if self.not_run is not None:
            return self.not_run
        return "the oracle did not run" if self.verdict is None else str(self.verdict)

    def line(self) -> str:
        """Its line in the table."""
        return f"{self.word:8}{self.seconds:7.1f} s  {self.drill.name:32}  {self.said}"

    def summary(self) -> dict[str, Any]:
        """Its part of summary.json; figures that nobody has determined are null.

        What could not be run is not ok: whoever counts what is ok has counted what was proven.
        """
        figures: dict[str, Any] = dict.fromkeys(FIGURES)
        if self.verdict is not None:
            figures = dict(self.verdict.figures)
        return {
            "name": self.drill.name,
            "ok": self.ok,
            **figures,
            "seconds": round(self.seconds, 1),
            "not_run": self.not_run,
        }

    def record(self) -> dict[str, Any]:
        """Its part of full.json: the summary, and what the page of drills tells besides."""
        worst = self.witness.worst
        return {
            **self.summary(),
            "about": self.drill.about,
            "long": self.drill.long,
            "units": worst[1].expected_units if worst else 0,
            "pending_at_worst": worst[1].pending if worst else 0,
            "seen": [str(failure) for failure in self.witness.failures],
            "proofs": self.witness.proofs,
        }

    def report(self) -> str:
        """The report, in Markdown."""
        return "\n".join(self._report()) + "\n"

    def _report(self) -> Iterator[str]:
        yield f"# {self.drill.name}: {self.word}"
        yield from ("", self.drill.about, "", f"**{self.said}**", "")
        yield f"- began {self.began:%Y-%m-%d %H:%M:%S} UTC, took {self.seconds:.1f} s"
        seeds = ", ".join(f"{name} {seed}" for name, seed in self.witness.seeds.items())
        yield f"- seeds of the usage: {seeds or 'none'}"
        yield from ("", "## Seen: the failed state, then the recovery", "")
        yield from self._seen()
        yield from ("", "## What was done", "")
        yield from self._story()
        yield from ("", "## Evidence", "")
        yield from self._evidence()

    def _seen(self) -> Iterator[str]:
        witness = self.witness
        shown = [
            ("**seen first**", at_s, f"{number} {what}") for at_s, number, what in witness.failures
        ]
        if not shown:
            yield from (
                "The failed state was not shown: nobody counted it before the recovery.",
                "",
            )
        if witness.worst is not None:
            seen = witness.progress
            looks = (
                ("first look", seen[0]),
                ("most pending", witness.worst),
                ("at the end", seen[-1]),
            )
            shown += [(when, at_s, str(progress)) for when, (at_s, progress) in looks]
        if shown:
            yield from ("| | at | |", "| --- | ---: | --- |")
        for when, at_s, what in shown:
            yield f"| {when} | {at_s:.1f} s | {what} |"

    def _story(self) -> Iterator[str]:
        told = [
            (first.at_s, what, sum(1 for _ in rest) + 1)
            for what, moments in groupby(self._moments(), lambda moment: moment.what)
            for first, rest in [(next(moments), moments)]
        ]
        for at_s, what, times in told[:STEPS_MAX]:
            yield f"- {at_s:.1f} s: {what}{f' ({times} times)' if times > 1 else ''}"
        if len(told) > STEPS_MAX:
            yield f"- and {len(told) - STEPS_MAX} more steps"
        if not told:
            yield "- nothing"

    def _moments(self) -> Iterator[Moment]:
        """What was done, and before each step how far it was."""
        looks = deque(self.witness.progress)
        for action in self.witness.actions:
            seen = None
            while looks and looks[0][0] <= action.at_s:
                seen = looks.popleft()
            if seen is not None:
                yield Moment(seen[0], f"*{seen[1]}*")
            yield action

    def _evidence(self) -> Iterator[str]:
        verdict = self.verdict
        yield from (f"- {proof}" for proof in self.witness.proofs)
        if self.witness.proofs:
            yield ""
        if verdict is not None:
            yield f"Key registry, ledger and Stripe were compared: {', '.join(verdict.compared)}."
            yield from ("", *(f"- {difference}" for difference in verdict.differences))
        elif self.not_run is None:
            yield "None: the oracle did not run."
        if self.left is not None:
            yield from (
                "",
                f"Its stack is stopped, its data and logs are in `{self.left}`; what is in "
                "`logs/test-*.log` are the drill's workers. To look into it, until two more runs "
                "are over:",
                "",
                "```",
                f"tailrace sandbox up --dir {shlex.quote(str(self.left))}",
                f"tailrace status --dir {shlex.quote(str(self.left))}",
                "```",
            )
        if self.problem:
            yield from ("", "```", *self.problem.splitlines()[-60:], "```")
