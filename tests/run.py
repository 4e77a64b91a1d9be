"""`python -m tests.run`: every suite of CI, one after the other, with the time each took.

One at a time, because they start databases and brokers and the machine may have two cores. The
first failing suite does not stop the others; the exit code is 1 if any failed.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-q")
COVERAGE = (sys.executable, "-m", "coverage")
SUITES: dict[str, tuple[tuple[str, ...], ...]] = {
    "core, to the last branch": (
        (*COVERAGE, "run", "-m", "pytest", "-q", "tests/unit/core"),
        (*COVERAGE, "report"),
    ),
    "units and contracts": (
        (*PYTEST, "tests/unit", "tests/contract", "--ignore=tests/unit/core"),
    ),
    "integration, on real databases, brokers and the whole stack": (
        (*PYTEST, "tests/integration"),
    ),
    "kill tests, on the whole stack": ((*PYTEST, "tests/drills"),),
}


def main() -> int:
    """Runs all suites; 1 if any failed."""
    lines, failed = [], False
    for name, commands in SUITES.items():
        sys.stdout.write(f"\n== {name}\n")
        sys.stdout.flush()
        began_s = time.monotonic()
        codes = [subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands]
        verdict = "FAILED" if any(codes) else "ok"
        failed = failed or any(codes)
        lines.append(f"{verdict:7} {time.monotonic() - began_s:6.1f} s  {name}")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
