"""A record that is not counted, and its verdict → the parked item that the ledger queues.

In: the record, its event where it could be read, and why it is parked. Out: one `ParkedFact`, with
the amount where a person could approve it, and at most 64 KiB of the original as evidence.
"""

from hashlib import sha256
from typing import Any

import msgspec

from streams.core.decided import SourceRecord
from streams.core.event import UsageEvent
from streams.core.fact import ParkedFact
from streams.core.output import ORIGINAL_BYTES_MAX
from streams.core.verdict import Dead, Review


def review_item(record: SourceRecord, event: UsageEvent, verdict: Review) -> ParkedFact:
    """An item that a person approves or rejects."""
    return ParkedFact(
        kind="review",
        reason=verdict.reason,
        offset=record.offset,
        units=verdict.units,
        series=verdict.series,
        detail=msgspec.json.encode({"rule": verdict.rule}).decode(),
        **_evidence(record, event),
    )


def dead_item(record: SourceRecord, event: UsageEvent | None, verdict: Dead) -> ParkedFact:
    """An item that cannot be used as it stands; `event` is None where it could not be read.

    A decision goes with its item: a ledger that was restored from before both is told both.
    """
    detail: dict[str, Any] = {
        "rule": verdict.reason,
        "path": verdict.path,
        "sha256": sha256(record.value or b"").hexdigest(),
    }
    if (skip := verdict.skip) is not None:
        detail["skip"] = {
            "fingerprint": skip.fingerprint,
            "reason": skip.reason,
            "actor": skip.actor,
            "receipt": skip.receipt,
            "record_bytes": len(record.value or b""),
        }
    return ParkedFact(
        kind="dead",
        reason=verdict.kind,
        offset=record.offset,
        units=None,
        series=None,
        detail=msgspec.json.encode(detail).decode(),
        **_evidence(record, event),
    )


def _evidence(record: SourceRecord, event: UsageEvent | None) -> dict[str, Any]:
    return {
        "event_id": event.event_id if event else None,
        "content": int.from_bytes(event.content, "big") if event else None,
        "source": event.source if event else None,
        "tenant_id": event.tenant_id if event else None,
        "metric": event.metric if event else None,
        "occurred_at_us": event.occurred_at_us if event else None,
        "received_at_us": event.received_at_us if event else None,
        "record": (record.value or b"")[:ORIGINAL_BYTES_MAX],
    }
