"""Output records: what stands in usage.accepted, usage.review and usage.dead-letter.

In: a verdict and the record it is about. Out: the bytes that other people's tools read. They are
produced at least once, so each names its source partition and offset: a reader keeps the
first per event id, or leaves out offsets it has already covered.
"""

from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from typing import Final

import msgspec

from streams.core.instant import wire_text
from streams.core.remedy import remedy
from streams.core.verdict import Accepted, Dead, Review

ORIGINAL_BYTES_MAX: Final = 64 * 1024
_ACCEPTED: Final = b'{"v":1,"source_partition":%d,"source_offset":%d,%b,"units":"%d","event":%b}'


@lru_cache(maxsize=4096)
def _window(catalogue_version: int, start_us: int, end_us: int) -> bytes:
    """Rendered once per window: events of the same hour come by the million."""
    text = (
        f'"catalogue":{catalogue_version},'
        f'"window_start":"{wire_text(start_us)}","window_end":"{wire_text(end_us)}"'
    )
    return text.encode()


def accepted(verdict: Accepted, partition: int, offset: int, value: bytes) -> bytes:
    """The original record, byte for byte, with its window around it."""
    series = verdict.series
    window = _window(series.catalogue_version, series.window_start_us, series.window_end_us)
    return _ACCEPTED % (partition, offset, window, verdict.units, value)


def review(verdict: Review, topic: str, partition: int, offset: int, value: bytes) -> bytes:
    """The original record with the reason why a person decides."""
    head = msgspec.json.encode(
        {
            "v": 1,
            "reason": verdict.reason,
            "rule": verdict.rule,
            "source_topic": topic,
            "source_partition": partition,
            "source_offset": offset,
        }
    )
    return head[:-1] + b',"event":' + value + b"}"


def dead_letter(
    verdict: Dead, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None
) -> bytes:
    """The evidence: reason, path, coordinates and at most 64 KiB of the original."""
    original = None if value is None else b64encode(value[:ORIGINAL_BYTES_MAX]).decode()
    return msgspec.json.encode(
        {
            "v": 1,
            "kind": verdict.kind,
            "reason": verdict.reason,
            "path": verdict.path,
            "next": remedy(verdict.kind, verdict.path, None),
            "source_topic": topic,
            "source_partition": partition,
            "source_offset": offset,
            "key": None if key is None else b64encode(key[:1024]).decode(),
            "original": original,
            "original_bytes": 0 if value is None else len(value),
            "original_sha256": sha256(value or b"").hexdigest(),
        }
    )
