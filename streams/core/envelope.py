"""Envelope: the bytes of a record → a usage event, or why it cannot be one.

Every input has an answer here: nothing that stands in a topic can raise.
"""

import re
from binascii import Error as HexError
from binascii import unhexlify
from typing import Final

import msgspec

from streams.core.event import (
    Canary,
    Conflict,
    Correction,
    Decoded,
    Malformed,
    Unsupported,
    UsageEvent,
    Wire,
)
from streams.core.instant import EPOCH

SCHEMA_VERSION: Final = 1
CANARY_METRIC: Final = "tailrace.canary"
RECORD_BYTES_MAX: Final = 1 << 20


class _Version(msgspec.Struct):
    v: int


_DECODER: Final = msgspec.json.Decoder(Wire)
_VERSION_DECODER: Final = msgspec.json.Decoder(_Version)
_PATH: Final = re.compile(r" - at `(?P<path>\$[^`]*)`$")


def decode(key: bytes | None, value: bytes | None) -> Decoded:
    """What a record says.

    The Kafka key is compared with the one that the row pinned to the identity: a record that some
    tool produced under another key would sit on a partition that never saw its first copy.
    """
    if value is None:
        return Malformed("value: is null; every record carries a JSON object", "$")
    if len(value) > RECORD_BYTES_MAX:
        return Malformed(f"value: has {len(value)} bytes, at most {RECORD_BYTES_MAX}", "$")
    try:
        wire = _DECODER.decode(value)
    except RecursionError:
        return Malformed("value: is nested too deeply to be read", "$")
    except (msgspec.DecodeError, ValueError) as error:
        return _unreadable(value, error)
    if wire.v != SCHEMA_VERSION:
        return Unsupported(wire.v)
    if key is None or key != wire.kafka_key.encode():
        return Malformed("the record's Kafka key is another than the row's", "$.kafka_key")
    return _typed(wire)


def _unreadable(value: bytes, error: Exception) -> Malformed | Unsupported:
    """Malformed, unless the record names a version whose shape this code cannot know."""
    try:
        version = _VERSION_DECODER.decode(value).v
    except (msgspec.DecodeError, ValueError, RecursionError):
        version = SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        return Unsupported(version)
    text = str(error)
    found = _PATH.search(text)
    path = found["path"] if found else "$"
    return Malformed(text[: found.start()] if found else text, path)


def _typed(wire: Wire) -> Decoded:
    event = _event(wire)
    if isinstance(event, Malformed):
        return event
    if wire.type == "canary":
        return Canary(event, wire.partition, wire.token)
    if wire.kafka_key not in {wire.tenant_id, f"{wire.tenant_id}#{wire.shard}"}:
        return Malformed("must be the tenant, or tenant#shard", "$.kafka_key")
    match wire.type:
        case "usage":
            return event
        case "conflict":
            return Conflict(event, wire.first_content)
        case "correction":
            return _correction(wire, event)
        case _:
            known = "usage, conflict, correction, canary"
            return Malformed(f"unknown type {wire.type[:40]!r}, known are {known}", "$.type")


def _event(wire: Wire) -> UsageEvent | Malformed:
    identity = _sixteen_bytes(wire.event_id.replace("-", ""))
    if identity is None:
        return Malformed("not a uuid of 32 hex digits", "$.event_id")
    content = _sixteen_bytes(wire.content)
    if content is None:
        return Malformed("not a digest of 32 hex digits", "$.content")
    occurred, received = wire.occurred_at, wire.received_at
    if occurred.tzinfo is None or received.tzinfo is None:
        path = "$.occurred_at" if occurred.tzinfo is None else "$.received_at"
        return Malformed("has no time zone; instants end in Z", path)
    for path, text, most in (
        ("$.source", wire.source, 100),
        ("$.tenant_id", wire.tenant_id, 200),
        ("$.metric", wire.metric, 100),
    ):
        if not 1 <= len(text) <= most:
            return Malformed(f"has {len(text)} characters, 1 to {most} are allowed", path)
    if not 0 <= wire.shard < 1 << 31:
        return Malformed("must lie between 0 and 2147483647", "$.shard")
    since_occurred, since_received = occurred - EPOCH, received - EPOCH
    return UsageEvent(
        wire.source,
        identity,
        content,
        wire.tenant_id,
        wire.metric,
        wire.shard,
        wire.quantity or wire.delta,
        (since_occurred.days * 86_400 + since_occurred.seconds) * 1_000_000
        + since_occurred.microseconds,
        (since_received.days * 86_400 + since_received.seconds) * 1_000_000
        + since_received.microseconds,
    )


def _correction(wire: Wire, event: UsageEvent) -> Correction | Malformed:
    if not wire.delta:
        return Malformed("a correction needs a signed delta", "$.delta")
    if not wire.reason or not wire.authorized_by:
        path = "$.authorized_by" if wire.reason else "$.reason"
        return Malformed("a correction says why and who authorized it", path)
    target = _sixteen_bytes(wire.target_event_id.replace("-", "")) if wire.target_event_id else None
    return Correction(event, wire.event_key, target, wire.reason, wire.authorized_by, wire.review)


def _sixteen_bytes(hex_text: str) -> bytes | None:
    try:
        raw = unhexlify(hex_text)
    except (HexError, ValueError):
        return None
    return raw if len(raw) == 16 else None
