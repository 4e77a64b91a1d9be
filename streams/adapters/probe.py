"""The worker's own small web server: /health, /ready, /held, /metrics; on loopback by default."""

from collections.abc import Callable, Mapping

from aiohttp import web


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
        self._host = host
        self._port = port
        self._ready = ready
        self._metrics = metrics
        self._held = held
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listens; its base address.

        Raises:
            OSError: the port is taken.
        """
        app = web.Application()
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ready", self._answer_ready),
                web.get("/held", self._answer_held),
                web.get("/metrics", self._answer_metrics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        """Stops listening."""
        if self._runner is not None:
            await self._runner.cleanup()

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
