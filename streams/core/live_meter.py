"""A meter as Stripe has it, against what we publish to it: what would be counted wrongly.

In: the event names of the catalogue and all meters of the account. Out: findings; with none of them
a value that is sent adds exactly that value to exactly that customer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from streams.core.instant import SECOND_US
from streams.core.meter_event import CUSTOMER_KEY, VALUE_KEY


@dataclass(frozen=True, slots=True)
class LiveMeter:
    """One of Stripe's meters."""

    id: str
    event_name: str
    active: bool
    formula: str
    """`sum`, `count` or `last`."""
    customer_key: str
    """Where in the payload the meter looks for the customer."""
    value_key: str
    """Where in the payload the meter looks for the value."""
    event_time_window: str | None
    """`hour` or `day`: Stripe keeps only the event it received last in each."""
    livemode: bool
    changed_s: int
    """When it was made, changed, archived or activated last, whole seconds since 1970 UTC."""

    def took_since(self, since_us: int) -> bool:
        """Whether it has taken every event of its name since then, microseconds since 1970 UTC."""
        return self.active and self.changed_s * SECOND_US < since_us


Wrong = Literal["missing", "archived", "formula", "window", "customer_key", "value_key", "mode"]

MEANING: Final[Mapping[str, str]] = {
    "missing": "its first usage will be dead until the meter exists and it is redriven",
    "archived": "Stripe refuses its usage: every request is dead until it is redriven",
    "formula": "Stripe takes every request and counts something else than was used",
    "window": "Stripe takes every request and keeps one of each hour or day",
    "customer_key": "Stripe takes requests and bills them to nobody",
    "value_key": "Stripe takes requests and does not find their amounts",
    "mode": "real usage would be on a test invoice, or test usage on a real one",
}
"""What becomes of usage."""
ABSENT: Final[frozenset[str]] = frozenset({"missing", "archived"})
"""Stripe refuses what is sent, so amounts wait; of the others it takes it, and bills wrongly."""
CHECKS: Final[Mapping[str, str]] = {
    "missing": "meter-active",
    "archived": "meter-active",
    "formula": "meter-formula",
    "window": "meter-formula",
    "customer_key": "meter-keys",
    "value_key": "meter-keys",
    "mode": "meter-mode",
}
"""Which check of `tailrace doctor` names it with what to paste."""


@dataclass(frozen=True, slots=True)
class MeterFinding:
    """Why nothing may be published under a name yet."""

    kind: Wrong
    event_name: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.event_name}: {self.rule}; {self.remedy}"


def check_meters(
    event_names: Iterable[str], meters: Iterable[LiveMeter], *, livemode: bool
) -> tuple[MeterFinding, ...]:
    """Findings in order of name.

    Args:
        event_names: Names that are published to.
        meters: All meters of the account, inactive ones included.
        livemode: Whether the ledger is meant for real invoices.
    """
    by_name: dict[str, list[LiveMeter]] = {}
    for meter in meters:
        by_name.setdefault(meter.event_name, []).append(meter)
    found: list[MeterFinding] = []
    for name in sorted(set(event_names)):
        active = [meter for meter in by_name.get(name, ()) if meter.active]
        if active:
            found.extend(finding for meter in active for finding in _check(meter, livemode))
        else:
            found.append(_absent(name, archived=name in by_name))
    return tuple(found)


def _absent(name: str, *, archived: bool) -> MeterFinding:
    if archived:
        return MeterFinding("archived", name, "the meter is archived", "reactivate it")
    return MeterFinding("missing", name, "the meter does not exist", "create it with formula sum")


def _check(meter: LiveMeter, livemode: bool) -> Iterable[MeterFinding]:
    name = meter.event_name
    another = "create a meter under another event_name; Stripe never changes one"
    if meter.formula != "sum":
        yield MeterFinding("formula", name, f"formula is {meter.formula}, not sum", another)
    if meter.event_time_window is not None:
        rule = f"keeps only the last event of each {meter.event_time_window}"
        yield MeterFinding("window", name, rule, another)
    if meter.customer_key != CUSTOMER_KEY:
        rule = f"finds the customer under {meter.customer_key!r}, not {CUSTOMER_KEY!r}"
        yield MeterFinding("customer_key", name, rule, another)
    if meter.value_key != VALUE_KEY:
        rule = f"finds the value under {meter.value_key!r}, not {VALUE_KEY!r}"
        yield MeterFinding("value_key", name, rule, another)
    if meter.livemode != livemode:
        have, want = ("live", "test") if meter.livemode else ("test", "live")
        rule = f"is a {have} meter, the ledger is for {want} mode"
        yield MeterFinding("mode", name, rule, "use the other key, or another ledger")
