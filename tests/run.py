"""`python -m tests.run`: every suite of CI, in three lanes, with the time each took.

One lane starts the whole stack, again and again, and mostly waits; one computes; one talks to
databases and brokers of its own, and waits for them half of the time. So two cores are used and no
two stacks run at the same time. What can run beside anything is left to the lane that comes to its
end first. A failing suite does not stop the others; the exit code is 1 if any failed or ran
nothing.
"""

import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "tests"
PYTEST = (sys.executable, "-m", "pytest", "-q")
COVERAGE = (sys.executable, "-m", "coverage")
INTEGRATION = ROOT / "tests" / "integration"
ON_THE_STACK = ("journey", "sandbox")
BESIDE_ANYTHING = {"engine": "on a real broker", "cli": "on real databases"}
"""Folders that any lane may run, whichever comes to its end first."""
REAL_CAPTURE = "tests/integration/connectors/test_real_connect.py"
"""Of a suite that needs no stack otherwise."""


@dataclass(slots=True)
class Suite:
    """Commands that make one line of the result."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    passed: int = 0
    failed: bool = False
    seconds: float = 0.0
    output: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Runs the commands, one after the other, and counts what pytest says it did."""
        began_s = time.monotonic()
        for command in self.commands:
            done = subprocess.run(
                command, cwd=ROOT, check=False, capture_output=True, text=True, errors="replace"
            )
            self.output.append(done.stdout + done.stderr)
            self.failed = self.failed or done.returncode != 0
            self.passed += sum(int(n) for n in re.findall(r"(\d+) passed", done.stdout))
        self.failed = self.failed or self.passed == 0
        self.seconds = time.monotonic() - began_s


def _others() -> tuple[str, ...]:
    """The integration suites that need no stack; a new folder is never forgotten."""
    folders = sorted(p for p in INTEGRATION.iterdir() if (p / "__init__.py").is_file())
    names = [p.name for p in folders if p.name not in {*ON_THE_STACK, *BESIDE_ANYTHING}]
    paths = (f"tests/integration/{name}" for name in names)
    return (*paths, f"--ignore={REAL_CAPTURE}", "-m", "not downloads")


@dataclass(frozen=True, slots=True)
class Lanes:
    """All suites, by where they run; each list in its order."""

    computing: list[Suite]
    on_the_stack: list[Suite]
    on_databases: list[Suite]
    either: list[Suite]
    """Run by the lane that has nothing else to do."""

    @property
    def own(self) -> tuple[list[Suite], ...]:
        """What each lane runs first."""
        return self.computing, self.on_the_stack, self.on_databases

    def suites(self) -> list[Suite]:
        return [*chain(*self.own), *self.either]


def lanes() -> Lanes:
    """The suites of CI."""
    computing = [
        Suite(
            "the core, to the last branch",
            (
                (*COVERAGE, "run", "-m", "pytest", "-q", "tests/unit/core"),
                (*COVERAGE, "report", "--skip-covered"),
            ),
        ),
        Suite(
            "units and contracts",
            ((*PYTEST, "tests/unit", "tests/contract", "--ignore=tests/unit/core"),),
        ),
        Suite("seeds and planted bugs on virtual time", ((*PYTEST, "tests/simulation"),)),
    ]
    on_databases = [Suite("the rest on real databases", ((*PYTEST, *_others()),))]
    on_the_stack = [
        Suite("drills on the whole stack", ((*PYTEST, "tests/drills", "-m", "not long"),)),
        *(
            Suite(f"the {name} on the whole stack", ((*PYTEST, f"tests/integration/{name}"),))
            for name in ON_THE_STACK
        ),
        Suite("capture on the whole stack", ((*PYTEST, REAL_CAPTURE),)),
    ]
    either = [
        Suite(f"the {name} {where}", ((*PYTEST, f"tests/integration/{name}"),))
        for name, where in BESIDE_ANYTHING.items()
    ]
    return Lanes(computing, on_the_stack, on_databases, either)


def drive(own: list[Suite], either: list[Suite], end: Callable[[Suite], None]) -> None:
    """Runs the suites of a lane, then what is left of those that any lane may run."""
    left = deque(own)
    while left or either:
        try:
            suite = left.popleft() if left else either.pop(0)
        except IndexError:  # another lane was faster
            return
        suite.run()
        end(suite)


def main() -> int:
    """Runs all suites; 1 if any failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    chosen = lanes()
    suites = chosen.suites()
    said = threading.Lock()

    def tell(suite: Suite) -> None:
        text = "\n".join(suite.output)
        (LOGS / f"{suite.name.replace(' ', '-').replace(',', '')}.log").write_text(text)
        with said:
            verdict = "FAILED" if suite.failed else "ok"
            sys.stdout.write(f"{verdict:7}{suite.seconds:7.1f} s  {suite.name}\n")
            for line in re.findall(r"^not run: .*$", text, re.MULTILINE):
                sys.stdout.write(f"       {line}\n")
            if suite.failed:
                sys.stdout.write(text[-20_000:] + "\n")
            sys.stdout.flush()

    threads = [
        threading.Thread(target=drive, args=(own, chosen.either, tell)) for own in chosen.own
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = sum(suite.failed for suite in suites)
    passed = sum(suite.passed for suite in suites)
    sys.stdout.write(f"\n{passed} passed, {failed} failed\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
