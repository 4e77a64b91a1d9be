"""One real stack for the journeys of a run, with the sandbox's own worker."""

from collections.abc import Iterator

import pytest

from tests.support.live import LiveStack, live_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    with live_stack(tmp_path_factory.mktemp("journey") / "stack") as running:
        running.start_worker("journey")
        yield running
