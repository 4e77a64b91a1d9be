"""The stacks of the drills, and a report of each.

`stack` is shared by all drills of a run, which keep to tenants and workers of their own. It is made
anew after a drill that failed on it, or that left a part of it down, so that no drill wrecks the
next. `own_stack` is for a drill that wrecks it on purpose.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.drills.reporter import Reporter
from tests.drills.shared import SharedStack
from tests.support.live import LiveStack, live_stack
from tests.support.stack import ROOT

OUT = ROOT / "build" / "drills"
FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `tailrace drill run` tells pytest."""
    group = parser.getgroup("drills")
    group.addoption("--drill", action="append", default=[], help="name of a drill to run")
    group.addoption("--drill-out", type=Path, default=OUT, help="where the reports go")
    group.addoption("--drill-full", action="store_true", help="this is a run of all drills")
    group.addoption("--drill-minutes", type=float, default=30.0, help="length of the soak")
    group.addoption("--drill-seed", type=int, default=1, help="of the soak's faults and usage")


def pytest_configure(config: pytest.Config) -> None:
    """Without the options where a run of more than the drills has come to this folder late."""
    out = config.getoption("drill_out", OUT)
    full = bool(config.getoption("drill_full", default=False))
    reporter = Reporter(out, config.getoption("drill", []), full=full)
    config.pluginmanager.register(reporter, "drill-reporter")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells the fixtures of a drill how it went."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedStack]:
    with SharedStack(tmp_path_factory.mktemp("drills")) as keeper:
        yield keeper
        keeper.judge_again()


@pytest.fixture
def stack(request: pytest.FixtureRequest, shared: SharedStack) -> Iterator[LiveStack]:
    """The stack of all drills, sound."""
    yield shared.sound()
    shared.clear(broken=request.node.stash.get(FAILED, False))


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[LiveStack]:
    """A stack of the drill's own, without workers, which it may leave in any state."""
    with live_stack(tmp_path / "stack") as own:
        yield own
