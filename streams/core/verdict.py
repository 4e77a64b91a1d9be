"""Hop 3: a usage event and the rule book → accepted with its window, or why not.

A function of the record, its log time, the dated catalogue and the floor of what the state still
remembers; all are functions of the log and the ledger, never of a worker's clock or configuration.
"""

from typing import Final, Literal

import msgspec

from streams.core.aggregation import AGGREGATIONS
from streams.core.catalogue import EARLY_MAX_US, Catalogue, MeterVersion, TooFresh, Unknown
from streams.core.event import UsageEvent
from streams.core.fact import ReviewReason, Series
from streams.core.instant import HOUR_US, over_text, span_text
from streams.core.orders import Skip
from streams.core.quantity import UNITS_LIMIT, to_units
from streams.core.window import window_start_us

AHEAD_MAX_US: Final = HOUR_US
"""How far `received_at` may lie after the log's own time for the same record."""


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """Counts by itself: into the level of its series or, in event mode, as an entry."""

    series: Series
    units: int
    meter: MeterVersion


class Review(msgspec.Struct, frozen=True, gc=False):
    """A person decides. `series` and `units` are there when the amount itself is clear."""

    reason: ReviewReason
    rule: str
    series: Series | None
    units: int | None


DeadKind = Literal["malformed", "unread"]
"""Whether something is said against the record, or nobody has looked into it."""


class Dead(msgspec.Struct, frozen=True, gc=False):
    """Cannot become usage as it stands; kept with its reason and coordinates."""

    reason: str
    path: str
    kind: DeadKind = "malformed"
    skip: Skip | None = None
    """The decision of which this is the outcome."""


class AwaitCatalogue(msgspec.Struct, frozen=True, gc=False):
    """Only a fresher reading of the catalogue can judge this event."""


Verdict = Accepted | Review | Dead | AwaitCatalogue

AWAIT_CATALOGUE: Final = AwaitCatalogue()


def judge(
    event: UsageEvent, catalogue: Catalogue, floor_us: int, *, logged_at_us: int, fresh: bool
) -> Verdict:
    """The verdict on a first copy.

    Args:
        event: the record, read.
        catalogue: the rule book; its reading must be complete for the event's `occurred_at`.
        floor_us: greatest `received_at` that was dropped from the state: at or below it nobody
            remembers whether this is the first copy.
        logged_at_us: when the log took the record, by the log's clock.
        fresh: whether the catalogue was read after this record was fetched. An unknown metric is
            only called so by a fresh reading, so a meter added a moment ago loses nothing.
    """
    received_us = event.received_at_us
    if (
        event.occurred_at_us - received_us > EARLY_MAX_US
        or received_us - logged_at_us > AHEAD_MAX_US
    ):
        return _early(event, catalogue, logged_at_us)
    meter = catalogue.at(event.metric, event.occurred_at_us)
    if isinstance(meter, MeterVersion):
        return _judge_by(event, meter, floor_us)
    return _without_meter(meter, fresh=fresh)


def judge_correction(
    event: UsageEvent, catalogue: Catalogue, *, above_limit: bool, fresh: bool
) -> Verdict:
    """The verdict on a service's correction; `event.quantity` is its signed delta.

    Lateness is no objection: taking back is what corrections are for, and the limit above which a
    person decides was applied where the service recorded it.
    """
    meter = catalogue.at(event.metric, event.occurred_at_us)
    if not isinstance(meter, MeterVersion):
        return _without_meter(meter, fresh=fresh)
    if not AGGREGATIONS[meter.aggregation].signed:
        return Dead(f"a {meter.aggregation} meter cannot take anything back", "$.delta")
    try:
        units = to_units(event.quantity, meter.scale)
    except ValueError as error:
        return Dead(str(error), "$.delta")
    series = _series(event, meter)
    if abs(units) >= UNITS_LIMIT:
        return _too_large(units, series)
    if above_limit:
        rule = "above what the service may correct by itself"
        return Review("correction_limit", rule, series, units)
    return Accepted(series, units, meter)


def amount_of(
    event: UsageEvent, catalogue: Catalogue, *, signed: bool
) -> tuple[Series | None, int | None]:
    """Window and amount of an event that a person decides on, as far as they are clear now.

    Args:
        event: usage, or with `signed` a correction with its delta.
        catalogue: the rule book; where it has no answer yet there is no amount, and nobody waits.
        signed: whether a negative amount makes sense.
    """
    meter = catalogue.at(event.metric, event.occurred_at_us)
    if not isinstance(meter, MeterVersion):
        return None, None
    series = _series(event, meter)
    try:
        units = to_units(event.quantity, meter.scale)
    except ValueError:
        return series, None
    usable = abs(units) < UNITS_LIMIT and (signed or units >= 0)
    mode = AGGREGATIONS[meter.aggregation]
    counted = mode.signed if signed else mode.takes(units)
    return series, (units if usable and counted else None)


def _early(event: UsageEvent, catalogue: Catalogue, logged_at_us: int) -> Review:
    early_us = event.occurred_at_us - event.received_at_us
    if early_us > EARLY_MAX_US:
        rule = (
            f"occurred_at lies {over_text(early_us)} after received_at, at most "
            f"{span_text(EARLY_MAX_US)} allowed"
        )
    else:
        ahead_us = event.received_at_us - logged_at_us
        rule = (
            f"received_at lies {over_text(ahead_us)} after the log's time, at most "
            f"{span_text(AHEAD_MAX_US)} allowed"
        )
    return Review("early", rule, *amount_of(event, catalogue, signed=False))


def _without_meter(meter: Unknown | TooFresh, *, fresh: bool) -> Dead | AwaitCatalogue:
    if isinstance(meter, TooFresh) or not fresh:
        return AWAIT_CATALOGUE
    return Dead("unknown metric at the time of its occurred_at", "$.metric")


def _judge_by(event: UsageEvent, meter: MeterVersion, floor_us: int) -> Verdict:
    try:
        units = to_units(event.quantity, meter.scale)
    except ValueError as error:
        return Dead(str(error), "$.quantity")
    received_us = event.received_at_us
    if (
        0 <= units < UNITS_LIMIT
        and floor_us < received_us <= event.occurred_at_us + meter.skew_max_us
        and AGGREGATIONS[meter.aggregation].takes(units)
    ):
        return Accepted(_series(event, meter), units, meter)
    return _objection(event, meter, units, floor_us)


def _objection(event: UsageEvent, meter: MeterVersion, units: int, floor_us: int) -> Review | Dead:
    """The first rule that usage breaks which is not accepted."""
    if units < 0:
        return Dead("is negative; take usage back by a correction", "$.quantity")
    mode = AGGREGATIONS[meter.aggregation]
    if not mode.takes(units):
        return Dead(mode.rule, "$.quantity")
    series = _series(event, meter)
    if units >= UNITS_LIMIT:
        return _too_large(units, series)
    if event.received_at_us <= floor_us:
        rule = "received_at lies before the horizon of what the state remembers"
        return Review("beyond_horizon", rule, series, units)
    rule = (
        f"received_at lies {over_text(event.received_at_us - event.occurred_at_us)} after "
        f"occurred_at, at most {span_text(meter.skew_max_us)} allowed"
    )
    return Review("late", rule, series, units)


def _series(event: UsageEvent, meter: MeterVersion) -> Series:
    length_us = meter.window_us
    start_us = window_start_us(event.occurred_at_us, length_us)
    return Series(
        event.tenant_id, event.metric, meter.version, start_us, start_us + length_us, event.shard
    )


def _too_large(units: int, series: Series) -> Review:
    """Without an amount: no entry and no request could carry it, so none can be approved."""
    rule = f"{units} units, less than {UNITS_LIMIT} allowed"
    return Review("too_large", rule, series, None)
