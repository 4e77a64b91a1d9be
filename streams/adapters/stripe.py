"""Stripe: a frozen meter event → what was seen of the attempt, and Stripe's own sums to read back.

In: anything that has a meter event's fields, and the idempotency key. Out: an `Observation`, never
an exception: which exceptions prove that nothing was sent, and which prove nothing, is knowledge of
this client library and stays in this file. What an observation means is decided in `core`.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from types import TracebackType
from typing import Final, Literal, Protocol, Self

import aiohttp
import stripe

from streams.adapters.stripe_wire import Transport, observe_error, observe_success
from streams.core.live_meter import LiveMeter
from streams.core.meter_event import CUSTOMER_KEY, VALUE_KEY
from streams.core.observation import Observation, in_words
from streams.crash_points import CrashAt, never

# Process-wide in the library; left on, it writes an id into the user's home directory.
stripe.enable_telemetry = False

API_VERSION: Final = "2026-10-28.endive"
"""Pinned: without it a new release of the library would change what Stripe answers."""

DEFAULT_API_BASE: Final = "https://api.stripe.com"
STREAM_BASE: Final = "https://meter-events.stripe.com"
"""Where Stripe itself takes streams; whoever stands in for it has one address."""

METER_EVENTS_PATH: Final = "/v1/billing/meter_events"

Grouping = Literal["hour", "day"]


class Sendable(Protocol):
    """What a request consists of: a `MeterEvent`, or the ledger's claim of one."""

    @property
    def customer(self) -> str:
        """Stripe customer id."""

    @property
    def event_name(self) -> str:
        """Name by which Stripe finds the meter."""

    @property
    def value(self) -> int | str:
        """Signed whole number of units."""

    @property
    def timestamp_s(self) -> int:
        """Whole seconds since 1970 UTC."""

    @property
    def identifier(self) -> str:
        """What Stripe must not count twice."""


class Sink(Protocol):
    """Where meter events go. `send` answers for every attempt and never raises."""

    async def send(self, meter_event: Sendable, idempotency_key: str) -> Observation:
        """One attempt; waits for the answer or its deadline."""


@dataclass(frozen=True, slots=True)
class StripeSettings:
    """How Stripe is reached. Seconds, because aiohttp takes seconds."""

    api_key: str
    """Secret; never logged."""
    api_base: str = DEFAULT_API_BASE
    connect_timeout_s: float = 3.0
    """Until a connection is there, waiting for a free one included. Running out proves not sent."""
    read_timeout_s: float = 10.0
    """Longest silence after that."""
    deadline_s: float = 15.0
    """Longest an attempt lasts in all; a lease must be longer than this."""
    connections_max: int = 64
    """Requests in flight, over all lanes."""

    def __repr__(self) -> str:
        return f"StripeSettings(api_base={self.api_base!r}, api_key=***)"


@dataclass(frozen=True, slots=True)
class Summary:
    """Stripe's own sum over `[start_s, end_s)`; eventually consistent, without a freshness mark."""

    start_s: int
    end_s: int
    value: Decimal


class StripeUnreadableError(Exception):
    """Stripe could not be read: `what`, and why.

    Nothing was changed. Try again; if the cause names the key or a permission, correct the key.
    """

    def __init__(self, what: str, observation: Observation) -> None:
        super().__init__(f"{what}: {in_words(observation)}")
        self.observation = observation


class StripeSink:
    """Stripe Billing's meter events over one aiohttp session of our own.

    Made inside the event loop that uses it. One attempt a call: the library's retries are off,
    because an attempt that no attempt row knows of could not be explained afterwards.
    """

    def __init__(self, settings: StripeSettings, crash_at: CrashAt = never) -> None:
        self.settings = settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=settings.connections_max,
                ssl=ssl.create_default_context(cafile=stripe.ca_bundle_path),
            )
        )
        # No `total`: with it a connection that was never made and an answer that never came would
        # be the same bare TimeoutError, and every outage would leave doubt behind.
        limits = aiohttp.ClientTimeout(
            total=None,
            connect=settings.connect_timeout_s,
            sock_connect=settings.connect_timeout_s,
            sock_read=settings.read_timeout_s,
        )
        self.client = stripe.StripeClient(
            settings.api_key,
            base_addresses={"api": settings.api_base, "meter_events": _stream_base(settings)},
            http_client=Transport(self._session, limits, crash_at),
            max_network_retries=0,
            stripe_version=API_VERSION,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the session; requests in flight end as `MaybeSent`."""
        await self._session.close()

    async def send(self, meter_event: Sendable, idempotency_key: str) -> Observation:
        """One attempt to record a meter event. Raises nothing but CancelledError."""
        try:
            async with asyncio.timeout(self.settings.deadline_s):
                # Raw: the library would turn the answer into objects that nobody looks at.
                response = await self.client.raw_request_async(
                    "post",
                    METER_EVENTS_PATH,
                    event_name=meter_event.event_name,
                    payload={
                        CUSTOMER_KEY: meter_event.customer,
                        VALUE_KEY: str(meter_event.value),
                    },
                    identifier=meter_event.identifier,
                    timestamp=meter_event.timestamp_s,
                    idempotency_key=idempotency_key,
                )
        except Exception as error:  # noqa: BLE001 - whatever is raised, the attempt needs a name
            return observe_error(error)
        return observe_success(response)

    @asynccontextmanager
    async def reading(self, what: str, requests: int = 1) -> AsyncIterator[None]:
        """Around everything that is read of Stripe: one time limit and one name for its failures.

        Args:
            what: Whose reading it is, for the message.
            requests: How many deadlines it may take.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        try:
            async with asyncio.timeout(self.settings.deadline_s * requests):
                yield
        except (stripe.StripeError, aiohttp.ClientError, TimeoutError) as error:
            raise StripeUnreadableError(what, observe_error(error)) from None

    async def account_id(self) -> str:
        """The account the key belongs to: part of every identifier.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        async with self.reading("account"):
            return (await self.client.v1.accounts.retrieve_current_async()).id

    async def meters(self) -> tuple[LiveMeter, ...]:
        """All meters of the account.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        async with self.reading("meters"):
            page = await self.client.v1.billing.meters.list_async({"limit": 100})
            return tuple([_live_meter(meter) async for meter in page.auto_paging_iter()])

    async def meter(self, meter_id: str) -> LiveMeter:
        """One meter.

        Raises:
            StripeUnreadableError: Stripe was not reached, or knows no such meter.
        """
        async with self.reading(f"meter {meter_id}"):
            return _live_meter(await self.client.v1.billing.meters.retrieve_async(meter_id))

    async def event_summaries(
        self, customer: str, meter_id: str, start_s: int, end_s: int, grouping: Grouping | None
    ) -> tuple[Summary, ...]:
        """Stripe's sums of a customer on a meter. Hours or days without usage may be missing.

        Args:
            customer: Stripe customer id.
            meter_id: Stripe meter id.
            start_s: Whole seconds since 1970 UTC, on a minute; on an hour or day if grouped.
            end_s: The same, exclusive.
            grouping: One sum an hour or a day (UTC), or one for the whole range.

        Raises:
            StripeUnreadableError: Stripe was not reached or refused.
        """
        async with self.reading(f"event summaries of {customer} on {meter_id}"):
            return await self._summaries(customer, meter_id, start_s, end_s, grouping)

    async def _summaries(
        self, customer: str, meter_id: str, start_s: int, end_s: int, grouping: Grouping | None
    ) -> tuple[Summary, ...]:
        service = self.client.v1.billing.meters.event_summaries
        if grouping is None:
            page = await service.list_async(
                meter_id,
                {"customer": customer, "start_time": start_s, "end_time": end_s, "limit": 100},
            )
        else:
            page = await service.list_async(
                meter_id,
                {
                    "customer": customer,
                    "start_time": start_s,
                    "end_time": end_s,
                    "limit": 100,
                    "value_grouping_window": grouping,
                },
            )
        return tuple(
            [
                # repr() of a float is its shortest exact text: 15 digits survive it.
                Summary(row.start_time, row.end_time, Decimal(repr(row.aggregated_value)))
                async for row in page.auto_paging_iter()
            ]
        )


def _stream_base(settings: StripeSettings) -> str:
    return STREAM_BASE if settings.api_base == DEFAULT_API_BASE else settings.api_base


def _live_meter(meter: stripe.billing.Meter) -> LiveMeter:
    return LiveMeter(
        id=meter.id,
        event_name=meter.event_name,
        active=meter.status == "active",
        formula=meter.default_aggregation.formula,
        customer_key=meter.customer_mapping.event_payload_key,
        value_key=meter.value_settings.event_payload_key,
        event_time_window=meter.event_time_window,
        livemode=meter.livemode,
        changed_s=max(
            meter.created, meter.updated, meter.status_transitions.deactivated_at or meter.created
        ),
    )
