"""Facts → the JSON texts that the ledger's statements take, one per kind.

JSON, because one text parameter costs a tenth of arrays on this side. Numbers beyond 64 bits
travel as text. Text that PostgreSQL cannot hold (NUL, half a surrogate pair) is made visible
instead of refused, but only in parked items and reasons: in an identity it would merge two tenants.
"""

import base64
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec

from streams.core.fact import (
    CanaryFact,
    CellFact,
    CorrectionFact,
    EventFact,
    LevelFact,
    ParkedFact,
    Series,
)


class _Level(msgspec.Struct, frozen=True, gc=False):
    """A row of `apply_levels`. A struct, because a busy worker tells of thousands a second."""

    tenant_id: str
    metric: str
    version: int
    start_us: int
    end_us: int
    shard: int
    birth: int
    count: int
    total: str
    digest: str


def levels(facts: Iterable[LevelFact]) -> str:
    """Rows of `apply_levels`."""
    return _json(
        _Level(
            (series := fact.series).tenant_id,
            series.metric,
            series.catalogue_version,
            series.window_start_us,
            series.window_end_us,
            series.shard,
            fact.birth_offset,
            fact.count,
            str(fact.total),
            str(fact.digest),
        )
        for fact in facts
    )


def entries(events: Iterable[EventFact], corrections: Iterable[CorrectionFact]) -> str:
    """Rows of `apply_entries`: both kinds in one statement, so that lanes are locked once."""
    rows = [
        {
            **_series(fact.series),
            "kind": "event",
            "record_offset": fact.offset,
            "delta": fact.units,
            "event_id": _uuid(fact.event_id),
            "content": str(fact.content),
            "occurred_us": fact.occurred_at_us,
        }
        for fact in events
    ]
    rows.extend(
        {
            **_series(fact.series),
            "kind": "correction",
            "record_offset": fact.offset,
            "delta": fact.delta_units,
            "event_id": _uuid(fact.event_id),
            "content": str(fact.content),
            "occurred_us": fact.occurred_at_us,
            "target": _uuid(fact.target_event_id),
            "reference": visible(fact.correction_key),
            "actor": visible(fact.authorized_by),
            "reason": visible(fact.reason),
        }
        for fact in corrections
    )
    return _json(rows)


def parked(facts: Iterable[ParkedFact]) -> str:
    """Rows of `apply_parked`."""
    return _json(
        {
            **({} if fact.series is None else _series(fact.series)),
            "kind": fact.kind,
            "reason": fact.reason,
            "record_offset": fact.offset,
            "event_id": _uuid(fact.event_id),
            "content": _number(fact.content),
            "source": visible(fact.source),
            "tenant_id": visible(fact.tenant_id),
            "metric": visible(fact.metric),
            "units": _number(fact.units),
            "occurred_us": fact.occurred_at_us,
            "received_us": fact.received_at_us,
            "detail": visible(fact.detail),
            "record": base64.b64encode(fact.record).decode(),
        }
        for fact in facts
    )


def cells(facts: Iterable[CellFact]) -> str:
    """Rows of `apply_cells`."""
    return _json(
        {
            "source": fact.source,
            "minute_us": fact.minute_us,
            "verdict_class": fact.verdict_class,
            "count": fact.count,
            "digest": str(fact.digest),
            "birth": fact.birth_offset,
        }
        for fact in facts
    )


def canaries(facts: Iterable[CanaryFact]) -> str:
    """Rows of `apply_canaries`."""
    return _json(
        {
            "source": visible(fact.source),
            "partition": fact.partition,
            "token": visible(fact.token),
            "received_us": fact.received_at_us,
            "record_offset": fact.offset,
        }
        for fact in facts
    )


def _series(series: Series) -> dict[str, Any]:
    return {
        "tenant_id": series.tenant_id,
        "metric": series.metric,
        "version": series.catalogue_version,
        "start_us": series.window_start_us,
        "end_us": series.window_end_us,
        "shard": series.shard,
    }


def _json(rows: Iterable[dict[str, Any] | _Level]) -> str:
    return msgspec.json.encode(list(rows)).decode()


def _uuid(raw: bytes | None) -> str | None:
    return None if raw is None else str(UUID(bytes=raw))


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def visible(text: str | None) -> str | None:
    """The text with what PostgreSQL cannot hold made visible."""
    if text is None:
        return None
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
