"""One attempt on the wire: what Stripe's client library returns or raises → an `Observation`.

In: a success, or any exception of an attempt. Out: what it proves. `NotSent` only where the
exception cannot arise after a connection was made.
"""

from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import stripe

from streams.core.observation import Answer, MaybeSent, NotSent, Observation
from streams.crash_points import CrashAt, never

NEVER_SENT: Final[Mapping[type[Exception], str]] = {
    aiohttp.ConnectionTimeoutError: "no connection, or no free one in the pool, in time",
    aiohttp.ClientConnectorError: "refused, unreachable, DNS, TLS handshake, certificate",
    aiohttp.ServerFingerprintMismatch: "the certificate is another's; checked before the request",
    aiohttp.InvalidURL: "the address is none, so there was nobody to send to",
}
"""Exceptions that cannot arise after a connection was made, and what each means."""


class Transport(stripe.AIOHTTPClient):
    """The library's aiohttp client, but the body is read under our eyes.

    The original reads it outside its own error handling and leaves a connection behind that nobody
    closes when the body is cut off: the very case in which the meter event has been recorded. It
    also follows redirects, which would turn a POST into a GET.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        timeout: aiohttp.ClientTimeout,
        crash_at: CrashAt = never,
    ) -> None:
        super().__init__(session=session)
        self._http = session
        self._limits = timeout
        self._crash_at = crash_at

    async def request_async(
        self, method: str, url: str, headers: Mapping[str, str], post_data: Any = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        """One request, its body read whole. Raises aiohttp's own exceptions, unwrapped."""
        async with self._http.request(
            method,
            url,
            headers=headers,
            data=post_data,
            timeout=self._limits,
            allow_redirects=False,
        ) as response:
            if method == "post":
                self._crash_at("answer_unread")
            return await response.read(), response.status, response.headers


def observe_error(error: BaseException) -> Observation:
    """What an exception of an attempt proves."""
    if isinstance(error, stripe.APIConnectionError):
        return _observe_transport(error.__cause__ or error)
    if isinstance(error, stripe.StripeError) and error.http_status is not None:
        return _observe_answer(error, error.http_status)
    return _observe_transport(error)


def _observe_transport(cause: BaseException) -> Observation:
    name = type(cause).__name__
    if isinstance(cause, aiohttp.RedirectClientError):
        # Some of these are also an InvalidURL, but a redirect answers a request that was sent.
        return MaybeSent(name)
    return NotSent(name) if isinstance(cause, tuple(NEVER_SENT)) else MaybeSent(name)


def observe_success(response: stripe.StripeResponse) -> Answer:
    """What a 2xx with JSON says; whether it is a meter event is part of it."""
    data = response.data if isinstance(response.data, dict) else {}
    identifier = data.get("identifier")
    return Answer(
        status=response.code,
        parsed=data.get("object") == "billing.meter_event",
        identifier=identifier if isinstance(identifier, str) else None,
        replayed=_header(response.headers, "Idempotent-Replayed") == "true",
        request_id=_header(response.headers, "Request-Id"),
    )


def _observe_answer(error: stripe.StripeError, status: int) -> Answer:
    headers: Mapping[str, str] = error.headers or {}
    body = error.json_body if isinstance(error.json_body, dict) else {}
    detail = body.get("error")
    said = detail if isinstance(detail, dict) else {}
    return Answer(
        status=status,
        parsed=isinstance(detail, dict),
        error_type=said.get("type"),
        error_code=said.get("code"),
        error_message=said.get("message"),
        should_retry=_flag(_header(headers, "Stripe-Should-Retry")),
        replayed=_header(headers, "Idempotent-Replayed") == "true",
        rate_limited_reason=_header(headers, "Stripe-Rate-Limited-Reason"),
        retry_after_ms=_milliseconds(_header(headers, "Retry-After")),
        request_id=_header(headers, "Request-Id"),
    )


def _header(headers: Mapping[str, str], name: str) -> str | None:
    """A header by its name in any case: the library hands over several kinds of mapping."""
    wanted = name.lower()
    return next((value for key, value in headers.items() if key.lower() == wanted), None)


def _flag(text: str | None) -> bool | None:
    return None if text is None else text == "true"


def _milliseconds(text: str | None) -> int | None:
    """`Retry-After` in seconds; a date or nonsense is no wish (the backoff decides)."""
    if text is None or not text.isdecimal():
        return None
    return int(text) * 1_000
