"""One real stack for all drills of a run, and a report of each: tenants and workers are its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.reporter import Reporter
from tests.support.live import LiveStack, live_stack
from tests.support.stack import ROOT

OUT = ROOT / "build" / "drills"


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `tailrace drill run` tells pytest."""
    group = parser.getgroup("drills")
    group.addoption("--drill", action="append", default=[], help="name of a drill to run")
    group.addoption("--drill-out", type=Path, default=OUT, help="where the reports go")
    group.addoption("--drill-full", action="store_true", help="this is a run of all drills")


def pytest_configure(config: pytest.Config) -> None:
    """Without the options where a run of more than the drills has come to this folder late."""
    out = config.getoption("drill_out", OUT)
    full = bool(config.getoption("drill_full", default=False))
    reporter = Reporter(out, config.getoption("drill", []), full=full)
    config.pluginmanager.register(reporter, "drill-reporter")


@pytest.fixture(scope="session")
def running_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    with live_stack(tmp_path_factory.mktemp("drills") / "stack") as stack:
        yield stack


@pytest.fixture
def stack(running_stack: LiveStack) -> Iterator[LiveStack]:
    yield running_stack
    running_stack.stand_in.clear_faults()
    running_stack.stop_workers()
