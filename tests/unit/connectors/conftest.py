from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.connect_client import ConnectClient
from tests.unit.connectors.fake_connect import FakeConnect, FakeTime, connected


@pytest.fixture
def fake() -> FakeConnect:
    return FakeConnect()


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def client(fake: FakeConnect, time: FakeTime) -> Iterator[ConnectClient]:
    with connected(fake, time) as made:
        yield made
