"""The stand-in as a running thing: journal, engine, faults and a port, from start to stop.

In: `ServiceSettings`. Out: a listening stand-in; `stop` leaves the journal whole.
"""

import asyncio
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from sandbox.stripe_sandbox.control import Control
from sandbox.stripe_sandbox.delivery import Delivery
from sandbox.stripe_sandbox.engine import Engine
from sandbox.stripe_sandbox.fact import Fact, Meter
from sandbox.stripe_sandbox.faults import Faults
from sandbox.stripe_sandbox.journal import Journal
from sandbox.stripe_sandbox.meter_events import meter_id
from sandbox.stripe_sandbox.routes import Routes
from sandbox.stripe_sandbox.server import BODY_BYTES_MAX, Api, Clock
from sandbox.stripe_sandbox.settings import US_PER_S, Settings
from sandbox.stripe_sandbox.state import State


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Where the stand-in listens and remembers."""

    state_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    """0 chooses a free one."""
    meters: Path | None = None
    """A meters.toml whose meters exist from the start."""
    seed: int = 0
    """Seed of the faults' chance."""
    rules: Settings = field(default_factory=Settings)


class Service:
    """One stand-in."""

    def __init__(self, settings: ServiceSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._journal = Journal(settings.state_dir)
        state = State()
        for fact in self._journal.replay():
            state.apply(fact)
        routes = Routes(state, settings.rules)
        self.engine = Engine(state, settings.rules, routes, self._journal.append, clock())
        self.api = Api(self.engine, Faults(settings.seed), clock)
        self.delivery = Delivery(self.engine, clock, settings.seed)
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=1.0)
        self._site: web.TCPSite | None = None
        self._reopening: asyncio.Task[None] | None = None
        self.port = settings.port

    @property
    def url(self) -> str:
        """Base address of the API."""
        return f"http://{self._settings.host}:{self.port}"

    async def start(self) -> None:
        """Creates the meters, then listens.

        Raises:
            OSError: The port is taken.
        """
        if self._settings.meters is not None:
            self.create_meters(read_event_names(self._settings.meters))
        await self._runner.setup()
        await self._listen()
        self.delivery.start()

    async def stop(self) -> None:
        """Stops listening, lets go of stalled requests, closes the journal."""
        if self._reopening is not None:
            self._reopening.cancel()
        await self.delivery.stop()
        self.api.faults.clear()
        self.api.released.set()
        await self._runner.cleanup()
        self._journal.__exit__()

    def create_meters(self, event_names: list[str]) -> None:
        """Sum meters for the names nobody listens to yet."""
        state = self.engine.state
        now_us = self._clock()
        new: list[Fact] = [
            Meter(meter_id(name, 0), name, name, now_us // US_PER_S)
            for name in event_names
            if state.meter_named(name) is None
        ]
        self.engine.remember(new)

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.add_routes(Control(self.api, self.delivery, self._refuse).routes())
        app.router.add_route("*", "/{tail:.*}", self.api.handle)
        return app

    async def _listen(self) -> None:
        self._site = web.TCPSite(self._runner, self._settings.host, self.port, reuse_address=True)
        await self._site.start()
        if self.port == 0:
            self.port = self._runner.addresses[0][1]

    async def _refuse(self, http: web.Request, duration_ms: int) -> None:
        """Closes the port and every connection but the one that ordered it."""
        if self._site is None or self._reopening is not None:
            return
        site, self._site = self._site, None
        await site.stop()
        server = self._runner.server
        for connection in [] if server is None else server.connections:
            if connection.transport is not http.transport:
                connection.force_close()
        self._reopening = asyncio.create_task(self._reopen(duration_ms))

    async def _reopen(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1_000)
        await self._listen()
        self._reopening = None


class MetersFileError(Exception):
    """The meters file cannot be used: file, place and rule. Correct it and start again."""


def read_event_names(path: Path) -> list[str]:
    """The event names of a meters.toml, each once, in order.

    Raises:
        MetersFileError: It cannot be read, or a meter has no event_name.
    """
    try:
        with path.open("rb") as file:
            content: dict[str, Any] = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        message = f"{path}: {error}"
        raise MetersFileError(message) from None
    names: dict[str, None] = {}
    for name, meter in content.get("meters", {}).items():
        versions = meter if isinstance(meter, list) else [meter]
        for version in versions:
            event_name = version.get("event_name") if isinstance(version, dict) else None
            if not isinstance(event_name, str):
                message = f"{path}: meters.{name}.event_name: must be a text"
                raise MetersFileError(message)
            names[event_name] = None
    return list(names)
