"""Hop 2: the bytes of a record → a usage event, or why it cannot be one.

In: key and value as they stand in the topic. Out: one of the types of `event`. Every input has an
answer: nothing that stands in a topic can raise, and nothing that is let through here can be
refused later by a store or a topic that the event has to pass.
"""

import re
from binascii import unhexlify
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import ValidationError, convert

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
from streams.core.instant import EPOCH, FIRST_US, LAST_US
from streams.core.recorded import (
    CONTENT_VERSION,
    Names,
    altered_correction,
    altered_timeless,
    altered_usage,
    names_of,
)

SCHEMA_VERSION: Final = 1
CANARY_TENANT_PREFIX: Final = "tailrace.canary"
"""Reserved: only canaries live under it, so that liveness probes can never become an amount."""
RECORD_BYTES_MAX: Final = 1 << 19
"""An output record carries the whole original: half of what the smallest topic takes."""
SHARD_MAX: Final = (1 << 31) - 1


class _Version(msgspec.Struct):
    v: int


_DECODER: Final = msgspec.json.Decoder(Wire)
_VERSION_DECODER: Final = msgspec.json.Decoder(_Version)
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
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
        if not value.isascii():
            value.decode()  # the decoder skips fields it does not know, also broken ones
    except RecursionError:
        return Malformed("value: is nested too deeply to be read", "$")
    except ValueError as error:  # msgspec's errors and UnicodeDecodeError are ValueErrors
        return _unreadable(value, error)
    if wire.v != SCHEMA_VERSION or wire.content_version != CONTENT_VERSION:
        return _other_version(wire.v, wire.content_version)
    if key is None or key != wire.kafka_key.encode():
        return Malformed("the record's Kafka key is another than the row's", "$.kafka_key")
    return _typed(wire)


def _unreadable(value: bytes, error: ValueError) -> Malformed | Unsupported:
    """Malformed, unless the record names a version whose shape this code cannot know."""
    try:
        version = _VERSION_DECODER.decode(value).v
    except (ValueError, RecursionError):
        version = SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        return _other_version(version)
    text = str(error)
    found = _PATH.search(text)
    path = found["path"] if found else "$"
    return Malformed(text[: found.start()] if found else text, path)


def _other_version(schema: int, content: int = CONTENT_VERSION) -> Malformed | Unsupported:
    """A digest by a rule that this code does not know cannot be compared: that waits, too."""
    if schema > SCHEMA_VERSION:
        return Unsupported(schema)
    if schema < SCHEMA_VERSION:
        return Malformed(f"schema versions begin at {SCHEMA_VERSION}", "$.v")
    if content > CONTENT_VERSION:
        return Unsupported(content, of="content")
    return Malformed(f"content versions begin at {CONTENT_VERSION}", "$.content_version")


def _typed(wire: Wire) -> Decoded:
    try:
        names = _names(
            wire.source,
            wire.tenant_id,
            wire.metric,
            wire.kafka_key,
            wire.shard,
            wire.type == "canary",
        )
    except _NotNamesError as error:
        return error.malformed
    event = _event(wire)
    if isinstance(event, Malformed):
        return event
    if wire.type == "usage":
        return altered_usage(wire, event, names) or event
    match wire.type:
        case "conflict":
            return _conflict(wire, event, names)
        case "correction":
            return _correction(wire, event)
        case "canary":
            return _canary(wire, event)
        case _:
            known = "usage, conflict, correction, canary"
            return Malformed(f"unknown type {wire.type[:40]!r}, known are {known}", "$.type")


class _NotNamesError(Exception):
    """Raised, not returned, so that the cache never keeps what is of any length."""

    def __init__(self, malformed: Malformed) -> None:
        super().__init__(malformed.reason)
        self.malformed = malformed


@lru_cache(maxsize=16_384)
def _names(
    source: str, tenant_id: str, metric: str, kafka_key: str, shard: int, is_canary: bool
) -> Names:
    """What all records of a tenant's meter have in common, checked and encoded once."""
    problem = (
        _bounded("$.source", source, 100)
        or _bounded("$.tenant_id", tenant_id, 200)
        or _bounded("$.metric", metric, 100)
        or _key_problem(tenant_id, kafka_key, shard, is_canary=is_canary)
    )
    if problem is not None:
        raise _NotNamesError(problem)
    return names_of(source, tenant_id, metric)


def _event(wire: Wire) -> UsageEvent | Malformed:
    event_key = wire.event_key
    # What is printable holds no control character, and nearly every key is.
    if not (0 < len(event_key) <= 200 and event_key.isprintable()):
        problem = _bounded("$.event_key", event_key, 200)
        if problem is not None:
            return problem
    try:
        identity, content = unhexlify(wire.event_id.replace("-", "")), unhexlify(wire.content)
    except ValueError:
        identity = content = b""
    if len(identity) != 16 or len(content) != 16:
        path = "$.content" if _sixteen_bytes(wire.event_id.replace("-", "")) else "$.event_id"
        return Malformed("not 32 hex digits", path)
    try:
        occurred, received = convert(wire.occurred_at, datetime), wire.received_at
    except ValidationError as error:
        return Malformed(str(error), "$.occurred_at")
    if occurred.tzinfo is None or received.tzinfo is None:
        path = "$.occurred_at" if occurred.tzinfo is None else "$.received_at"
        return Malformed("has no time zone; instants end in Z", path)
    since = occurred - EPOCH
    occurred_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    since = received - EPOCH
    received_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not (FIRST_US <= occurred_us < LAST_US and FIRST_US <= received_us < LAST_US):
        path = "$.received_at" if FIRST_US <= occurred_us < LAST_US else "$.occurred_at"
        return Malformed("lies outside the years 1 to 9999 (UTC, without its last day)", path)
    return UsageEvent(
        wire.source,
        identity,
        content,
        wire.tenant_id,
        wire.metric,
        wire.shard,
        wire.quantity if wire.type == "usage" else wire.delta or wire.quantity,
        occurred_us,
        received_us,
    )


def _bounded(path: str, text: str, most: int) -> Malformed | None:
    """Whether a name is too long for its column, empty, or holds a control character."""
    if not 1 <= len(text) <= most:
        return Malformed(f"has {len(text)} characters, 1 to {most} are allowed", path)
    rule = control_rule(text)
    return None if rule is None else Malformed(rule, path)


def control_rule(text: str) -> str | None:
    """The rule that a name breaks by a control character, in the words of the outbox's own check.

    Those of text direction are among them: two keys that look alike would be two events.
    """
    found = _CONTROL.search(text)
    return found and f"must not hold control characters, holds U+{ord(found[0]):04X}"


def _key_problem(
    tenant_id: str, kafka_key: str, shard: int, *, is_canary: bool
) -> Malformed | None:
    """Whether tenant, shard and key belong together: copies of one identity must always meet."""
    if tenant_id.startswith(CANARY_TENANT_PREFIX) != is_canary:
        rule = f"names that start with {CANARY_TENANT_PREFIX} are for canaries, and only for them"
        return Malformed(rule, "$.tenant_id")
    if shard == 0 and kafka_key == tenant_id:
        return None
    if not 0 <= shard <= SHARD_MAX:
        return Malformed(f"must lie between 0 and {SHARD_MAX}", "$.shard")
    if shard and kafka_key == f"{tenant_id}#{shard}":
        return None
    return Malformed("must be the tenant (then shard is 0), or tenant#shard", "$.kafka_key")


def _conflict(wire: Wire, event: UsageEvent, names: Names) -> Conflict | Malformed:
    if _sixteen_bytes(wire.first_content) is None:
        return Malformed("not 32 hex digits", "$.first_content")
    signed = bool(wire.delta)
    problem = altered_correction(wire, event) if signed else altered_usage(wire, event, names)
    return problem or Conflict(event, wire.first_content, of_correction=signed)


def _correction(wire: Wire, event: UsageEvent) -> Correction | Malformed:
    if not wire.delta:
        return Malformed("a correction needs a signed delta", "$.delta")
    for path, text in (("$.reason", wire.reason), ("$.authorized_by", wire.authorized_by)):
        if (problem := _bounded(path, text, 2_000)) is not None:
            return problem
    target = _sixteen_bytes(wire.target_event_id.replace("-", ""))
    if target is None:
        return Malformed("not 32 hex digits", "$.target_event_id")
    return altered_correction(wire, event) or Correction(
        event, wire.event_key, target, wire.reason, wire.authorized_by, wire.review
    )


def _canary(wire: Wire, event: UsageEvent) -> Canary | Malformed:
    if _sixteen_bytes(wire.token.replace("-", "")) is None:
        return Malformed("not 32 hex digits", "$.token")
    return altered_timeless(wire, event) or Canary(event, wire.partition, wire.token)


def _sixteen_bytes(hex_text: str) -> bytes | None:
    try:
        raw = unhexlify(hex_text)
    except ValueError:
        return None
    return raw if len(raw) == 16 else None
