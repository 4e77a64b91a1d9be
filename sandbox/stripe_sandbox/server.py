"""The stand-in on a socket: HTTP → engine → HTTP, with faults where they are ordered.

In: Stripe's API over HTTP. Out: what Stripe would answer, or what a network would do to it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from sandbox.stripe_sandbox import errors
from sandbox.stripe_sandbox.engine import ApiRequest, Engine, Execution
from sandbox.stripe_sandbox.errors import Reply
from sandbox.stripe_sandbox.faults import ArmedFault, Faults

STALL_MS: Final = 60_000
BODY_BYTES_MAX: Final = 1 << 20
_HTML: Final = "<html><head><title>{0}</title></head><body><h1>{0}</h1></body></html>\n"
_OUTAGE_TURNS: Final = ("reset", "503", "reset", "html")

Clock = Callable[[], int]
"""Microseconds since 1970 UTC."""


class Api:
    """Stripe's paths."""

    def __init__(self, engine: Engine, faults: Faults, clock: Clock) -> None:
        self.engine = engine
        self.faults = faults
        self.clock = clock
        self.requests: Counter[str] = Counter()
        """Requests by `METHOD path` with ids left out, and answers by status."""
        self.released = asyncio.Event()
        """Set while nothing should stall: faults were cleared, or the server stops."""
        self._serial = 0

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Answers one request of Stripe's API."""
        request = await _read(http)
        self._serial += 1
        self.requests[f"{request.method} {_anonymous(request.path)}"] += 1
        fault = self.faults.strike(request.path, dict(request.form))
        if fault is not None:
            early = self._strike_before(http, fault)
            if early is not None:
                return early
        begun = self.engine.begin(request, self.clock())
        # What it knew already is an answer like any other, and is lost like any other.
        reply = await self._execute(begun, fault) if isinstance(begun, Execution) else begun
        if fault is None:
            return self._answer(reply, request)
        return await self._strike_after(http, fault, reply, request)

    def _strike_before(self, http: web.Request, fault: ArmedFault) -> web.Response | None:
        spec = fault.spec
        match spec.kind:
            case "outage":
                return self._outage(http, fault.turn(_OUTAGE_TURNS))
            case "drop_before":
                return _cut(http)
            case "429":
                return self._plain(errors.rate_limited(spec.reason, spec.retry_after_s))
            case "401":
                return self._plain(errors.unauthorized())
            case "http_500" if not spec.recorded:
                return self._plain(errors.server_error(500, stored=False))
            case "http_502_html" if not spec.recorded:
                return _html(502, "502 Bad Gateway")
            case _:
                return None

    def _outage(self, http: web.Request, how: str) -> web.Response:
        if how == "reset":
            return _cut(http)
        if how == "html":
            return _html(503, "503 Service Temporarily Unavailable")
        return self._plain(errors.server_error(503, stored=False))

    async def _execute(self, execution: Execution, fault: ArmedFault | None) -> Reply:
        if fault is None:
            return self.engine.finish(execution, self.clock())
        spec = fault.spec
        match spec.kind:
            case "http_500_cached":
                failure = errors.server_error(500, stored=True)
                recorded = spec.recorded
                return self.engine.fail(execution, failure, self.clock(), recorded=recorded)
            case "http_500":
                failure = errors.server_error(500, stored=False)
                return self.engine.fail(execution, failure, self.clock(), recorded=True)
            case "lock_timeout":
                failure = errors.lock_timeout()
                return self.engine.fail(execution, failure, self.clock(), recorded=False)
            case "reject":
                return self.engine.finish(execution, self.clock(), refused=spec.code)
            case "slow":
                try:
                    await self._pause(spec.delay_ms)
                except asyncio.CancelledError:
                    self.engine.abandon(execution)
                    raise
                return self.engine.finish(execution, self.clock())
            case _:
                return self.engine.finish(execution, self.clock())

    async def _strike_after(
        self, http: web.Request, fault: ArmedFault, reply: Reply, request: ApiRequest
    ) -> web.StreamResponse:
        spec = fault.spec
        match spec.kind:
            case "drop_after":
                return _cut(http)
            case "http_502_html":
                return _html(502, "502 Bad Gateway")
            case "truncate" | "stall":
                wait_ms = 0 if spec.kind == "truncate" else (spec.duration_ms or STALL_MS)
                return await self._half(http, self._answer(reply, request), wait_ms)
            case _:
                return self._answer(reply, request)

    async def _half(
        self, http: web.Request, whole: web.Response, wait_ms: int
    ) -> web.StreamResponse:
        """Promises a whole body, sends half of it, waits, and breaks the connection."""
        body = whole.body if isinstance(whole.body, bytes) else b""
        response = web.StreamResponse(status=whole.status, headers=whole.headers)
        response.content_length = len(body)
        await response.prepare(http)
        await response.write(body[: len(body) // 2])
        if wait_ms:
            await self._pause(wait_ms)
        if http.transport is not None:
            # Close, not abort: what was written is still delivered.
            http.transport.close()
        return response

    async def _pause(self, wait_ms: int) -> None:
        """Waits, but not beyond the clearing of faults."""
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                await self.released.wait()
        except TimeoutError:
            return

    def _answer(self, reply: Reply, request: ApiRequest) -> web.Response:
        response = self._plain(reply)
        if request.idempotency_key is not None and reply.status != 401:
            response.headers["Idempotency-Key"] = request.idempotency_key
        return response

    def _plain(self, reply: Reply) -> web.Response:
        self.requests[f"status {reply.status}"] += 1
        headers = {"Request-Id": f"req_sandbox{self._serial:012d}", **reply.headers}
        body = msgspec.json.encode(reply.body)
        return web.Response(
            body=body, status=reply.status, headers=headers, content_type="application/json"
        )


async def _read(http: web.Request) -> ApiRequest:
    raw = await http.read()
    as_json = http.content_type == "application/json"
    body = "" if as_json else raw.decode("utf-8", "replace")
    return ApiRequest(
        method=http.method,
        path=http.path.rstrip("/") or "/",
        form=dict(parse_qsl(body, keep_blank_values=True)),
        query=_flat(http.query.items()),
        authorization=http.headers.get("Authorization"),
        idempotency_key=http.headers.get("Idempotency-Key"),
        json=_json(raw) if as_json else None,
    )


def _flat(query: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A query with each name once: the newer API repeats a name for a list."""
    found: dict[str, str] = {}
    for name, value in query:
        found[name if name not in found else f"{name}[{len(found)}]"] = value
    return found


def _json(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None


def _anonymous(path: str) -> str:
    """A path with ids left out, to count by."""
    parts = path.split("/")
    return "/".join("{id}" if part.startswith(("mtr_", "cus_")) else part for part in parts)


def _cut(http: web.Request) -> web.Response:
    """Breaks the connection without an answer."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response()


def _html(status: int, title: str) -> web.Response:
    """What a proxy says in Stripe's place."""
    return web.Response(text=_HTML.format(title), status=status, content_type="text/html")


def counts(requests: Mapping[str, int]) -> dict[str, int]:
    """Request counters in a stable order."""
    return dict(sorted(requests.items()))
