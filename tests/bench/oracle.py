"""The records → what must come of them, counted the slow and obvious way.

Nothing of the product is used: standard JSON, standard dates, decimals, one set and one dictionary.
A contender whose tally differs in anything is out of the race, whatever its speed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

SKEW_MAX: Final = timedelta(hours=24)
ID_MODULUS: Final = 1 << 128
Series = tuple[str, str, str]
"""Tenant, metric, and the hour as `2026-11-01T05`."""
_JSON: Final = json.JSONDecoder()


@dataclass(slots=True)
class Tally:
    """What came of a topic. `ids` is the sum of the accepted identities as numbers, mod 2^128."""

    records: int = 0
    accepted: int = 0
    duplicates: int = 0
    late: int = 0
    malformed: int = 0
    ids: int = 0
    totals: dict[Series, tuple[int, Decimal]] = field(default_factory=dict)
    """Count and exact sum of each tenant's hour."""

    @property
    def outputs(self) -> int:
        """Records that must stand in the output topics."""
        return self.accepted + self.late + self.malformed


def tally(values: Iterable[bytes]) -> Tally:
    """What must come of these records, read in this order."""
    result, known = Tally(), set[str]()
    for value in values:
        result.records += 1
        try:
            event = _read(value)
        except (ValueError, KeyError, InvalidOperation):
            result.malformed += 1
            continue
        if event["event_id"] in known:
            result.duplicates += 1
            continue
        known.add(event["event_id"])
        if event["received"] - event["occurred"] > SKEW_MAX:
            result.late += 1
            continue
        result.accepted += 1
        result.ids = (result.ids + UUID(event["event_id"]).int) % ID_MODULUS
        series = (event["tenant_id"], event["metric"], event["occurred"].strftime("%Y-%m-%dT%H"))
        count, total = result.totals.get(series, (0, Decimal(0)))
        result.totals[series] = (count + 1, total + event["amount"])
    return result


def _read(value: bytes) -> dict[str, Any]:
    event: dict[str, Any] = _JSON.decode(value.decode())
    return event | {
        "amount": Decimal(event["quantity"]),
        "occurred": datetime.fromisoformat(event["occurred_at"]),
        "received": datetime.fromisoformat(event["received_at"]),
    }


def differences(expected: Tally, found: Tally) -> list[str]:
    """Every way in which a contender is wrong; empty when it is exact."""
    lines = [
        f"{name}: {getattr(found, name)}, must be {getattr(expected, name)}"
        for name in ("records", "accepted", "duplicates", "late", "malformed", "ids")
        if getattr(found, name) != getattr(expected, name)
    ]
    series = expected.totals.keys() | found.totals.keys()
    wrong = [s for s in series if expected.totals.get(s) != found.totals.get(s)]
    if wrong:
        first = min(wrong)
        lines.append(
            f"totals: {len(wrong)} of {len(series)} differ, first {' '.join(first)}: "
            f"{found.totals.get(first)}, must be {expected.totals.get(first)}"
        )
    return lines
