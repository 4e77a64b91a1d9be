"""The Stripe adapter against the stand-in over a real socket, fault by fault."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import stripe

from sandbox.stripe_sandbox.client import StandIn
from sandbox.stripe_sandbox.service import Service, ServiceSettings
from streams.adapters.stripe import Grouping, StripeSettings, StripeSink, StripeUnreadableError
from streams.adapters.stripe_wire import observe_error
from streams.core.meter_event import Cell, MeterEvent, Origin, freeze_window
from streams.core.observation import Answer, MaybeSent, NotSent, Observation
from tests.support.waiting import eventually

HOUR_US = 3_600_000_000
SECRET = "sk_test_adapter"


def now_us() -> int:
    return time.time_ns() // 1_000


def frozen(number: int = 1, value: int = 5, customer: str = "cus_1") -> MeterEvent:
    at_us = now_us()
    start_us = at_us - at_us % HOUR_US
    cell = Cell(customer, "api_calls", start_us, start_us + HOUR_US)
    return freeze_window(
        Origin("acct", livemode=False, ledger_id="l"), cell, value, number, 1, at_us
    )


def settings_for(url: str, **changes: Any) -> StripeSettings:
    limits = {"connect_timeout_s": 1.0, "read_timeout_s": 0.4, "deadline_s": 3.0}
    return StripeSettings(SECRET, url, **{**limits, **changes})


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(ServiceSettings(tmp_path), now_us)
    service.create_meters(["api_calls"])
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
async def sink(service: Service) -> AsyncIterator[StripeSink]:
    async with StripeSink(settings_for(service.url)) as sink:
        yield sink


async def order(service: Service, **spec: Any) -> None:
    await asyncio.to_thread(lambda: StandIn(service.url).arm(**spec))


async def once(sink: StripeSink, event: MeterEvent, generation: int = 0) -> Observation:
    return await sink.send(event, event.idempotency_key(generation))


def counted(service: Service) -> int:
    return len(service.engine.state.recorded)


def struck(service: Service) -> int:
    """How many requests the first fault has met."""
    return service.api.faults.armed[0].struck


async def test_a_success_echoes_the_identifier(service: Service, sink: StripeSink) -> None:
    event = frozen()
    seen = await once(sink, event)
    assert isinstance(seen, Answer)
    assert (seen.status, seen.parsed, seen.identifier) == (200, True, event.identifier)
    assert not seen.replayed
    assert seen.request_id
    recorded = service.engine.state.recorded[0]
    assert (recorded.value, recorded.timestamp_s) == ("5", event.timestamp_s)
    assert recorded.idempotency_key == event.idempotency_key(0)


async def test_a_repeated_key_is_recognised_as_replayed(service: Service, sink: StripeSink) -> None:
    event = frozen()
    await once(sink, event)
    seen = await once(sink, event)
    assert isinstance(seen, Answer)
    assert (seen.status, seen.replayed) == (200, True)
    assert counted(service) == 1


async def test_a_duplicate_has_no_code_but_a_message(service: Service, sink: StripeSink) -> None:
    event = frozen()
    await once(sink, event)
    seen = await once(sink, event, generation=1)
    assert isinstance(seen, Answer)
    assert (seen.status, seen.parsed, seen.error_code) == (400, True, None)
    assert seen.error_message == f"An event already exists with identifier {event.identifier}."
    assert seen.should_retry is False
    assert counted(service) == 1


def answer(status: int, **fields: Any) -> Callable[[Observation], bool]:
    def matches(seen: Observation) -> bool:
        return (
            isinstance(seen, Answer)
            and seen.status == status
            and all(getattr(seen, name) == value for name, value in fields.items())
        )

    return matches


def maybe(cause: str) -> Callable[[Observation], bool]:
    return lambda seen: seen == MaybeSent(cause)


def broken(seen: Observation) -> bool:
    """A connection that ended early; which name it has is the kernel's choice."""
    names = {"ServerDisconnectedError", "ClientOSError", "ClientConnectionResetError"}
    return isinstance(seen, MaybeSent) and seen.cause in names


@pytest.mark.parametrize(
    ("spec", "expected", "recorded"),
    [
        ({"kind": "http_500"}, answer(500, parsed=True, should_retry=False), 0),
        ({"kind": "http_500", "recorded": True}, answer(500, parsed=True), 1),
        ({"kind": "http_500_cached"}, answer(500, parsed=True), 0),
        ({"kind": "http_500_cached", "recorded": True}, answer(500, parsed=True), 1),
        ({"kind": "http_502_html"}, answer(502, parsed=False, error_type=None), 0),
        ({"kind": "http_502_html", "recorded": True}, answer(502, parsed=False), 1),
        (
            {"kind": "429", "retry_after_s": 7},
            answer(429, rate_limited_reason="global-rate", retry_after_ms=7_000),
            0,
        ),
        (
            {"kind": "429", "reason": None},
            answer(429, rate_limited_reason=None, retry_after_ms=None),
            0,
        ),
        (
            {"kind": "lock_timeout"},
            answer(429, error_code="lock_timeout", rate_limited_reason=None, should_retry=True),
            0,
        ),
        ({"kind": "401"}, answer(401, parsed=True), 0),
        ({"kind": "drop_before"}, broken, 0),
        ({"kind": "drop_after"}, broken, 1),
        ({"kind": "truncate"}, maybe("ClientPayloadError"), 1),
        ({"kind": "stall", "duration_ms": 1_500}, maybe("SocketTimeoutError"), 1),
        ({"kind": "slow", "delay_ms": 50}, answer(200, parsed=True), 1),
    ],
)
async def test_each_fault_is_seen_for_what_it_proves(
    service: Service,
    sink: StripeSink,
    spec: dict[str, Any],
    expected: Callable[[Observation], bool],
    recorded: int,
) -> None:
    await order(service, count=1, **spec)
    seen = await once(sink, frozen())
    assert expected(seen), seen
    assert counted(service) == recorded
    # The next attempt is a clean one: no connection is left in a bad state.
    assert answer(200)(await once(sink, frozen(2)))


async def test_an_answer_is_lost_of_what_was_recorded_before_as_well(
    service: Service, sink: StripeSink
) -> None:
    assert answer(200)(await once(sink, frozen()))
    await order(service, kind="drop_after", count=1)
    assert broken(await once(sink, frozen()))
    assert counted(service) == 1


async def test_a_slow_answer_is_a_timeout_although_it_is_recorded(
    service: Service, sink: StripeSink
) -> None:
    await order(service, kind="slow", delay_ms=800, count=1)
    event = frozen()
    assert await once(sink, event) == MaybeSent("SocketTimeoutError")
    await eventually("the slow request is recorded", lambda: counted(service) == 1)
    assert answer(200, replayed=True)(await once(sink, event))


async def test_a_step_lies_between_the_request_and_the_body_of_its_answer(
    service: Service,
) -> None:
    """Where a drill strikes at it, Stripe counts what nobody here has read of."""
    counts: list[int] = []

    def reached(step: str) -> None:
        assert step == "answer_unread"
        counts.append(counted(service))
        raise OSError(step)

    async with StripeSink(settings_for(service.url), reached) as sink:
        await sink.meters()
        assert counts == [], "a reading is no request to record"
        assert await once(sink, frozen()) == MaybeSent("OSError")
    assert counts == [1]


async def test_an_outage_shows_both_of_its_faces(service: Service, sink: StripeSink) -> None:
    await order(service, kind="outage", count=4)
    seen = [await once(sink, frozen()) for _ in range(4)]
    assert broken(seen[0])
    assert answer(503, parsed=True)(seen[1])
    assert broken(seen[2])
    assert answer(503, parsed=False)(seen[3])
    assert counted(service) == 0


async def test_a_closed_port_proves_that_nothing_was_sent(
    service: Service, sink: StripeSink
) -> None:
    assert answer(200)(await once(sink, frozen(1)))
    await order(service, kind="refuse", duration_ms=300)

    async def refused() -> bool:
        # The kept connection was cut as well: until that is noticed, a request may run into it.
        seen = await once(sink, frozen(2))
        assert broken(seen) or seen == NotSent("ClientConnectorError")
        return isinstance(seen, NotSent)

    await eventually("the port is closed", refused)

    async def back() -> bool:
        return answer(200)(await once(sink, frozen(2)))

    await eventually("the port is open again", back)
    assert counted(service) == 2


async def test_waiting_for_a_connection_proves_that_nothing_was_sent(service: Service) -> None:
    await order(service, kind="slow", delay_ms=600, count=1)
    narrow = settings_for(service.url, connections_max=1, connect_timeout_s=0.1, read_timeout_s=2.0)
    async with StripeSink(narrow) as sink:
        first = asyncio.create_task(once(sink, frozen(1)))
        await eventually("the first request is there", lambda: struck(service) == 1)
        assert await once(sink, frozen(2)) == NotSent("ConnectionTimeoutError")
        assert answer(200)(await first)
    assert counted(service) == 1


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("https://127.0.0.1:{port}", "ClientConnectorSSLError"),
        ("http://stripe.invalid", "ClientConnectorDNSError"),
        ("http://127.0.0.1:{closed}", "ClientConnectorError"),
        ("http://[", "InvalidUrlClientError"),
    ],
)
async def test_no_connection_is_not_sent(service: Service, url: str, cause: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
    filled = url.replace("{port}", str(service.port)).replace("{closed}", str(closed))
    async with StripeSink(settings_for(filled)) as sink:
        assert await once(sink, frozen()) == NotSent(cause)


Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(act: Peer) -> AsyncIterator[StripeSink]:
    """A sink whose other side is no Stripe at all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await act(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with StripeSink(settings_for(f"http://127.0.0.1:{port}", deadline_s=1.0)) as sink:
        try:
            yield sink
        finally:
            server.close()
            await server.wait_closed()


def says(raw: bytes) -> Peer:
    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return act


def http(status: str, body: bytes, *headers: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}".encode(), b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (http("200 OK", b"hello"), answer(200, parsed=False)),
        (http("200 OK", b"{}"), answer(200, parsed=False, identifier=None)),
        (http("200 OK", b'{"ok":true}'), answer(200, parsed=False)),
        (http("200 OK", b"\xff\xfe"), maybe("UnicodeDecodeError")),
        (http("204 No Content", b""), answer(204, parsed=False)),
        (
            http("307 Temporary Redirect", b"", b"Location: http://127.0.0.1:1/"),
            answer(307, parsed=False),
        ),
        (http("400 Bad Request", b'{"error":"nope"}'), maybe("AttributeError")),
        (http("429 Slow", b"busy", b"Retry-After: 5"), answer(429, parsed=False)),
        (
            http("503 Down", b'{"error":{}}', b"Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"),
            answer(503, parsed=True, retry_after_ms=None),
        ),
        (b"", broken),
        (b"HTTP/1.1 200 OK\r\n", broken),
        (b"SSH-2.0-OpenSSH\r\n\r\n", lambda seen: isinstance(seen, MaybeSent)),
    ],
)
async def test_whatever_answers_is_named_and_never_raised(
    raw: bytes, expected: Callable[[Observation], bool]
) -> None:
    async with peer(says(raw)) as sink:
        seen = await once(sink, frozen())
        assert expected(seen), seen


async def test_a_peer_that_trickles_is_ended_by_the_deadline() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        hung_up = asyncio.create_task(reader.read())
        while not hung_up.done():
            writer.write(b"x")
            await writer.drain()
            # One byte now and then, until the other side has had enough.
            await asyncio.wait([hung_up], timeout=0.05)

    async with peer(trickle) as sink:
        assert await once(sink, frozen()) == MaybeSent("TimeoutError")


async def test_only_cancellation_is_raised(service: Service, sink: StripeSink) -> None:
    await order(service, kind="slow", delay_ms=5_000, count=1)
    task = asyncio.create_task(once(sink, frozen()))
    await eventually("the request is there", lambda: struck(service) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_closed_sink_answers_too(service: Service) -> None:
    sink = StripeSink(settings_for(service.url))
    await sink.close()
    assert await once(sink, frozen()) == MaybeSent("RuntimeError")


async def test_lanes_do_not_wait_for_each_other(service: Service, sink: StripeSink) -> None:
    events = [frozen(number, customer=f"cus_{number}") for number in range(40)]
    seen = await asyncio.gather(*(once(sink, event) for event in events))
    assert all(answer(200)(one) for one in seen)
    assert counted(service) == 40


async def test_meters_and_sums_can_be_read_back(service: Service, sink: StripeSink) -> None:
    service.create_meters([f"m{number}" for number in range(120)])
    meters = await sink.meters()
    assert len(meters) == 121
    meter = next(meter for meter in meters if meter.event_name == "api_calls")
    assert (meter.active, meter.formula, meter.livemode) == (True, "sum", False)
    assert (meter.customer_key, meter.value_key) == ("stripe_customer_id", "value")
    assert await sink.meter(meter.id) == meter
    assert await sink.account_id() == "acct_sandbox"
    event = frozen(value=999_999_999_999_999)
    await once(sink, event)
    start_s = event.window_start_us // 10**6
    groupings: tuple[Grouping | None, ...] = ("hour", None)
    for grouping in groupings:
        rows = await sink.event_summaries("cus_1", meter.id, start_s, start_s + 3_600, grouping)
        assert [(row.start_s, row.end_s, row.value) for row in rows] == [
            (start_s, start_s + 3_600, Decimal(999_999_999_999_999))
        ]


async def test_more_than_a_page_of_sums_is_read_whole(service: Service, sink: StripeSink) -> None:
    at_us = now_us()
    midnight_us = at_us - at_us % (24 * HOUR_US)
    for hour in range(-150, 0):
        start_us = midnight_us + hour * HOUR_US
        cell = Cell("cus_1", "api_calls", start_us, start_us + HOUR_US)
        origin = Origin("acct", livemode=False, ledger_id="l")
        await once(sink, freeze_window(origin, cell, 1, hour + 1_000, 1, at_us))
    meter = (await sink.meters())[0]
    first_s = midnight_us // 10**6 - 150 * 3_600
    rows = await sink.event_summaries("cus_1", meter.id, first_s, midnight_us // 10**6, "hour")
    assert len(rows) == 150
    assert sum(row.value for row in rows) == 150


async def test_reading_fails_by_name(service: Service, sink: StripeSink) -> None:
    with pytest.raises(StripeUnreadableError, match=r"meter mtr_none: .*404"):
        await sink.meter("mtr_none")
    with pytest.raises(StripeUnreadableError, match=r"event summaries of cus_1"):
        await sink.event_summaries("cus_1", "mtr_none", 0, 60, None)
    await order(service, kind="outage")
    with pytest.raises(StripeUnreadableError, match="meters"):
        await sink.meters()
    with pytest.raises(StripeUnreadableError, match="account"):
        await sink.account_id()


async def test_nothing_is_written_home_and_no_secret_is_shown(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    settings = settings_for(service.url)
    async with StripeSink(settings) as sink:
        await once(sink, frozen())
    assert not home.exists()
    assert SECRET not in repr(settings)


def test_what_the_library_wraps_is_unwrapped() -> None:
    wrapped = stripe.APIConnectionError("x")  # type: ignore[no-untyped-call]  # the library's
    assert observe_error(wrapped) == MaybeSent("APIConnectionError")
    wrapped.__cause__ = aiohttp.ConnectionTimeoutError()
    assert observe_error(wrapped) == NotSent("ConnectionTimeoutError")
