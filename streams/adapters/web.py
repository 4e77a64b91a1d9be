"""A web application → served on a port until the process is told to stop.

The port is taken before anything else begins, so that a second process ends by name and starts
nothing; whoever comes before it serves waits in the port's queue.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

import uvicorn

from streams.adapters.address import http_address
from streams.adapters.signals import on_stop

BACKLOG: Final = 2048
"""Connections that wait to be accepted."""


class WebServer:
    """Has its port from its construction to the end of its `with` block."""

    def __init__(self, app: Any, host: str, port: int) -> None:
        """Takes the port.

        Args:
            app: an ASGI application.
            host: address to bind.
            port: its port, 0 for any.

        Raises:
            OSError: the port is taken, or the address is not this machine's.
        """
        self._app = app
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def address(self) -> str:
        """Where it is reached, such as `http://127.0.0.1:8190`."""
        host, port = self._socket.getsockname()[:2]
        return http_address(host, port)

    async def serve(self, stop_s: int, ready: Callable[[str], None]) -> None:
        """Serves until SIGTERM or SIGINT.

        Args:
            stop_s: calls in hand then are answered within that.
            ready: told the address once it serves.
        """
        config = uvicorn.Config(
            self._app,
            backlog=BACKLOG,
            log_config=None,
            access_log=False,
            server_header=False,
            # What a proxy adds would be believed: a name by the console's doors.
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=stop_s,
        )
        server = _Server(config, lambda: ready(self.address))
        on_stop(server.end)
        await server.serve(sockets=[self._socket])


class _Server(uvicorn.Server):
    """Says when it serves, and leaves signals to us: its own way ends before we have closed."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def end(self) -> None:
        """No new calls; returns once those in hand are answered."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
