"""The webhook's web server: one path for Stripe's calls, /health for whoever balances load."""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from streams.adapters.pages import Pages

PATH: Final = "/stripe/events"
BODY_BYTES_MAX: Final = 256 * 1024
"""A notification holds no data: Stripe's are a thousandth of this."""
STOP_S: Final = 20.0
"""Calls that are being answered when it stops are answered first."""

Answer = tuple[int, str]
"""HTTP status and text."""


class WebhookServer:
    """Takes calls; what they mean is decided by whoever is handed them."""

    def __init__(
        self, host: str, port: int, receive: Callable[[bytes, str | None], Awaitable[Answer]]
    ) -> None:
        """Does not listen yet.

        Args:
            host: address to bind.
            port: its port, 0 for any.
            receive: body and `Stripe-Signature` of a call to its answer.
        """
        self._pages = Pages(host, port)
        self._receive = receive

    async def start(self) -> str:
        """Listens; the address for Stripe's calls.

        Raises:
            OSError: the port is taken.
        """
        routes = (web.post(PATH, self._take), web.get("/health", self._health))
        base = await self._pages.start(routes, body_bytes_max=BODY_BYTES_MAX, stop_s=STOP_S)
        return base + PATH

    async def stop(self) -> None:
        """Stops listening; waits for calls in hand."""
        await self._pages.stop()

    async def _take(self, request: web.Request) -> web.Response:
        status, text = await self._receive(
            await request.read(), request.headers.get("Stripe-Signature")
        )
        return web.Response(status=status, text=text + "\n")

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")
