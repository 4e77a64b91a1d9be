"""What the stand-in never forgets: the facts its journal holds and its state is folded from."""

from typing import Literal

import msgspec

Formula = Literal["sum", "count", "last"]
Interval = Literal["hour", "day", "week", "month"]


class Meter(msgspec.Struct, frozen=True, tag="meter"):
    """A meter as it is from now on; a later fact of the same id replaces it."""

    id: str
    event_name: str
    display_name: str
    created_s: int
    formula: Formula = "sum"
    customer_key: str = "stripe_customer_id"
    value_key: str = "value"
    event_time_window: Literal["hour", "day"] | None = None
    active: bool = True
    deactivated_s: int | None = None
    updated_s: int | None = None
    """When it was changed last; None: never."""


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """A meter event that was answered with success, whether or not it counts in the end."""

    identifier: str
    customer: str
    event_name: str
    value: str
    """The decimal text exactly as sent."""
    timestamp_s: int
    received_us: int
    idempotency_key: str | None
    refused: str | None = None
    """Code of the asynchronous refusal: answered with success, never counted."""
    meter_id: str | None = None
    """The meter of the name, active or not; None where there never was one."""


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """An adjustment took a recorded meter event back."""

    identifier: str
    at_us: int


class StoredAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """The answer that an idempotency key gives from now on, for its day."""

    idempotency_key: str
    fingerprint: str
    """Hash of method, path and parameters: other parameters under the key are refused."""
    status: int
    body: msgspec.Raw
    at_us: int


class Subscription(msgspec.Struct, frozen=True, tag="subscription", forbid_unknown_fields=True):
    """What a customer is invoiced for, and when its invoices become final."""

    id: str
    customer: str
    event_names: list[str]
    anchor_s: int
    """Start of the first period, whole seconds since 1970 UTC."""
    interval: Interval = "month"
    grace_s: int = 3_600
    """From the end of a period to its final invoice; an hour is Stripe's default, 72 the most."""
    interval_count: int = 1
    """Intervals in a period."""


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    """An event that Stripe tells of: by webhook, in its list, and by its id."""

    id: str
    kind: str
    """Its type, such as v1.billing.meter.no_meter_found."""
    created_us: int
    meter_id: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")
    """What only the fetched event holds."""
    window_us: int | None = None
    """Start of the validation that it sums up; None for an event of another kind."""


class Delivered(msgspec.Struct, frozen=True, tag="delivered"):
    """The webhook endpoint has taken an event: it is not told again by itself."""

    event_id: str
    at_us: int


class Session(msgspec.Struct, frozen=True, tag="session"):
    """A token for the stream of meter events."""

    token: str
    expires_us: int


Fact = Meter | Recorded | Cancelled | StoredAnswer | Subscription | Reported | Delivered | Session
