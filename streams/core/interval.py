"""Billing intervals: `month`, `3 months` → how long a period is.

In: what a person types, what the ledger keeps, or what Stripe says of a price. Out: one text for
each length, and the length in days or months. The ledger reads the same text
(`ledger.period_edges`); tests hold the two together.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from streams.core.instant import DAY_US

BillingInterval = str
"""`day`, `week`, `month`, `year`, or a number of them as in `3 months`."""

_COUNTS_MAX: Final = {"day": 1095, "week": 156, "month": 36, "year": 3}
"""Stripe's longest period is three years."""
_FORM: Final = re.compile(r"(?:([1-9][0-9]{0,3}) )?(day|week|month|year)s?")


class Length(NamedTuple):
    """How long a period is: one of both is 0."""

    fixed_us: int
    months: int


def interval_of(unit: str | None, count: int) -> BillingInterval | None:
    """The text of so many units; None where Stripe has no such period."""
    if unit is None or not 1 <= count <= _COUNTS_MAX.get(unit, 0):
        return None
    return unit if count == 1 else f"{count} {unit}s"


def read_interval(text: str) -> BillingInterval | None:
    """What a person typed, as the ledger keeps it; None where it is no billing period."""
    matched = _FORM.fullmatch(text)
    return None if matched is None else interval_of(matched[2], int(matched[1] or 1))


@lru_cache
def length_of(interval: BillingInterval) -> Length:
    """The length of a period.

    Raises:
        ValueError: the text is no billing interval.
    """
    matched = _FORM.fullmatch(interval)
    if matched is None or read_interval(interval) != interval:
        message = f"{interval!r} is no billing interval"
        raise ValueError(message)
    unit, count = matched[2], int(matched[1] or 1)
    if unit in {"day", "week"}:
        return Length(count * (DAY_US if unit == "day" else 7 * DAY_US), 0)
    return Length(0, count * (1 if unit == "month" else 12))
