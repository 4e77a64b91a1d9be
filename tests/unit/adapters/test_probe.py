"""The worker's three pages."""

import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aiohttp import ClientSession

from streams.adapters.probe import Probe


@dataclass
class Served:
    waits_for: str | None = None
    figures: bytes = b"usage_records_total 1.0\n"
    address: str = ""

    async def get(self, page: str) -> tuple[int, str, str]:
        async with ClientSession() as session, session.get(self.address + page) as answer:
            return answer.status, await answer.text(), answer.content_type


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    state = Served()
    probe = Probe("127.0.0.1", 0, lambda: state.waits_for, lambda: state.figures)
    state.address = await probe.start()
    yield state
    await probe.stop()


async def test_a_worker_that_serves_is_ready(served: Served) -> None:
    assert await served.get("/ready") == (200, "ready\n", "text/plain")


async def test_a_worker_that_waits_says_for_what(served: Served) -> None:
    served.waits_for = "the meter catalogue in the ledger"
    status, text, _ = await served.get("/ready")
    assert (status, text) == (503, "waits for the meter catalogue in the ledger\n")


async def test_a_worker_that_waits_is_healthy_all_the_same(served: Served) -> None:
    """A supervisor must not kill it for what it waits for."""
    served.waits_for = "anything"
    assert (await served.get("/health"))[:2] == (200, "ok\n")


async def test_metrics_are_read_anew_each_time(served: Served) -> None:
    assert await served.get("/metrics") == (200, "usage_records_total 1.0\n", "text/plain")
    served.figures = b"usage_records_total 2.0\n"
    assert (await served.get("/metrics"))[1] == "usage_records_total 2.0\n"


async def test_there_is_no_other_page(served: Served) -> None:
    assert (await served.get("/"))[0] == 404


async def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        probe = Probe("127.0.0.1", taken.getsockname()[1], lambda: None, lambda: b"")
        with pytest.raises(OSError, match="address already in use"):
            await probe.start()
        await probe.stop()


async def test_a_probe_that_never_started_stops_quietly() -> None:
    await Probe("127.0.0.1", 0, lambda: None, lambda: b"").stop()
