"""Identity: (source, tenant, event key) → event id; event content → content digest.

The database of the service computes both once and the row carries them; the stream compares and
never recomputes. What is here is the same rule for those who check: tests, replay, audits.
"""

from base64 import b64decode
from hashlib import sha256
from typing import Final
from uuid import UUID

from streams.core.instant import wire_text

DIGEST_MODULUS: Final = 1 << 128
"""Level and cell digests are sums modulo this."""


def length_prefixed(*parts: str) -> bytes:
    """Each part as UTF-8 behind its length in four bytes, so that no two lists encode alike."""
    encoded = [part.encode() for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def event_id(source: str, tenant_id: str, event_key: str) -> bytes:
    """The 16 bytes that name a usage event for ever."""
    return sha256(length_prefixed(source, tenant_id, event_key)).digest()[:16]


def correction_id(source: str, tenant_id: str, correction_key: str) -> bytes:
    """The 16 bytes that name a correction; never equal to those of an event."""
    return sha256(length_prefixed("correction", source, tenant_id, correction_key)).digest()[:16]


def content_digest(
    identity: bytes, metric: str, quantity: str, occurred_at_us: int | None
) -> bytes:
    """Version 1 of what makes two recordings of one identity equal.

    Args:
        identity: the 16-byte event id; inside the digest, so that one value serves both to compare
            contents and as the summand of level and cell digests.
        metric: the meter's name.
        quantity: decimal text without trailing zeros, as PostgreSQL's `trim_scale` writes it.
        occurred_at_us: UTC microseconds if the caller gave an instant, else None.
    """
    occurred = "" if occurred_at_us is None else wire_text(occurred_at_us)
    return sha256(identity + length_prefixed(metric, quantity, occurred)).digest()[:16]


def log_uuid(topic_id: str) -> str:
    """A topic's id as UUID text; clients show its 16 bytes in either base64 alphabet, unpadded."""
    padded = topic_id.replace("-", "+").replace("_", "/") + "=="
    return str(UUID(bytes=b64decode(padded, validate=True)))
