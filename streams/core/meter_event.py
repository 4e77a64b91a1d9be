"""Hop 6: entries that are due → one frozen request to Stripe's meter, or why it cannot be sent.

In: whose meter event it is, its cell (customer, meter, window), the net value of the entries it
covers, and the instant it is frozen. Out: a `MeterEvent` whose every byte is decided here once, so
that a repetition of it is the same request and Stripe can recognise it.
"""

import base64
import hashlib
from dataclasses import dataclass
from typing import Final

US_PER_S: Final = 1_000_000
"""Microseconds in a second."""

VALUE_ABS_MAX: Final = 10**15 - 1
"""Stripe refuses values of more than 15 significant digits."""

CUSTOMER_KEY: Final = "stripe_customer_id"
"""Payload key of the customer; every meter we publish to must be configured with it."""

VALUE_KEY: Final = "value"
"""Payload key of the value; every meter we publish to must be configured with it."""

EVENT_NAME_CHARS_MAX: Final = 100
CUSTOMER_CHARS_MAX: Final = 255
IDENTIFIER_PREFIX: Final = "m1:"


class UnsendableMeterEventError(ValueError):
    """A meter event that Stripe could not take: `field: rule`, and what to do.

    Nothing has been sent. Park the entries it would have covered; after the named field has been
    put right, freeze again.
    """

    def __init__(self, field: str, rule: str, remedy: str) -> None:
        super().__init__(f"{field}: {rule}; {remedy}")
        self.field = field
        self.rule = rule
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sends: part of every identifier, so that two ledgers can never speak for each other."""

    account: str
    """Stripe account id the key belongs to."""
    livemode: bool
    """Whether real invoices are written."""
    ledger_id: str
    """Identity of the ledger; a ledger that was restored or adopted gets another one."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One customer's window on one meter: what a meter event adds to."""

    customer: str
    """Stripe customer id."""
    event_name: str
    """Name by which Stripe finds the meter."""
    window_start_us: int
    """Start of the window, inclusive, microseconds since 1970 UTC."""
    window_end_us: int
    """End of the window, exclusive, microseconds since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class MeterEvent:
    """A frozen request: immutable once made, superseded only by one with another identifier."""

    customer: str
    """Stripe customer id."""
    event_name: str
    """Name by which Stripe finds the meter."""
    value: int
    """Signed number of units; never 0."""
    timestamp_s: int
    """Instant the usage is dated, whole seconds since 1970 UTC, inside the window."""
    identifier: str
    """What Stripe refuses to count twice for at least 24 hours. Opaque: no name, no amount."""
    generation: int
    """1 for the first meter event of its entries, +1 each time it is superseded."""
    payload_hash: str
    """SHA-256, hex, of everything that is sent. A difference later is a broken invariant."""
    window_start_us: int
    """Start of the window, inclusive, microseconds since 1970 UTC."""
    window_end_us: int
    """End of the window, exclusive, microseconds since 1970 UTC."""

    def payload(self) -> dict[str, str]:
        """The payload exactly as sent: text only, so that no client library formats a number."""
        return {CUSTOMER_KEY: self.customer, VALUE_KEY: str(self.value)}

    def idempotency_key(self, key_generation: int) -> str:
        """The request's key: holds the identifier, so that an error report can be joined to it."""
        return f"{self.identifier}.g{key_generation}"

    def intact(self) -> bool:
        """Whether the content still is what was frozen; if not, stop: somebody changed a row."""
        return self.payload_hash == hash_payload(
            self.customer, self.event_name, self.value, self.timestamp_s, self.identifier
        )


def freeze_window(
    origin: Origin, cell: Cell, value: int, first_entry_id: int, generation: int, now_us: int
) -> MeterEvent:
    """Freezes the net value of a window's entries.

    Args:
        origin: Who sends.
        cell: Where the value goes.
        value: Net units of the covered entries.
        first_entry_id: Least id of the covered entries.
        generation: 1, or one more than that of the meter event it supersedes.
        now_us: The ledger's time, microseconds since 1970 UTC.

    Raises:
        UnsendableMeterEventError: The value or a name is not one that Stripe takes.
    """
    start_s = -(-cell.window_start_us // US_PER_S)
    end_s = cell.window_end_us // US_PER_S
    # One second inside the edges: Stripe's own text disagrees about which side an edge belongs to.
    timestamp_s = min(max(now_us // US_PER_S, start_s + 1), end_s - 1)
    return _freeze(origin, cell, value, f"entry:{first_entry_id}", generation, timestamp_s)


def freeze_event(
    origin: Origin, cell: Cell, value: int, event_id: str, generation: int, occurred_at_us: int
) -> MeterEvent:
    """Freezes a single usage event, dated when it happened (floored to the second).

    Args:
        origin: Who sends.
        cell: Where the value goes.
        value: Units of the event.
        event_id: Identity of the usage event, as text.
        generation: 1, or one more than that of the meter event it supersedes.
        occurred_at_us: When it happened, microseconds since 1970 UTC.

    Raises:
        UnsendableMeterEventError: The value or a name is not one that Stripe takes.
    """
    timestamp_s = occurred_at_us // US_PER_S
    return _freeze(origin, cell, value, f"event:{event_id}", generation, timestamp_s)


def freeze_proven(
    origin: Origin, cell: Cell, value: int, proof: str, timestamp_s: int
) -> MeterEvent:
    """Freezes an amount that Stripe's own sums have proven of a cell: missing there, or there.

    Args:
        origin: Who sends.
        cell: The customer's hour or day on the meter.
        value: Units.
        proof: What names the proof; the same proof never freezes two amounts.
        timestamp_s: Instant it is dated, inside the cell.

    Raises:
        UnsendableMeterEventError: The value or a name is not one that Stripe takes.
    """
    return _freeze(origin, cell, value, f"proof:{proof}", 1, timestamp_s)


def _freeze(
    origin: Origin, cell: Cell, value: int, first: str, generation: int, timestamp_s: int
) -> MeterEvent:
    _check(cell, value, generation)
    identifier = identify(origin, cell, first, generation)
    return MeterEvent(
        customer=cell.customer,
        event_name=cell.event_name,
        value=value,
        timestamp_s=timestamp_s,
        identifier=identifier,
        generation=generation,
        payload_hash=hash_payload(cell.customer, cell.event_name, value, timestamp_s, identifier),
        window_start_us=cell.window_start_us,
        window_end_us=cell.window_end_us,
    )


def identify(origin: Origin, cell: Cell, first: str, generation: int) -> str:
    """The identifier: 55 characters, the same for ever for the same cover and generation.

    The value is left out on purpose: were the same cover ever frozen with another value, Stripe
    must refuse the second one instead of counting both.
    """
    digest = _digest(
        origin.account,
        "live" if origin.livemode else "test",
        origin.ledger_id,
        cell.event_name,
        cell.customer,
        str(cell.window_start_us),
        str(cell.window_end_us),
        first,
        str(generation),
    )
    return IDENTIFIER_PREFIX + base64.b32encode(digest).decode().rstrip("=").lower()


def hash_payload(
    customer: str, event_name: str, value: int, timestamp_s: int, identifier: str
) -> str:
    """SHA-256, hex, over all that is sent."""
    return _digest(customer, event_name, str(value), str(timestamp_s), identifier).hex()


def _digest(*parts: str) -> bytes:
    """SHA-256 over the parts, each behind its length, so that no two lists of parts meet."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big"))
        digest.update(encoded)
    return digest.digest()


def _check(cell: Cell, value: int, generation: int) -> None:
    if value == 0:
        raise UnsendableMeterEventError("value", "is 0", "settle the entries without a request")
    if abs(value) > VALUE_ABS_MAX:
        raise UnsendableMeterEventError(
            "value",
            f"has more than 15 digits ({value})",
            "choose a coarser scale for the meter, or split the correction",
        )
    if generation < 1:
        raise UnsendableMeterEventError("generation", "is below 1", "count generations from 1")
    _check_text("customer", cell.customer, CUSTOMER_CHARS_MAX, "map the tenant again")
    _check_text("event_name", cell.event_name, EVENT_NAME_CHARS_MAX, "correct meters.toml")
    if cell.window_end_us - cell.window_start_us < 3 * US_PER_S:
        raise UnsendableMeterEventError(
            "window", "is shorter than 3 s", "use a window of a minute, an hour or a day"
        )


def _check_text(field: str, text: str, chars_max: int, remedy: str) -> None:
    if not 1 <= len(text) <= chars_max:
        raise UnsendableMeterEventError(field, f"must have 1 to {chars_max} characters", remedy)
