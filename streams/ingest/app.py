"""The routes of ingestion: a call → who it is, what is in it, what became of it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Protocol

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from streams.adapters.clock import Clock
from streams.ingest import answers, calls
from streams.ingest.figures import Figures
from streams.ingest.keys import Holder, KeysError, KeysFile
from streams.ingest.limits import Rates
from streams.ingest.outcome import AGAIN, RETRY_AFTER, Asked, CallRefusedError, Outcome, Refused

PATH: Final = "/v1/usage"
BODY_S_MAX: Final = 30.0
"""For a body to come; a producer that is slower holds our memory for nothing."""
READY_S: Final = 1.0
log = structlog.get_logger("ingest")


class Records(Protocol):
    """Where events are recorded."""

    async def record(self, events: list[Asked], traceparent: str | None) -> list[Outcome]:
        """What became of each, committed.

        Raises:
            CallRefusedError: it is not known.
        """
        ...

    async def trouble(self) -> str | None:
        """Why nothing can be recorded now; None when it can."""
        ...


class Readiness:
    """Whether calls can be answered: asked anew when the last answer is a second old."""

    def __init__(self, records: Records, clock: Clock) -> None:
        """Nothing is known yet."""
        self._records = records
        self._clock = clock
        self._asking = asyncio.Lock()
        self._known: tuple[float, str | None] | None = None

    async def trouble(self) -> str | None:
        """Why not; None for ready."""
        async with self._asking:
            if self._known is None or self._clock.elapsed_s() - self._known[0] >= READY_S:
                said = await self._records.trouble()
                self._known = (self._clock.elapsed_s(), said)
            return self._known[1]


@dataclass(frozen=True, slots=True)
class Ingest:
    """What the process was started with."""

    keys: KeysFile
    rates: Rates
    records: Records
    readiness: Readiness
    body_bytes_max: int
    in_hand_max: int
    """More calls are turned away before their bodies are read."""
    figures: Figures


def build(ingest: Ingest) -> Starlette:
    """The application."""
    app = Starlette(
        routes=[
            Route(PATH, _take, methods=["POST"]),
            Route("/openapi.json", _document, methods=["GET"]),
            Route("/health", _health, methods=["GET"]),
            Route("/ready", _ready, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _no_such_page},
    )
    app.state.ingest = ingest
    return app


async def _take(request: Request) -> Response:
    ingest: Ingest = request.app.state.ingest
    try:
        status, document = await _answer(ingest, request)
        headers: Mapping[str, str] = {}
    except CallRefusedError as error:
        status, document, headers = _refused(ingest.figures, error)
    except Exception:  # the last fence: a producer gets an answer, never a traceback
        log.exception("call")
        defect = CallRefusedError(500, "this is a defect of the service", AGAIN, why="defect")
        status, document, headers = _refused(ingest.figures, defect)
    ingest.figures.calls[str(status)] += 1
    return _json(document, status, headers)


def _refused(
    figures: Figures, error: CallRefusedError
) -> tuple[int, answers.Document, Mapping[str, str]]:
    if error.why is not None:
        figures.failed(error.why)
    return error.status, answers.refusal(error), error.headers


async def _answer(ingest: Ingest, request: Request) -> tuple[int, answers.Document]:
    holder = _holder(ingest.keys, request)
    if request.headers.get("content-encoding", "identity") != "identity":
        raise CallRefusedError(415, "Content-Encoding is not taken", "send the body as it is")
    if ingest.figures.in_hand >= ingest.in_hand_max:
        raise CallRefusedError(503, "too many calls at a time", AGAIN, RETRY_AFTER, "crowded")
    ingest.figures.in_hand += 1
    try:
        reader, many = calls.reader_of(request.headers.get("content-type", ""))
        body = await _body(request, ingest.body_bytes_max)
        with ingest.figures.timed():
            # On a thread: a body of megabytes must not stop the calls beside it.
            call = await asyncio.to_thread(calls.read, reader, many, body)
            return await _held(ingest, holder, call, request.headers.get("traceparent"))
    finally:
        ingest.figures.in_hand -= 1


async def _held(
    ingest: Ingest, holder: Holder, call: calls.Call, traceparent: str | None
) -> tuple[int, answers.Document]:
    wait_s = ingest.rates.take(holder.name, len(call.events))
    if wait_s > 0:
        ingest.figures.limited[holder.name] += 1
        raise CallRefusedError(
            429,
            f"key {holder.name} brings more events a second than it may",
            "send the same again after Retry-After",
            {"Retry-After": str(int(wait_s) + 1)},
        )
    judged = [_permitted(each, holder) for each in call.events]
    asked = [each for each in judged if isinstance(each, Asked)]
    # Committed when this returns, and nothing is told before.
    recorded = iter(await ingest.records.record(asked, traceparent))
    outcomes = [each if isinstance(each, Refused) else next(recorded) for each in judged]
    ingest.figures.events.update(answers.name_of(outcome) for outcome in outcomes)
    return answers.many(outcomes) if call.many else answers.one(outcomes[0])


def _holder(keys: KeysFile, request: Request) -> Holder:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    try:
        holder = keys.holder(key.strip()) if scheme.lower() == "bearer" else None
    except KeysError as error:
        log.error("keys_unreadable", error=str(error))
        raise CallRefusedError(
            503,
            "keys cannot be checked now",
            "send the same again later",
            {"Retry-After": "30"},
            "keys",
        ) from error
    if holder is None:
        raise CallRefusedError(
            401,
            "there is no such API key" if key else "an API key is missing",
            "send Authorization: Bearer KEY; `tailrace ingest key` makes one",
            {"WWW-Authenticate": 'Bearer realm="tailrace"'},
        )
    return holder


def _permitted(event: Asked | Refused, holder: Holder) -> Asked | Refused:
    if isinstance(event, Refused):
        return event
    tenant = event.item.get("tenant_id")
    # What is no text is refused by the rules of usage, as it is of every tenant.
    if not isinstance(tenant, str) or tenant in holder.tenants:
        return event
    rule = f"key {holder.name} may not record for this tenant"
    fix = "list the tenant in the file of keys, or use the key of its own"
    return Refused(event.problem("tenant_id", rule, fix), forbidden=True)


async def _body(request: Request, bytes_max: int) -> bytes:
    too_large = CallRefusedError(
        413, f"the body is larger than {bytes_max} bytes", "send fewer events in a call"
    )
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > bytes_max:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for part in request.stream():
                body += part
                if len(body) > bytes_max:
                    raise too_large
    except (TimeoutError, ClientDisconnect) as error:
        raise CallRefusedError(408, "the body did not come", "send the same again") from error
    return bytes(body)


async def _document(_request: Request) -> Response:
    return Response(contract(), media_type="application/json")


async def _health(_request: Request) -> Response:
    return Response("ok\n", media_type="text/plain")


async def _ready(request: Request) -> Response:
    """For whoever balances load; anybody may ask, so the database is asked once a second."""
    ingest: Ingest = request.app.state.ingest
    waits_for = await ingest.readiness.trouble()
    if waits_for is None:
        return Response("ready\n", media_type="text/plain")
    return Response(f"not ready: {waits_for}\n", status_code=503, media_type="text/plain")


def contract() -> bytes:
    """The OpenAPI document."""
    return files("schemas").joinpath("ingest", "v1.json").read_bytes()


async def _no_such_page(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = (error.headers or {}) if isinstance(error, HTTPException) else {}
    what = f"{request.method} {request.url.path}: there is no such call"
    fix = f"POST events to {PATH}; /openapi.json says how"
    return _json(answers.refusal(CallRefusedError(status, what, fix)), status, headers)


def _json(document: Any, status: int, headers: Mapping[str, str]) -> Response:
    return Response(
        msgspec.json.encode(document),
        status_code=status,
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **headers},
        media_type="application/json",
    )
