"""The console's process: options → pages on a port, until SIGTERM or Ctrl-C."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from streams.adapters.address import bracketed
from streams.adapters.web import WebServer
from streams.cli.errors import ConfigurationError
from streams.console.app import build
from streams.console.doors import LOOPBACK, name_of
from streams.console.visit import Console

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8190
STOP_S: Final = 5
"""Pages in hand at SIGTERM are shown within that."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where it listens, and under which names it is asked for there."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    """0 lets the system choose."""
    names: frozenset[str] = frozenset()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return name_of(bracketed(self.host)) in LOOPBACK


def serve(console: Console, place: Place, ready: Callable[[str], None]) -> None:
    """Serves until it is told to stop.

    Args:
        console: what is shown.
        place: where.
        ready: told the address once it listens.

    Raises:
        ConfigurationError: the port is taken, or the address is not this machine's.
    """
    names = place.names | {name_of(bracketed(place.host))}
    try:
        server = WebServer(build(console, names), place.host, place.port)
    except OSError as error:
        raise ConfigurationError(
            f"--port {place.port}: cannot listen on {place.host}: {error.strerror}",
            fix="`tailrace console --port 0` takes a free one",
        ) from error
    with server:
        asyncio.run(server.serve(STOP_S, lambda address: ready(f"{address}/")))
