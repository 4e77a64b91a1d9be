"""A web server of two pages, /metrics and /healthz, whose figures are read when somebody asks."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from streams.adapters.pages import Pages


class MetricsPage:
    """Serves what it is given; on loopback unless told otherwise."""

    def __init__(self, host: str, port: int, render: Callable[[], Awaitable[bytes]]) -> None:
        """Does not listen yet.

        Args:
            host: address to bind.
            port: its port, 0 for any.
            render: the exposition as it is now; must not raise.
        """
        self._pages = Pages(host, port)
        self._render = render

    async def start(self) -> str:
        """Listens; the address of /metrics.

        Raises:
            OSError: the port is taken.
        """
        routes = (web.get("/metrics", self._metrics), web.get("/healthz", self._health))
        return f"{await self._pages.start(routes)}/metrics"

    async def stop(self) -> None:
        """Stops listening."""
        await self._pages.stop()

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = await self._render()
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")
