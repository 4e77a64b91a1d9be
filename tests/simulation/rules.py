"""The rules of usage once more, in the plainest way, for the oracle and for people."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tests.simulation.service import Row
from tests.simulation.timeline import T0_US

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
EARLY_US: Final = 5 * MINUTE_US
HORIZON_US: Final = 6 * HOUR_US
"""How long a copy is surely known to be one."""
SCALE: Final = {"calls": 0, "storage": 2, "jobs": 0, "logins": 0}
COUNTED: Final = frozenset({"logins"})
"""Each use is one, and nothing can be taken back."""
LIMIT: Final = 3
"""Units that one person corrects alone in a month or billing cycle; and the quantity that a service
takes back by itself at a time."""
SINGLE: Final = frozenset({"jobs", "logins"})
"""Each use is a request of its own."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a metric goes by from an instant on."""

    since_us: int
    name: str
    """Of the meter at Stripe."""
    window_us: int
    late_us: int


RULES: Final = {
    "calls": (Rule(0, "calls", HOUR_US, 3 * HOUR_US),),
    "storage": (
        Rule(0, "storage", 10 * MINUTE_US, 2 * HOUR_US),
        Rule(T0_US + 90 * MINUTE_US, "volume", 30 * MINUTE_US, HOUR_US),
    ),
    "jobs": (Rule(0, "jobs", HOUR_US, 3 * HOUR_US),),
    "logins": (Rule(0, "logins", HOUR_US, 3 * HOUR_US),),
}


def rule_of(metric: str, at_us: int) -> Rule:
    """What usage of an instant goes by: when it happened counts, not when it came."""
    return max((r for r in RULES[metric] if r.since_us <= at_us), key=lambda r: r.since_us)


def verdict_of(row: Row) -> str:
    """What becomes of a row, in a word."""
    if row.kind in {"conflict", "canary"}:
        return row.kind
    if row.kind == "usage" and row.occurred_us - row.received_us > EARLY_US:
        return "early"
    metric = row.use.metric
    if metric not in RULES:
        return "unknown"
    if metric in COUNTED and (row.kind == "correction" or row.use.quantity != "1"):
        return "uncountable"
    if row.kind == "correction":
        return "above_limit" if abs(Decimal(row.use.quantity)) > LIMIT else "correction"
    if row.received_us - row.occurred_us > rule_of(metric, row.occurred_us).late_us:
        return "late"
    return "accepted"


def units_of(row: Row) -> int:
    """The amount of a row in whole units."""
    return int(Decimal(row.use.quantity).scaleb(SCALE[row.use.metric]))
