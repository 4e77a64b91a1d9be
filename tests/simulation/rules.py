"""The rules of usage once more, in the plainest way, for the oracle and for people."""

from decimal import Decimal
from typing import Final

from tests.simulation.service import Row

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
SCALE: Final = {"calls": 0, "storage": 2, "jobs": 0}
LATE_US: Final = {"calls": 3 * HOUR_US, "storage": HOUR_US, "jobs": 3 * HOUR_US}
HORIZON_US: Final = 6 * HOUR_US
"""How long a copy is surely known to be one."""
WINDOW_US: Final = {"calls": HOUR_US, "storage": 10 * MINUTE_US, "jobs": HOUR_US}
EARLY_US: Final = 5 * MINUTE_US


def verdict_of(row: Row) -> str:
    """accepted, late, early, conflict, unknown, correction or canary."""
    if row.kind in {"conflict", "canary"}:
        return row.kind
    if row.kind == "usage" and row.occurred_us - row.received_us > EARLY_US:
        return "early"
    if row.use.metric not in SCALE:
        return "unknown"
    if row.kind == "correction":
        return "correction"
    if row.received_us - row.occurred_us > LATE_US[row.use.metric]:
        return "late"
    return "accepted"


def units_of(row: Row) -> int:
    """The amount of a row in whole units."""
    return int(Decimal(row.use.quantity).scaleb(SCALE[row.use.metric]))
