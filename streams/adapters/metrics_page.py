"""A web server of two pages, /metrics and /healthz, whose figures are read when somebody asks."""

from collections.abc import Awaitable, Callable

from aiohttp import web


class MetricsPage:
    """Serves what it is given; on loopback unless told otherwise."""

    def __init__(self, host: str, port: int, render: Callable[[], Awaitable[bytes]]) -> None:
        """Does not listen yet.

        Args:
            host: address to bind.
            port: its port, 0 for any.
            render: the exposition as it is now; must not raise.
        """
        self._host = host
        self._port = port
        self._render = render
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listens; the address of /metrics.

        Raises:
            OSError: the port is taken.
        """
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics), web.get("/healthz", self._health)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}/metrics"

    async def stop(self) -> None:
        """Stops listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = await self._render()
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")
