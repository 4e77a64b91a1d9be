"""The small web server under a process's own pages: figures, probes, Stripe's calls."""

from collections.abc import Iterable

from aiohttp import web

from streams.adapters.address import http_address


class Pages:
    """Listens on one port for a few routes."""

    def __init__(self, host: str, port: int) -> None:
        """Does not listen yet.

        Args:
            host: address to bind.
            port: its port, 0 for any.
        """
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self.address = ""
        """Where it listens, such as `http://127.0.0.1:9400`; empty before."""

    async def start(
        self,
        routes: Iterable[web.RouteDef],
        *,
        body_bytes_max: int = 64 * 1024,
        stop_s: float = 60.0,
    ) -> str:
        """Listens; the base address.

        Args:
            routes: what is served.
            body_bytes_max: a larger one is refused unread.
            stop_s: what is being answered when it stops is answered within that.

        Raises:
            OSError: the port is taken.
        """
        app = web.Application(client_max_size=body_bytes_max)
        app.add_routes(routes)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=stop_s)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        host, port = self._runner.addresses[0][:2]
        self.address = http_address(host, port)
        return self.address

    async def stop(self) -> None:
        """Stops listening; waits for what is in hand."""
        if self._runner is not None:
            await self._runner.cleanup()
