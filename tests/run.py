"""`python -m tests.run`: every suite of CI, in two lanes, with the time each took.

One lane starts the whole stack, again and again, and mostly waits; the other computes and talks to
databases of its own. So two cores are used and no two stacks run at the same time. A failing suite
does not stop the others; the exit code is 1 if any failed or ran nothing.
"""

import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "tests"
PYTEST = (sys.executable, "-m", "pytest", "-q")
COVERAGE = (sys.executable, "-m", "coverage")
INTEGRATION = ROOT / "tests" / "integration"
ON_THE_STACK = ("connectors", "engine", "journey", "sandbox")


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
    return tuple(f"tests/integration/{p.name}" for p in folders if p.name not in ON_THE_STACK)


def lanes() -> tuple[list[Suite], list[Suite]]:
    """The suites: those that compute, those on the whole stack."""
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
        Suite("on real databases", ((*PYTEST, *_others()),)),
    ]
    on_the_stack = [
        Suite("the journey on the whole stack", ((*PYTEST, "tests/integration/journey"),)),
        Suite("drills on the whole stack", ((*PYTEST, "tests/drills", "-m", "not long"),)),
        *(
            Suite(f"{name} on real parts", ((*PYTEST, f"tests/integration/{name}"),))
            for name in ON_THE_STACK
            if name != "journey" and (INTEGRATION / name / "__init__.py").is_file()
        ),
    ]
    return computing, on_the_stack


def main() -> int:
    """Runs all suites; 1 if any failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    both = lanes()
    said = threading.Lock()

    def drive(lane: list[Suite]) -> None:
        for suite in lane:
            suite.run()
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

    threads = [threading.Thread(target=drive, args=(lane,)) for lane in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    suites = [suite for lane in both for suite in lane]
    failed = sum(suite.failed for suite in suites)
    passed = sum(suite.passed for suite in suites)
    sys.stdout.write(f"\n{passed} passed, {failed} failed\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
