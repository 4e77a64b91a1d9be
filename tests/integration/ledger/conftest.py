"""One fresh ledger a test, seen through a login that has only the workers' role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from streams.adapters.ledger import Ledger, open_ledger
from tests.integration.ledger.world import EVENTWISE, WINDOWED, World
from tests.support.postgres import Database


@pytest.fixture
def database(fresh_database: Callable[..., Database]) -> Database:
    return fresh_database("ledger")


@pytest.fixture
async def ledger(database: Database) -> AsyncIterator[Ledger]:
    async with open_ledger(database.dsn(database.login("ledger_service"))) as opened:
        yield opened


@pytest.fixture
async def world(database: Database, ledger: Ledger) -> AsyncIterator[World]:
    await ledger.catalogue.append_meters([WINDOWED, EVENTWISE], "tests")
    _, now_us = await ledger.load_catalogue()
    with database.connect() as admin:
        seen = World(database, ledger, admin, now_us)
        yield seen
        seen.check()
        assert seen.rows("SELECT lane_id FROM ledger.lane WHERE paused") == []
