from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.engine.broker import Broker, running
from tests.integration.engine.world import World


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("engine-broker")) as started:
        yield started


@pytest.fixture(scope="session")
def kafka_bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
async def world(kafka_bootstrap: str, tmp_path: Path) -> AsyncIterator[World]:
    made = World(kafka_bootstrap, tmp_path)
    yield made
    await made.close()
