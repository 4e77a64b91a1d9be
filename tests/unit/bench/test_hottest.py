"""Where the time goes is said by name, the most expensive first, and waiting is no work."""

import subprocess
import sys
from pathlib import Path

from tests.bench.hottest import hottest, shares
from tests.bench.stack import ROOT

WORKER = """
import select, sys

def burn():
    return sum(number * number for number in range(1_000_000))

def rest():
    select.select([], [], [], 1.0)

rest()
burn()
sys.exit(int(sys.argv[1]))
"""


def test_the_module_that_works_is_named_and_not_the_wait(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER, encoding="utf-8")
    record = tmp_path / "worker.pstats"
    command = (sys.executable, "-m", "tests.bench.profiled", str(record), "worker", "7")
    path = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, cwd=ROOT, env=path, check=False)
    assert done.returncode == 7, "the module ends as it would alone"
    assert hottest(record, named=1).startswith("worker.py ")
    assert "select" not in hottest(record)


def test_parts_are_told_by_their_share() -> None:
    assert shares({"rdk:broker": 1.0, "python": 2.99, "rdk:main": 0.01}) == (
        "python 75%, rdk:broker 25%"
    )
    assert shares({}) == ""
