"""Every exception of an attempt and what it proves; a class that a library adds is placed here."""

import asyncio
import errno
import ssl
from collections.abc import Callable
from http.cookies import CookieError
from types import SimpleNamespace
from typing import Any, Final, cast

import aiohttp
import pytest
import stripe
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from streams.adapters.stripe_wire import observe_error
from streams.core.observation import Answer, MaybeSent, NotSent, Observation

# What is not sent changes nothing and is tried again; what may be sent is a doubt that only Stripe
# can end. So a class stands among the first only if no byte can have left when it is raised.
NOT_SENT: Final = {
    "ConnectionTimeoutError",
    "ClientConnectorError",
    "ClientConnectorDNSError",
    "ClientProxyConnectionError",
    "UnixClientConnectorError",
    "ClientSSLError",
    "ClientConnectorSSLError",
    "ClientConnectorCertificateError",
    "ServerFingerprintMismatch",
    "InvalidURL",
    "InvalidUrlClientError",
}
MAYBE_SENT: Final = {
    "ClientError",
    "ClientResponseError",
    "ContentTypeError",
    "WSServerHandshakeError",
    "ClientHttpProxyError",
    "TooManyRedirects",
    "ClientConnectionError",
    "ClientConnectionResetError",
    "ClientOSError",
    "ServerConnectionError",
    "ServerDisconnectedError",
    "ServerTimeoutError",
    "SocketTimeoutError",
    "ClientPayloadError",
    "UploadAbortedError",
    "RedirectClientError",
    "InvalidUrlRedirectClientError",
    "NonHttpUrlClientError",
    "NonHttpUrlRedirectClientError",
}
KEY: Final = cast("ConnectionKey", SimpleNamespace(ssl=True, host="h", port=1, is_ssl=True))
REFUSED: Final = OSError(errno.ECONNREFUSED, "refused")
MADE: Final[dict[str, Callable[[type[Any]], BaseException]]] = {
    "UnixClientConnectorError": lambda kind: kind("/sock", KEY, REFUSED),
    "ServerFingerprintMismatch": lambda kind: kind(b"", b"", "h", 1),
    "ClientConnectorCertificateError": lambda kind: kind(KEY, ssl.SSLCertVerificationError()),
}
"""Classes whose arguments are their own."""


def all_kinds(root: type[BaseException]) -> dict[str, type[BaseException]]:
    found = {root.__name__: root}
    for kind in root.__subclasses__():
        found |= all_kinds(kind)
    return found


AIOHTTP: Final = all_kinds(aiohttp.ClientError)


def made(kind: type[Any]) -> BaseException:
    if kind.__name__ in MADE:
        return MADE[kind.__name__](kind)
    if issubclass(kind, aiohttp.ClientConnectorError):
        return cast("BaseException", kind(KEY, REFUSED))
    if issubclass(kind, aiohttp.ClientResponseError):
        info = cast("aiohttp.RequestInfo", SimpleNamespace(real_url=URL("http://h")))
        return cast("BaseException", kind(info, ()))
    return cast("BaseException", kind("http://h"))


def proves(name: str) -> Observation:
    return NotSent(name) if name in NOT_SENT else MaybeSent(name)


def test_every_exception_of_the_http_library_has_its_place() -> None:
    assert set(AIOHTTP) == NOT_SENT | MAYBE_SENT, "decide whether a byte can have left"
    assert not NOT_SENT & MAYBE_SENT


@pytest.mark.parametrize("name", sorted(AIOHTTP))
def test_what_an_exception_of_the_http_library_proves(name: str) -> None:
    raised = made(AIOHTTP[name])
    assert observe_error(raised) == proves(name)
    wrapped = stripe.APIConnectionError("x")  # type: ignore[no-untyped-call]  # the library's
    wrapped.__cause__ = raised
    assert observe_error(wrapped) == proves(name)


@pytest.mark.parametrize(
    "raised",
    [
        TimeoutError(),
        asyncio.IncompleteReadError(b"", 1),
        ConnectionResetError(),
        BrokenPipeError(),
        OSError(errno.ENETUNREACH, "unreachable"),
        ssl.SSLError(),
        EOFError(),
        CookieError(),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        RuntimeError("Session is closed"),
        AttributeError(),
        MemoryError(),
        RecursionError(),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_whatever_else_is_raised_proves_nothing(raised: BaseException) -> None:
    assert observe_error(raised) == MaybeSent(type(raised).__name__)


STRIPE: Final = all_kinds(stripe.StripeError)


def raised_by_stripe(kind: type[Any], status: int | None) -> BaseException:
    said = {
        "message": "m",
        "http_status": status,
        "json_body": {"error": {"type": "t", "code": "c", "message": "m"}},
        "headers": {"Request-Id": "req_1", "Retry-After": "7", "Idempotent-Replayed": "true"},
    }
    if issubclass(kind, stripe.InvalidRequestError | stripe.CardError):
        message = said.pop("message")
        return cast("BaseException", kind(message, param=None, code="c", **said))
    if issubclass(kind, stripe.oauth_error.OAuthError):
        return cast("BaseException", kind("c", "m", None, status, said["json_body"]))
    if kind.__name__ == "SignatureVerificationError":
        del said["headers"], said["json_body"]
        said["sig_header"] = ""
        error = kind(said.pop("message"), said.pop("sig_header"))
        error.http_status, error.json_body = status, {"error": {"code": "c"}}
        return cast("BaseException", error)
    return cast("BaseException", kind(**said))


@pytest.mark.parametrize("name", sorted(set(STRIPE) - {"APIConnectionError", "_SignatureError"}))
def test_any_class_of_the_stripe_library_is_told_by_what_stripe_said(name: str) -> None:
    seen = observe_error(raised_by_stripe(STRIPE[name], 402))
    assert isinstance(seen, Answer)
    assert (seen.status, seen.parsed, seen.error_code) == (402, True, "c")
    assert observe_error(raised_by_stripe(STRIPE[name], None)) == MaybeSent(name)


def test_headers_are_read_in_any_case() -> None:
    error = stripe.APIError(
        "m",
        http_status=429,
        json_body={"error": {}},
        headers={"retry-after": "7", "STRIPE-RATE-LIMITED-REASON": "global-rate"},
    )
    seen = observe_error(error)
    assert isinstance(seen, Answer)
    assert (seen.retry_after_ms, seen.rate_limited_reason) == (7_000, "global-rate")
