"""The worker's own small web server: /health, /ready, /held, /metrics; on loopback by default."""

from collections.abc import Callable, Mapping

from aiohttp import web

from streams.adapters.pages import Pages


class Probe:
    """Serves four pages; reads everything when asked."""

    def __init__(
        self,
        host: str,
        port: int,
        ready: Callable[[], str | None],
        metrics: Callable[[], bytes],
        held: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        """Does not listen yet.

        Args:
            host: address to bind.
            port: its port, 0 for any.
            ready: None when the worker serves, else what it waits for.
            metrics: the exposition.
            held: partitions that wait for somebody, and why.
        """
        self._pages = Pages(host, port)
        self._ready = ready
        self._metrics = metrics
        self._held = held

    async def start(self) -> str:
        """Listens; its base address.

        Raises:
            OSError: the port is taken.
        """
        routes = (
            web.get("/health", self._health),
            web.get("/ready", self._answer_ready),
            web.get("/held", self._answer_held),
            web.get("/metrics", self._answer_metrics),
        )
        return await self._pages.start(routes)

    async def stop(self) -> None:
        """Stops listening."""
        await self._pages.stop()

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _answer_ready(self, _request: web.Request) -> web.Response:
        waits_for = self._ready()
        if waits_for is None:
            return web.Response(text="ready\n")
        return web.Response(text=f"waits for {waits_for}\n", status=503)

    async def _answer_held(self, _request: web.Request) -> web.Response:
        lines = (f"partition {number}: {why}\n" for number, why in sorted(self._held().items()))
        return web.Response(text="".join(lines))

    async def _answer_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), content_type="text/plain", charset="utf-8")
