"""Events as the topic carries them: one struct a record type, only the fields that are used.

Attributes, keys and trace context stay undecoded in the record; what a verdict needs is here.
"""

from datetime import datetime
from typing import assert_never

import msgspec


class Wire(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The fields of every record type that a verdict needs, as they stand on the wire.

    `event_id` is uuid text, `content` 32 hex digits; `quantity` decimal text. `delta` stands in a
    correction, `partition` and `token` in a canary, `first_content` in a conflict. `occurred_at`
    stays text, because its text is part of the content. Fields of usage come first, in the order in
    which PostgreSQL writes a jsonb: so the decoder finds each where it looks first.
    """

    v: int
    type: str
    shard: int
    metric: str
    source: str
    content: str
    event_id: str
    quantity: str = ""
    event_key: str
    kafka_key: str
    tenant_id: str
    occurred_at: str
    received_at: datetime
    content_version: int = 1
    delta: str = ""
    reason: str = ""
    authorized_by: str = ""
    target_event_id: str = ""
    review: bool = False
    partition: int = -1
    token: str = ""
    first_content: str = ""


class UsageEvent(msgspec.Struct, frozen=True, gc=False):
    """One recorded use, as SQL pinned it at its first recording.

    `event_id` and `content` are 16 bytes each; instants UTC microseconds; `quantity` decimal text.
    """

    source: str
    event_id: bytes
    content: bytes
    tenant_id: str
    metric: str
    shard: int
    quantity: str
    occurred_at_us: int
    received_at_us: int


class Conflict(msgspec.Struct, frozen=True, gc=False):
    """A second recording of a known identity with other content; never an amount by itself.

    `first_content` is the first recording's digest in hex. `of_correction`: the identity is a
    correction's, so `event.quantity` is a signed delta.
    """

    event: UsageEvent
    first_content: str
    of_correction: bool


class Correction(msgspec.Struct, frozen=True, gc=False):
    """A signed change that the service itself recorded; `event.quantity` is the delta."""

    event: UsageEvent
    correction_key: str
    target_event_id: bytes
    reason: str
    authorized_by: str
    above_limit: bool


class Canary(msgspec.Struct, frozen=True, gc=False):
    """A row that proves one partition's path; it never is an amount."""

    event: UsageEvent
    partition: int
    token: str


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """A record that cannot be read: the rule it breaks and where (`$.occurred_at`)."""

    reason: str
    path: str


class Unsupported(msgspec.Struct, frozen=True, gc=False):
    """A version that this code does not know: newer code must read it, so nobody guesses.

    `of` says of what: of the record's schema, or of the rule that its content digest follows.
    """

    version: int
    of: str = "schema"


Decoded = UsageEvent | Conflict | Correction | Canary | Malformed | Unsupported


def conflict_id(event: UsageEvent) -> bytes:
    """The 16 bytes that name one conflicting content of an identity."""
    mixed = int.from_bytes(event.event_id, "big") ^ int.from_bytes(event.content, "big")
    return mixed.to_bytes(16, "big")


def identity_of(content: Decoded) -> bytes | None:
    """What the state remembers a record by; None where it names no identity."""
    match content:
        case UsageEvent():
            return content.event_id
        case Conflict():
            return conflict_id(content.event)
        case Correction() | Canary():
            return content.event.event_id
        case Malformed() | Unsupported():
            return None
        case _ as unreachable:
            assert_never(unreachable)
