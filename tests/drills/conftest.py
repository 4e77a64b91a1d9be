"""One real stack for all drills of a run; each drill has tenants and workers of its own."""

from collections.abc import Iterator

import pytest

from tests.support.live import LiveStack, live_stack


@pytest.fixture(scope="session")
def running_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    with live_stack(tmp_path_factory.mktemp("drills") / "stack") as stack:
        yield stack


@pytest.fixture
def stack(running_stack: LiveStack) -> Iterator[LiveStack]:
    yield running_stack
    running_stack.stand_in.clear_faults()
    running_stack.stop_workers()
