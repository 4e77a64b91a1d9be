"""Identity: (source, tenant, event key) → event id; event content → content digest.

The database of the service computes both once, and the row carries them. The stream computes them
again by the same rule and compares: a record that some step changed on its way is not counted.
"""

from base64 import b64decode, b64encode
from functools import lru_cache
from hashlib import sha256
from typing import Final
from uuid import UUID

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


def content_digest(identity: bytes, metric: str, quantity: str, rest: str) -> bytes:
    """Version 1 of what makes two recordings of one identity equal.

    Args:
        identity: the 16-byte event id; inside the digest, so that one value serves both to compare
            contents and as the summand of level and cell digests.
        metric: the meter's name.
        quantity: decimal text without trailing zeros, as PostgreSQL's `trim_scale` writes it.
        rest: the wire text of `occurred_at` if the caller gave one, else empty; for a correction
            the id of its target, as uuid text.
    """
    return sha256(identity + length_prefixed(metric, quantity, rest)).digest()[:16]


@lru_cache(maxsize=64)
def log_uuid(topic_id: str) -> str:
    """A topic's id as UUID text; clients show its 16 bytes in either base64 alphabet, unpadded."""
    padded = topic_id.replace("-", "+").replace("_", "/") + "=="
    return str(UUID(bytes=b64decode(padded, validate=True)))


def topic_id_of(log_id: str) -> str:
    """The topic id that a UUID stands for, as librdkafka shows it."""
    return b64encode(UUID(log_id).bytes).decode().rstrip("=")
