"""What every request passes: the name it asks for, where it comes from, the headers it gets.

A page on loopback is within reach of every site that the operator's browser visits: by a name that
is pointed at 127.0.0.1, by a form, by a frame. Each of the three ends here.
"""

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    # `no-referrer` would make browsers send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_READING: Final = ("GET", "HEAD")


class Doors:
    """Lets a request through to `app`, or says why not."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        """Nothing is read yet.

        Args:
            app: what comes behind.
            names: the host names, without port, that this console answers to.
        """
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        headers = Headers(scope=scope)
        refused = self._refused(scope["method"], headers)
        await (refused or self._app)(scope, receive, told)

    def _refused(self, method: str, headers: Headers) -> PlainTextResponse | None:
        host = headers.get("host", "")
        if name_of(host) not in self._names:
            known = ", ".join(sorted(self._names))
            return PlainTextResponse(
                f"This console does not answer to the name {name_of(host)!r}, only to {known}: a "
                "page elsewhere may have pointed a name here.\n"
                "Type: tailrace console --name NAME, if it is yours.\n",
                status_code=421,
            )
        if method not in _READING and _is_foreign(host, headers):
            return PlainTextResponse(
                "This form was sent by another site, so nothing was changed.\n"
                "Open the console itself and decide there.\n",
                status_code=403,
            )
        return None


def name_of(host: str) -> str:
    """A Host header without its port; an IPv6 address keeps its brackets."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _is_foreign(host: str, headers: Headers) -> bool:
    """Whether a browser says that another site made it send this."""
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return True
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != host
