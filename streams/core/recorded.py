"""Hop 2: a record's fields and its digests → whether they are those that its source recorded.

In: a record as it stands on the wire, and the event read from it. Out: nothing, or the rule that
it breaks. A record that some step changed, or copied under another identity, would otherwise be
billed as it came, and the audit, which compares digests, would find everything equal.

The identity holds source, tenant and key; the content holds the identity, the meter, the amount,
and `occurred_at` where the caller gave one. Nothing else is inside a digest.
"""

from hashlib import sha256
from typing import Final

import msgspec

from streams.core.event import Malformed, UsageEvent, Wire
from streams.core.identity import content_digest, correction_id, length_prefixed

CONTENT_VERSION: Final = 1
_NOTHING_COUNTED: Final = (
    "nothing of it was counted; find what changed it, then let metering.reemit send the row again"
)
_OTHER_IDENTITY: Final = Malformed(
    f"is not the identity of the record's source, tenant and key: {_NOTHING_COUNTED}", "$.event_id"
)
_OTHER_CONTENT: Final = Malformed(
    f"the record's fields are not those that were recorded: {_NOTHING_COUNTED}", "$.content"
)
_LENGTHS: Final = tuple(length.to_bytes(4, "big") for length in range(1024))
"""Of every name that hop 2 lets through, and of every amount that anybody can mean."""


class Names(msgspec.Struct, frozen=True, gc=False):
    """How the digests of one tenant's meter begin: source and tenant; after the id, the metric."""

    identity: bytes
    content: bytes


def names_of(source: str, tenant_id: str, metric: str) -> Names:
    """Names that hop 2 lets through, encoded once for all records that carry them."""
    return Names(length_prefixed(source, tenant_id), length_prefixed(metric))


def altered_usage(wire: Wire, event: UsageEvent, names: Names) -> Malformed | None:
    """The rule that usage, or a conflict of two, breaks by other fields than its own.

    `identity.event_id` and `identity.content_digest` in one: every record passes here.
    """
    identity, key = event.event_id, wire.event_key.encode()
    if sha256(names.identity + _LENGTHS[len(key)] + key).digest()[:16] != identity:
        return _OTHER_IDENTITY
    amount, given = wire.quantity.encode(), wire.occurred_at.encode()
    if len(amount) > 1023 or len(given) != 27:
        return _OTHER_CONTENT
    held = (identity, names.content, _LENGTHS[len(amount)], amount, _LENGTHS[27], given)
    if sha256(b"".join(held)).digest()[:16] == event.content:
        return None
    if event.occurred_at_us == event.received_at_us:
        return altered_timeless(wire, event)  # as it is where the caller gave no instant
    return _OTHER_CONTENT


def altered_timeless(wire: Wire, event: UsageEvent) -> Malformed | None:
    """The rule that content without an instant breaks: a canary's, or of usage received at once."""
    content = content_digest(event.event_id, wire.metric, wire.quantity, "")
    return None if content == event.content else _OTHER_CONTENT


def altered_correction(wire: Wire, event: UsageEvent) -> Malformed | None:
    """The rule that a correction, or a conflict of two, breaks by other fields than its own."""
    identity = correction_id(wire.source, wire.tenant_id, wire.event_key)
    if identity != event.event_id:
        return _OTHER_IDENTITY
    content = content_digest(identity, wire.metric, wire.delta, wire.target_event_id)
    return None if content == event.content else _OTHER_CONTENT
