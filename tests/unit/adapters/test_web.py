"""A web application on a port: taken at once, told when it serves, ended in order."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientConnectionError, ClientSession
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from streams.adapters.pages import Pages
from streams.adapters.web import WebServer
from tests.support.waiting import eventually


@dataclass
class Served:
    """An application whose one page is answered when a test lets it."""

    ready: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    let: asyncio.Event = field(default_factory=asyncio.Event)

    async def page(self, _request: Request) -> Response:
        self.asked.set()
        await self.let.wait()
        return PlainTextResponse("answered")

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/", self.page)])


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    state = Served()
    with WebServer(state.app, "127.0.0.1", 0) as server:
        assert state.ready == []
        serving = asyncio.create_task(server.serve(20, state.ready.append))
        await eventually("it serves", lambda: bool(state.ready))
        assert state.ready == [server.address]
        yield state
        state.let.set()
        os.kill(os.getpid(), signal.SIGTERM)
        await serving


async def ask(address: str) -> str:
    async with ClientSession() as session, session.get(address) as answer:
        return await answer.text()


async def refused(address: str) -> bool:
    try:
        await ask(address)
    except ClientConnectionError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_stop_it_answers_what_it_has_and_takes_no_more(
    served: Served, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (address,) = served.ready
    answer = asyncio.create_task(ask(address))
    await served.asked.wait()
    os.kill(os.getpid(), number)
    await eventually("it takes no more", lambda: refused(f"{address}/no-such-page"))
    await eventually("it waits for what it has", lambda: "Waiting for" in caplog.text)
    assert not answer.done()
    served.let.set()
    assert await answer == "answered"


async def test_a_port_is_had_before_it_serves() -> None:
    with WebServer(Served().app, "127.0.0.1", 0) as server:
        port = int(server.address.rpartition(":")[2])
        with pytest.raises(OSError, match="Address already in use"):
            WebServer(Served().app, "127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port)):
            pass
    WebServer(Served().app, "127.0.0.1", port).__exit__()


async def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        WebServer(Served().app, "192.0.2.1", 0)


async def test_an_address_of_the_sixth_version_is_told_in_brackets() -> None:
    with WebServer(Served().app, "::1", 0) as server:
        assert server.address.startswith("http://[::1]:")
    pages = Pages("::1", 0)
    assert (await pages.start([])).startswith("http://[::1]:")
    await pages.stop()
