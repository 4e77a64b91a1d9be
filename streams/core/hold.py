"""Records that nothing may decide → why their partition waits, or what skipping them means.

In: a record, what it could be read as, and the skips of its partition. Out: a `Hold`, or the
verdict of the person who decided.
"""

from collections.abc import Container
from typing import Final

from streams.core.decided import Hold, SourceRecord
from streams.core.event import Canary, Correction, Decoded, Unsupported, UsageEvent
from streams.core.orders import Skip, Skips, fingerprint
from streams.core.verdict import Dead

UNREAD: Final = Dead(
    "two workers ended with this record alone in hand; it was parked unread", "$", "unread"
)
"""Of a record that may end whoever reads it, or may have been there by chance."""


def unsupported(record: SourceRecord, unknown: Unsupported) -> Hold:
    """Newer than this code: a wrong deployment order must not become a million dead letters."""
    reason = f"{unknown.of} version {unknown.version} is unknown here: upgrade the workers"
    return Hold(record.offset, reason, by_record=True)


def astray(record: SourceRecord) -> Hold:
    """On another partition than its key says: its copies there would not be known here."""
    reason = (
        f"the record at offset {record.offset} belongs on another partition; its producer "
        "does not use Kafka's murmur2, or has not noticed that the topic grew: skip it, and let "
        "metering.reemit send its row again"
    )
    return Hold(record.offset, reason, by_record=True)


def skip_of(record: SourceRecord, skips: Skips) -> Skip | None:
    """The decision to skip exactly this record; one on another record at its offset is none."""
    skip = skips.get(record.offset)
    if skip is None or skip.fingerprint != fingerprint(record.key, record.value):
        return None
    return skip


def skipped(skip: Skip) -> Dead:
    """What a skip says of its record."""
    said = f"skipped by {skip.actor} (receipt {skip.receipt}): {skip.reason}"
    return Dead(said, "$", skip=skip)


def first_identity(content: Decoded | None, known: Container[bytes]) -> UsageEvent | None:
    """The event whose identity is judged by a skip; None where it cannot be read or was judged."""
    match content:
        case UsageEvent():
            event = content
        case Correction(event=event) | Canary(event=event):
            pass
        case _:
            return None
    return None if event.event_id in known else event
