"""The console's process: options → pages on a port, until SIGTERM or Ctrl-C."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import uvicorn

from streams.cli.errors import ConfigurationError
from streams.console.app import build
from streams.console.doors import LOOPBACK, name_of
from streams.console.visit import Console

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8190


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
        return name_of(_bracketed(self.host)) in LOOPBACK


def serve(console: Console, place: Place, ready: Callable[[str], None]) -> None:
    """Serves until it is told to stop.

    Args:
        console: what is shown.
        place: where.
        ready: told the address once it listens.

    Raises:
        ConfigurationError: the port is taken, or the address is not this machine's.
    """
    names = place.names | {name_of(_bracketed(place.host))}
    config = uvicorn.Config(
        build(console, names),
        host=place.host,
        port=place.port,
        log_config=None,
        access_log=False,
        server_header=False,
        # A name that a proxy adds would be believed by the doors.
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )
    try:
        listening = config.bind_socket()
    except SystemExit as error:
        raise ConfigurationError(
            f"--port {place.port}: cannot listen on {place.host}: it is taken, or not ours",
            fix="`tailrace console --port 0` takes a free one",
        ) from error
    with listening:
        port = listening.getsockname()[1]
        # Bound is not yet open: whoever comes at the word waits in the queue until it serves.
        listening.listen(config.backlog)
        ready(f"http://{_bracketed(place.host)}:{port}/")
        uvicorn.Server(config).run(sockets=[listening])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
