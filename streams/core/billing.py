"""Billing cycles: a customer's anchor, interval and grace → the deadline of an instant.

In: when a customer's billing periods begin, how long they are, and how long after a period's end
Stripe closes its invoice. Out: the period of an instant, the last instant at which usage of it
still reaches that invoice, and which meters cannot make it. The ledger computes the same in SQL
(`ledger.period_end`, `ledger.billing_deadline`); tests hold the two together.
"""

from calendar import monthrange
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

from streams.core.catalogue import MeterVersion
from streams.core.instant import DAY_US, EPOCH, HOUR_US, SECOND_US, from_us
from streams.core.interval import BillingInterval, interval_of, length_of

GRACE_US_MAX: Final = 72 * HOUR_US
"""The longest finalisation grace that Stripe allows."""
DEFAULT_GRACE_US: Final = HOUR_US
"""Stripe's own grace where nobody changed it."""

_CYCLE_YEARS: Final = 400
"""The Gregorian calendar repeats itself after these."""
_CYCLE_DAYS: Final = 146_097
_EPOCH_DAY: Final = EPOCH.toordinal()


class Period(NamedTuple):
    """Half-open: usage exactly at `end_us` is the next invoice's."""

    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class BillingCycle:
    """When a customer's invoices begin, end and become final."""

    anchor_us: int
    """Start of any billing period, microseconds since 1970 UTC, on a whole second."""
    interval: BillingInterval
    """Length of a period."""
    grace_us: int = DEFAULT_GRACE_US
    """From the end of a period to its final invoice."""


def period_of(anchor_us: int, interval: BillingInterval, at_us: int) -> Period:
    """The billing period that holds an instant.

    Months are counted from the anchor itself, so an anchor on the 31st ends February on its last
    day and March on the 31st again.
    """
    fixed_us, step = length_of(interval)
    if fixed_us:
        start_us = at_us - (at_us - anchor_us) % fixed_us
        return Period(start_us, start_us + fixed_us)
    number = (_month_number(at_us) - _month_number(anchor_us)) // step
    # In its own month an instant may lie before the anchor's day; one step back is enough.
    if _boundary_us(anchor_us, number * step) > at_us:
        number -= 1
    return Period(
        _boundary_us(anchor_us, number * step), _boundary_us(anchor_us, (number + 1) * step)
    )


def deadline_us(cycle: BillingCycle, at_us: int, margin_us: int) -> int:
    """Last instant, exclusive, at which usage of `at_us` is still sent to its own invoice.

    Args:
        cycle: the customer's.
        at_us: when the usage is dated.
        margin_us: how long before its invoice is closed nothing is sent any more; the ledger's
            setting `finalisation_margin`.
    """
    return period_of(cycle.anchor_us, cycle.interval, at_us).end_us + cycle.grace_us - margin_us


def cycle_problem(cycle: BillingCycle) -> str | None:
    """Why Stripe cannot have this billing cycle, as `field: rule`; None when it can."""
    if cycle.anchor_us < 0 or cycle.anchor_us % SECOND_US:
        return "anchor: Stripe's anchors are whole seconds from 1970 on"
    if not 0 <= cycle.grace_us <= GRACE_US_MAX:
        return f"grace: Stripe allows at most {GRACE_US_MAX // HOUR_US} hours"
    if cycle.grace_us >= (length_of(cycle.interval).fixed_us or 28 * DAY_US):
        return "grace: must be shorter than the billing period"
    return None


class Offered(NamedTuple):
    """How one of a customer's subscriptions is invoiced, as Stripe says it."""

    anchor_us: int
    interval: str | None
    interval_count: int


def agreed_cycle(offered: Sequence[Offered], at_us: int) -> BillingCycle | str:
    """The cycle that all subscriptions of a customer share, or why there is none.

    Two of them share it when both are in the same period at `at_us`. Nothing is guessed: a customer
    with two cycles needs to be told which of them is invoiced by the meters.
    """
    cycles = [
        BillingCycle(one.anchor_us, interval)
        for one in offered
        if (interval := interval_of(one.interval, one.interval_count)) is not None
    ]
    if not cycles:
        return "it has no subscription that recurs by days, weeks, months or years"
    # 30 days can be the same period as a month, this time.
    found = {
        (length_of(one.interval), period_of(one.anchor_us, one.interval, at_us)) for one in cycles
    }
    if len(found) > 1 or len(cycles) < len(offered):
        return f"its {len(offered)} subscriptions have different billing cycles"
    return cycles[0]


def straddle_us(anchor_us: int, meter: MeterVersion) -> int:
    """How much of one window lies before each period's end, microseconds; 0 for none.

    A window has one date, a second before its own end. So this much of a period's last usage, at
    the most, is on the invoice of the period that begins there. Windows are whole parts of a UTC
    day and periods keep their time of day, so the bound is the same for every period.
    """
    return anchor_us % meter.window_us if meter.publish == "window" else 0


def lead_us(meter: MeterVersion) -> int:
    """Longest a meter lets usage take from its date to its first request, microseconds.

    A window adds nothing: it ends before its billing period does, or it belongs to the next one.
    Its close delay counts twice, because the ledger spreads windows over as much again.
    """
    waits_us = 2 * meter.close_delay_us if meter.publish == "window" else 0
    return meter.skew_max_us + waits_us


class Payer(NamedTuple):
    """A tenant's customer and its grace, as far as a meter's punctuality is concerned."""

    tenant_id: str
    customer: str
    grace_us: int
    margin_us: int
    """The ledger's `finalisation_margin`: what of the grace nothing is sent in any more."""


class CarryPass(NamedTuple):
    """What one look at closed invoices came to."""

    carried: int
    """Entries that were put into the open period."""
    parked: int
    """Entries that wait for a person now."""
    doubts: int
    """Requests that may have been recorded and are not asked about any more."""


class Unpunctual(NamedTuple):
    """A meter that cannot make a customer's invoice."""

    metric: str
    version: int
    needs_us: int
    payer: Payer

    def __str__(self) -> str:
        """`meter api_calls: …; what to do`."""
        return (
            f"meter {self.metric}: {self.rule}; raise the grace in Stripe and give it with "
            f"`tailrace customers map --grace`, or lower the meter's skew_max or close_delay"
        )

    @property
    def rule(self) -> str:
        """What is broken, without the way out."""
        payer = self.payer
        return (
            f"usage may be {_span(self.needs_us)} on its way to an invoice (skew_max, close_delay "
            f"and {_span(payer.margin_us)} of margin), but Stripe closes those of {payer.customer} "
            f"(tenant {payer.tenant_id}) after {_span(payer.grace_us)} of grace"
        )


def unpunctual(meters: Iterable[MeterVersion], payers: Iterable[Payer]) -> tuple[Unpunctual, ...]:
    """Meters whose usage can be on time for us and too late for its invoice, worst payer first.

    One finding a meter: it names the payer with the shortest grace.
    """
    shortest = min(payers, key=lambda payer: (payer.grace_us, payer.tenant_id), default=None)
    if shortest is None:
        return ()
    needs = ((meter, lead_us(meter) + shortest.margin_us) for meter in meters)
    return tuple(
        Unpunctual(meter.metric, meter.version, needs_us, shortest)
        for meter, needs_us in needs
        if needs_us > shortest.grace_us
    )


def _month_number(at_us: int) -> int:
    """Months since year 0."""
    at = from_us(at_us)
    return at.year * 12 + at.month - 1


def _boundary_us(anchor_us: int, months: int) -> int:
    """The anchor so many months later, on its own day or the last one of a shorter month."""
    anchor = from_us(anchor_us)
    year, month = divmod(_month_number(anchor_us) + months, 12)
    # Also beyond the years that `date` knows: the last period of 9999 ends in the year 10000.
    cycles, within = divmod(year - 1, _CYCLE_YEARS)
    day = min(anchor.day, monthrange(within + 1, month + 1)[1])
    days = date(within + 1, month + 1, day).toordinal() + cycles * _CYCLE_DAYS - _EPOCH_DAY
    return days * DAY_US + anchor_us % DAY_US


def _span(us: int) -> str:
    """`90 min`, `25 h 2 min`: a duration as a person writes it, rounded up to the second."""
    seconds = -(-us // SECOND_US)
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "min"), (seconds, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"
