"""Reports over real sockets: the stand-in tells, webhook and sweep listen with Stripe's library.

The ledger is in memory here and by its own rules; what it does on PostgreSQL is tested beside it.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import stripe

from sandbox.stripe_sandbox.service import Service, ServiceSettings
from sandbox.stripe_sandbox.settings import Settings
from streams.adapters.stripe import StripeSettings, StripeSink, StripeUnreadableError
from streams.adapters.stripe_events import StripeEvents, open_notification
from streams.adapters.webhook import WebhookServer
from streams.agents.rejections import Rejections
from streams.core.meter_event import Cell, MeterEvent, Origin, freeze_window
from streams.core.observation import Answer
from streams.core.rejection import ERROR_REPORT, NO_METER_FOUND, ErrorReport, read
from streams.ports import Concerned
from tests.support.waiting import eventually
from tests.unit.agents.outside import Clock
from tests.unit.agents.test_rejections import Ledger

HOUR_US = 3_600_000_000
SECRET = "whsec_contract"


class Time:
    """The stand-in's clock: the machine's, and forward when told to."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000 + self.ahead_us


class Wire:
    """Both sides."""

    def __init__(self, service: Service, sink: StripeSink, clock: Time) -> None:
        self.service, self.sink, self.clock = service, sink, clock
        self.ledger = Ledger(accused={})
        self.events = StripeEvents(sink)
        self.desk = Rejections(self.ledger, self.events, Clock())
        self.calls: list[int] = []

    async def receive(self, body: bytes, signature: str | None) -> tuple[int, str]:
        opened = open_notification(body, signature, SECRET, 300, time.time_ns() // 10**9)
        receipt = await self.desk.receive(opened)
        self.calls.append(receipt.status)
        return receipt.status, receipt.text

    def meter_event(self, number: int, event_name: str = "api_calls") -> MeterEvent:
        start_us = self.clock() // HOUR_US * HOUR_US
        cell = Cell("cus_1", event_name, start_us, start_us + HOUR_US)
        origin = Origin("acct", livemode=False, ledger_id="l")
        return freeze_window(origin, cell, 5, number, 1, self.clock())

    async def send(self, event: MeterEvent) -> None:
        seen = await self.sink.send(event, event.idempotency_key(1))
        assert isinstance(seen, Answer)
        assert seen.status == 200

    async def order(self, path: str, **body: Any) -> Any:
        url = f"{self.service.url}/_sandbox/{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=msgspec.json.encode(body)) as response,
        ):
            assert response.status in {200, 201}, await response.text()
            return msgspec.json.decode(await response.read())


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    clock = Time()
    rules = Settings(webhook_secret=SECRET, webhook_retry_ms=20, samples_max=2)
    service = Service(ServiceSettings(tmp_path, rules=rules), clock)
    service.create_meters(["api_calls"])
    await service.start()
    reach = StripeSettings("sk_test_wire", service.url, connect_timeout_s=1.0, deadline_s=6.0)
    async with StripeSink(reach) as sink:
        yield Wire(service, sink, clock)
    await service.stop()


@asynccontextmanager
async def webhook(
    wire: Wire, receive: Callable[[bytes, str | None], Awaitable[tuple[int, str]]] | None = None
) -> AsyncIterator[None]:
    server = WebhookServer("127.0.0.1", 0, receive or wire.receive)
    wire.service.engine.settings.webhook_url = await server.start()
    yield
    wire.service.engine.settings.webhook_url = ""
    await server.stop()


async def rejected(wire: Wire, *numbers: int, code: str = "archived_meter") -> list[MeterEvent]:
    """Meter events that are accepted, and refused afterwards; their validation is over."""
    await wire.order("faults", kind="reject", count=len(numbers), code=code)
    events = [wire.meter_event(number) for number in numbers]
    for event in events:
        await wire.send(event)
    wire.clock.ahead_us += 30_000_000
    return events


async def test_a_report_reaches_the_ledger_by_a_signed_call(wire: Wire) -> None:
    async with webhook(wire):
        events = await rejected(wire, 1, 2, 3)
        await eventually("noted", lambda: len(wire.ledger.noted) == 1, 20)
        await eventually("taken", lambda: len(wire.service.engine.state.delivered) == 1, 20)
    [(report, concerned)] = wire.ledger.noted.values()
    assert isinstance(report, ErrorReport)
    assert [s.idempotency_key for s in report.samples] == [e.idempotency_key(1) for e in events[:2]]
    assert (report.error_count, report.unnamed, concerned) == (3, 1, Concerned("api_calls"))
    assert wire.calls == [200]


async def test_no_meter_found_is_told_without_a_meter(wire: Wire) -> None:
    wire.service.engine.settings.asynchronous_validation = True
    async with webhook(wire):
        await wire.send(wire.meter_event(1, "nobody_listens"))
        wire.clock.ahead_us += 30_000_000
        await eventually("noted", lambda: len(wire.ledger.noted) == 1, 20)
    [(report, concerned)] = wire.ledger.noted.values()
    assert (report.event_type, report.meter_id, concerned) == (NO_METER_FOUND, None, Concerned())


async def test_calls_are_repeated_until_they_are_taken_and_shuffled_and_taken_twice(
    wire: Wire,
) -> None:
    settings = wire.service.engine.settings
    settings.webhook_shuffle, settings.webhook_copies = True, 3
    for number in range(4):
        await rejected(wire, number)
    wire.ledger.away_calls = 5
    async with webhook(wire):
        await eventually("all taken", lambda: len(wire.service.engine.state.delivered) == 4, 20)
    assert sorted(wire.ledger.commits) == sorted(wire.service.engine.state.reports)
    assert wire.calls.count(503) == 5
    assert wire.calls.count(200) == 12
    assert wire.desk.figures.repeated == 8


async def test_a_call_with_another_secret_is_refused_and_nothing_is_fetched(wire: Wire) -> None:
    wire.service.engine.settings.webhook_secret = "whsec_somebody_else"
    await rejected(wire, 1)
    async with webhook(wire):
        await eventually("refused twice", lambda: len(wire.calls) >= 2, 20)
    assert set(wire.calls) == {400}
    assert wire.ledger.noted == {}


async def test_other_types_are_taken_and_ignored_by_name(wire: Wire) -> None:
    made = await wire.order("events", type="v1.billing.meter.updated")
    async with webhook(wire):
        await eventually("taken", lambda: made["id"] in wire.service.engine.state.delivered, 20)
    assert wire.desk.figures.ignored == {"v1.billing.meter.updated": 1}


async def test_a_sweep_finds_what_no_webhook_told_page_by_page(wire: Wire) -> None:
    wire.service.engine.settings.webhook_loss = 1.0
    async with webhook(wire):
        for number in range(3):
            await rejected(wire, number)
        await eventually("lost", lambda: wire.service.delivery.lost == 3, 20)
    wire.ledger.swept_until = 1
    for number in range(130):
        await wire.order("events", type=[ERROR_REPORT, "v1.billing.meter.updated"][number % 2])
    assert await wire.desk.sweep(0.0) == 68
    assert wire.calls == []
    assert len(wire.ledger.noted) == 68
    assert await wire.desk.sweep(0.0) == 0


async def test_the_library_reads_the_stand_ins_events_as_its_own_types(wire: Wire) -> None:
    await rejected(wire, 1)
    [told] = await wire.events.reports_since(1)
    event = await wire.sink.client.v2.core.events.retrieve_async(told.event_id)
    assert isinstance(event, stripe.events.V1BillingMeterErrorReportTriggeredEvent)
    assert event.data.reason.error_types[0].code == "archived_meter"
    report = read(told.event_id, told.event_type, await wire.events.event(told.event_id))
    assert isinstance(report, ErrorReport)
    assert report.samples[0].idempotency_key == (
        event.data.reason.error_types[0].sample_errors[0].request.identifier
    )


async def test_an_event_that_nobody_knows_is_an_error_and_a_meter_that_nobody_knows_is_none(
    wire: Wire,
) -> None:
    with pytest.raises(StripeUnreadableError, match="event evt_none"):
        await wire.events.event("evt_none")
    assert await wire.events.meter_event_name("mtr_none") is None
    await wire.order("faults", kind="outage", match={"path": "/"})
    for ask in (
        wire.events.event("evt_none"),
        wire.events.reports_since(1),
        wire.events.meter_event_name("mtr_none"),
        wire.events.names_taken_since(1),
    ):
        with pytest.raises(StripeUnreadableError):
            await ask


async def test_a_meter_that_was_away_for_a_while_has_not_taken_all(wire: Wire) -> None:
    await rejected(wire, 1)
    [meter] = await wire.sink.meters()
    name = frozenset({meter.event_name})
    made_us = meter.changed_s * 1_000_000
    assert await wire.events.names_taken_since(made_us) == frozenset()
    assert await wire.events.names_taken_since(made_us + 1) == name
    wire.clock.ahead_us += 60_000_000
    for verb in ("deactivate", "reactivate"):
        await wire.sink.client.raw_request_async("post", f"/v1/billing/meters/{meter.id}/{verb}")
    assert await wire.events.names_taken_since(made_us + 1) == frozenset()
    assert await wire.events.names_taken_since(made_us + 120_000_000) == name


async def test_the_stream_of_the_newer_api_speaks_to_the_library(wire: Wire) -> None:
    billing = wire.sink.client.v2.billing
    session = await billing.meter_event_session.create_async()
    payload = {"stripe_customer_id": "cus_1", "value": "5"}
    sent: Any = {"event_name": "api_calls", "identifier": "id-1", "payload": payload}
    options: Any = {"api_key": session.authentication_token}
    await billing.meter_event_stream.create_async({"events": [sent, sent]}, options)
    assert [event.identifier for event in wire.service.engine.state.recorded] == ["id-1"]

    wire.clock.ahead_us += 15 * 60_000_000
    with pytest.raises(stripe.TemporarySessionExpiredError):
        await billing.meter_event_stream.create_async({"events": [sent]}, options)
    with pytest.raises(stripe.InvalidRequestError) as refused:
        await billing.meter_events.create_async(sent)
    assert refused.value.code == "duplicate_meter_event"
