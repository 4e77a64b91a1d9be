"""A dead meter event as the ledger parked it → its record of usage.dead-letter.

In: the parked row with its evidence. Out: key and value of the record, and what a person does
next.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from streams.core.instant import wire_text
from streams.core.remedy import remedy


@dataclass(frozen=True, slots=True)
class DeadMeterEvent:
    """A parked row; instants in microseconds."""

    parked_id: int
    """Where it is decided."""
    reason: str
    """refused, exhausted or ambiguous."""
    meter_event_id: int
    tenant_id: str | None
    """None where it covers entries of several."""
    metric: str | None
    """None where it covers entries of several."""
    units: str
    """Signed whole number of the meter's units, as text."""
    window_start_us: int
    window_end_us: int
    parked_at_us: int
    detail: str
    """JSON object text: the request, where its amounts came from, attempts with codes and ids."""


class _Attempt(msgspec.Struct):
    outcome: str | None = None
    code: str | None = None


class _Seen(msgspec.Struct):
    attempts: list[_Attempt] = []


_SEEN: Final = msgspec.json.Decoder(_Seen)


def record_of(dead: DeadMeterEvent) -> tuple[bytes | None, bytes]:
    """Key (the tenant) and value of the record. The detail goes on as the ledger wrote it."""
    seen = _SEEN.decode(dead.detail).attempts
    last = seen[-1] if seen else _Attempt()
    value = {
        "v": 1,
        "kind": dead.reason,
        "parked_id": dead.parked_id,
        "meter_event_id": dead.meter_event_id,
        "tenant_id": dead.tenant_id,
        "metric": dead.metric,
        "units": dead.units,
        "window_start": wire_text(dead.window_start_us),
        "window_end": wire_text(dead.window_end_us),
        "parked_at": wire_text(dead.parked_at_us),
        "next": remedy(dead.reason, last.code, last.outcome),
        "detail": msgspec.Raw(dead.detail.encode()),
    }
    key = None if dead.tenant_id is None else dead.tenant_id.encode()
    return key, msgspec.json.encode(value)
