"""What identifies one log, and one record in it."""

import hashlib
from typing import Final

import msgspec

ANCHOR_BYTES: Final = 16
"""Length of an anchor."""


class LogId(msgspec.Struct, frozen=True):
    """One partition of one topic, in one life of that topic.

    A topic that is deleted and created again has the same name and another id; offsets mean
    something only together with the id.
    """

    topic: str
    """Name of the topic."""
    topic_id: str
    """Id the broker gave this life of the topic, as text."""
    partition: int
    """Number of the partition."""

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] (topic id {self.topic_id})"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One Kafka record, as little of it as a verdict needs.

    Not tracked by the garbage collector: it holds no containers, and a chunk has thousands.
    """

    offset: int
    """Offset in the source log."""
    timestamp_ms: int
    """Log append time."""
    key: bytes | None
    """Kafka key."""
    value: bytes | None
    """Kafka value."""


def anchor_of(offset: int, key: bytes | None, value: bytes | None) -> bytes:
    """Fingerprint of the record at an offset: the proof that a log is the one settled before."""
    digest = hashlib.blake2b(offset.to_bytes(8, "big"), digest_size=ANCHOR_BYTES)
    for part in (key, value):
        if part is None:
            digest.update(b"\x00")
        else:
            digest.update(b"\x01" + len(part).to_bytes(8, "big") + part)
    return digest.digest()
