"""A Stripe sandbox to try things in: meters and customers of its own, one request after the other.

In: what a probe wants to send or read. Out: Stripe's answers, as the publisher would see them.
Nothing is sent to any other address than the one that the sink was made with.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, Literal
from uuid import uuid4

import aiohttp
import msgspec
import stripe

from streams.adapters.clock import Clock
from streams.adapters.stripe import METER_EVENTS_PATH, StripeSink, StripeUnreadableError
from streams.adapters.stripe_events import StripeEvents
from streams.adapters.stripe_wire import observe_error, observe_success
from streams.core.live_meter import LiveMeter
from streams.core.meter_event import CUSTOMER_KEY, VALUE_KEY
from streams.core.observation import Answer, History
from streams.core.publication import rule_for

PREFIX: Final = "tailrace_facts"
"""Of the meters, which stay in the account: the next run finds them there."""

MINUTE_S: Final = 60
PAUSE_S_MAX: Final = 30.0
"""Reads are counted: an account has as few as 10,000 in a month."""

Seen = dict[str, Any]
"""An answer as data."""


class StillOpenError(Exception):
    """A question that this run could not answer, and why."""


class Kept(msgspec.Struct):
    """A meter event whose identifier later runs ask for again."""

    identifier: str
    event_name: str
    customer: str
    sent_at_s: int


class Lab:
    """One run's meters, customers and memory."""

    def __init__(self, sink: StripeSink, clock: Clock, wait_s: float, pause_s: float) -> None:
        """Asks nothing yet.

        Args:
            sink: Stripe.
            clock: the time.
            wait_s: how long to wait for what Stripe does after its answer.
            pause_s: between the first two looks; later ones are further apart.
        """
        self.sink = sink
        self.clock = clock
        self.kept: list[Kept] = []
        self.refused_until_s: int | None = None
        self.counted_from_s: int | None = None
        self._wait_s = wait_s
        self._pause_s = pause_s
        self._meters: dict[str, LiveMeter] = {}
        self._events = StripeEvents(sink)

    @property
    def now_s(self) -> int:
        """Whole seconds since 1970 UTC."""
        return self.clock.now_us() // 1_000_000

    def name(self, what: str) -> str:
        """An identifier or key that nobody has used before."""
        return f"facts-{what}-{uuid4().hex}"

    async def meter(
        self, suffix: str = "a", window: Literal["hour", "day"] | None = None
    ) -> LiveMeter:
        """A sum meter of the account, made when it is first needed.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        if not self._meters:
            self._meters = {one.event_name: one for one in await self.sink.meters() if one.active}
        event_name = f"{PREFIX}_{suffix}"
        if event_name not in self._meters:
            await self._make_meter(event_name, window)
            self._meters = {one.event_name: one for one in await self.sink.meters() if one.active}
        return self._meters[event_name]

    async def _make_meter(self, event_name: str, window: Literal["hour", "day"] | None) -> None:
        extra: dict[str, Any] = {} if window is None else {"event_time_window": window}
        async with self.sink.reading(f"meter {event_name}"):
            await self.sink.client.raw_request_async(
                "post",
                "/v1/billing/meters",
                display_name=event_name,
                event_name=event_name,
                default_aggregation={"formula": "sum"},
                **extra,
            )

    async def customer(self) -> str:
        """A customer without usage.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        async with self.sink.reading("a new customer"):
            made = await self.sink.client.v1.customers.create_async({"name": self.name("customer")})
        return made.id

    async def send(
        self,
        meter: LiveMeter,
        customer: str,
        value: str | None = "1",
        *,
        identifier: str | None = None,
        at_s: int | None = None,
        key: str | None = None,
    ) -> Answer:
        """One meter event.

        Raises:
            StripeUnreadableError: no whole answer came.
        """
        payload = {CUSTOMER_KEY: customer, **({} if value is None else {VALUE_KEY: value})}
        return await self.post(
            METER_EVENTS_PATH,
            key,
            event_name=meter.event_name,
            payload=payload,
            identifier=identifier or self.name("event"),
            timestamp=self.now_s if at_s is None else at_s,
        )

    async def cancel(self, meter: LiveMeter, identifier: str) -> Answer:
        """Takes a meter event back.

        Raises:
            StripeUnreadableError: no whole answer came.
        """
        return await self.post(
            "/v1/billing/meter_event_adjustments",
            None,
            event_name=meter.event_name,
            type="cancel",
            cancel={"identifier": identifier},
        )

    async def post(self, path: str, key: str | None, **parameters: Any) -> Answer:
        """One request, and what was answered, whatever that is.

        Raises:
            StripeUnreadableError: no whole answer came, or the key may not do it.
        """
        try:
            async with asyncio.timeout(self.sink.settings.deadline_s):
                response = await self.sink.client.raw_request_async(
                    "post", path, idempotency_key=key or self.name("key"), **parameters
                )
        except (stripe.StripeError, aiohttp.ClientError, OSError) as error:
            seen = observe_error(error)
            if not isinstance(seen, Answer) or seen.status in {401, 403}:
                raise StripeUnreadableError(path, seen) from None
            return seen
        return observe_success(response)

    async def total(self, meter: LiveMeter, customer: str, start_s: int, end_s: int) -> Decimal:
        """A sum, over whole minutes.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        rows = await self.sink.event_summaries(customer, meter.id, start_s, end_s, None)
        return sum((row.value for row in rows), Decimal(0))

    async def recent(self, meter: LiveMeter, customer: str) -> Decimal:
        """The sum of the last two hours and of what is dated now."""
        now_s = self.now_s
        end_s = now_s - now_s % MINUTE_S + MINUTE_S
        return await self.total(meter, customer, end_s - 120 * MINUTE_S, end_s)

    async def await_sum(self, meter: LiveMeter, customer: str, least: int) -> float:
        """Waits until a sum shows so much; the seconds it took.

        Raises:
            StillOpenError: it never did.
        """

        async def there() -> bool:
            return await self.recent(meter, customer) >= least

        return await self.wait(f"{least} units in the summaries", there)

    async def wait(self, what: str, condition: Callable[[], Awaitable[bool]]) -> float:
        """Asks again and again; the seconds until it was true.

        Raises:
            StillOpenError: it never was.
        """
        began_s = self.clock.elapsed_s()
        pause_s = self._pause_s
        while not await condition():
            if self.clock.elapsed_s() - began_s > self._wait_s:
                raise StillOpenError(f"not within {self._wait_s:g} s: {what}")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.2, PAUSE_S_MAX)
        return round(self.clock.elapsed_s() - began_s, 3)

    async def settle(self, read: Callable[[], Awaitable[Decimal]], expected: Decimal) -> Decimal:
        """Waits for a sum, but takes another one for an answer too; what it is then."""

        async def there() -> bool:
            return await read() == expected

        with suppress(StillOpenError):
            await self.wait(f"{expected} units", there)
        return await read()

    async def report_sample(self, since_us: int, names: frozenset[str]) -> Mapping[str, Any]:
        """How an error report names a request, as soon as one does.

        Args:
            since_us: reports made from then on.
            names: what the request may be named by.

        Raises:
            StillOpenError: none did.
        """
        found: list[Mapping[str, Any]] = []

        async def named() -> bool:
            for told in await self._events.reports_since(since_us):
                event = msgspec.json.decode(await self._events.event(told.event_id))
                found.extend(one for one in _requests(event) if names & set(map(str, one.values())))
            return bool(found)

        await self.wait("an error report that names the request", named)
        return found[0]


def _requests(event: Any) -> list[Mapping[str, Any]]:
    """The `request` of every sample in a report, wherever in it they stand."""
    if isinstance(event, dict):
        own = [event["request"]] if isinstance(event.get("request"), dict) else []
        return own + [each for value in event.values() for each in _requests(value)]
    return [each for one in event for each in _requests(one)] if isinstance(event, list) else []


def shown(answer: Answer, identifier: str) -> Seen:
    """An answer to a meter event as data, with the row of the publishing rules that it meets."""
    history = History(identifier, 0, 0, possibly_executed=True)
    return {**plain(answer), "row": rule_for(answer, history).name}


def plain(answer: Answer) -> Seen:
    """An answer that the publishing rules do not know, as data: it is not to a meter event."""
    return {
        "status": answer.status,
        "type": answer.error_type,
        "code": answer.error_code,
        "message": answer.error_message,
        "replayed": answer.replayed,
    }


def units(amount: Decimal) -> str:
    """A sum as text, without the zeros that a float leaves behind."""
    return f"{amount.normalize():f}"
