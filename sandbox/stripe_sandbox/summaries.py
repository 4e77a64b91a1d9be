"""Recorded meter events → the sums Stripe shows: aligned, paged, late, no empty ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from sandbox.stripe_sandbox import errors, parameters
from sandbox.stripe_sandbox.errors import Body, RefusedError
from sandbox.stripe_sandbox.fact import Meter, Recorded
from sandbox.stripe_sandbox.state import State, add_up

GROUPINGS_S: Final = {"hour": 3_600, "day": 86_400}


@dataclass(frozen=True, slots=True)
class Query:
    """What of a customer's usage is asked for."""

    customer: str
    start_s: int
    end_s: int
    bucket_s: int | None
    """Length of a bucket; None for a single one."""


def parse(query: Mapping[str, str]) -> Query:
    """Checks the parameters of a summary request.

    Raises:
        RefusedError: One is missing or not aligned.
    """
    allowed = (
        "customer",
        "start_time",
        "end_time",
        "value_grouping_window",
        "limit",
        "starting_after",
        "ending_before",
        "expand",
    )
    values = parameters.nested(query, allowed)
    customer = parameters.required(values, "customer")
    grouping = parameters.text(values, "value_grouping_window")
    if grouping is not None and grouping not in GROUPINGS_S:
        message = "Invalid value_grouping_window: must be one of day, hour"
        raise RefusedError(errors.invalid(message, param="value_grouping_window"))
    bucket_s = None if grouping is None else GROUPINGS_S[grouping]
    start_s = _aligned(values, "start_time", bucket_s or 60)
    end_s = _aligned(values, "end_time", bucket_s or 60)
    if end_s <= start_s:
        message = "Invalid end_time: must be after start_time"
        raise RefusedError(errors.invalid(message, param="end_time"))
    return Query(customer, start_s, end_s, bucket_s)


def _aligned(values: Mapping[str, dict[str, str] | str], name: str, step_s: int) -> int:
    instant_s = parameters.integer(values, name)
    if instant_s is None:
        raise RefusedError(errors.missing(name))
    if instant_s % step_s:
        unit = {60: "minute", 3_600: "hour", 86_400: "day"}[step_s]
        message = f"Invalid {name}: must be aligned with UTC {unit} boundaries"
        raise RefusedError(errors.invalid(message, param=name))
    return instant_s


def aggregate(meter: Meter, events: Iterable[Recorded]) -> Decimal:
    """What a meter makes of the events of one customer and one bucket, in order of receipt."""
    kept = list(events)
    if meter.event_time_window is not None:
        # Pre-aggregated: of each window only what was received last remains.
        width_s = GROUPINGS_S[meter.event_time_window]
        kept = list({event.timestamp_s // width_s: event for event in kept}.values())
    match meter.formula:
        case "count":
            return Decimal(len(kept))
        case "last":
            latest = max(kept, key=lambda event: event.timestamp_s, default=None)
            return Decimal(0) if latest is None else Decimal(latest.value)
        case "sum":
            return add_up(event.value for event in kept)


def rows(state: State, meter: Meter, query: Query, seen_until_us: int) -> list[Body]:
    """The summaries, newest bucket first, as Stripe lists them. Empty buckets are missing."""
    buckets: dict[int, list[Recorded]] = {}
    for event in _visible(state, meter, query, seen_until_us):
        width_s = query.bucket_s or (query.end_s - query.start_s)
        start_s = event.timestamp_s - (event.timestamp_s - query.start_s) % width_s
        buckets.setdefault(start_s, []).append(event)
    if query.bucket_s is None:
        buckets.setdefault(query.start_s, [])
    return [
        {
            "id": f"mtrusg_test_{meter.id[-8:]}_{start_s}",
            "object": "billing.meter_event_summary",
            "aggregated_value": float(aggregate(meter, events)),
            "start_time": start_s,
            "end_time": min(start_s + (query.bucket_s or query.end_s), query.end_s),
            "livemode": False,
            "meter": meter.id,
        }
        for start_s, events in sorted(buckets.items(), reverse=True)
    ]


def _visible(state: State, meter: Meter, query: Query, seen_until_us: int) -> Iterator[Recorded]:
    for event in state.counted(query.customer, meter.event_name):
        if query.start_s <= event.timestamp_s < query.end_s and event.received_us <= seen_until_us:
            yield event


def page(rows_: Sequence[Body], query: Mapping[str, str], url: str) -> Body:
    """One page of a list: 10 rows unless asked otherwise, 100 at most.

    Raises:
        RefusedError: The limit is out of bounds, or the cursor is unknown.
    """
    limit = parameters.integer(dict(query), "limit")
    limit = 10 if limit is None else limit
    if not 1 <= limit <= 100:
        message = "Invalid limit: must be between 1 and 100"
        raise RefusedError(errors.invalid(message, param="limit"))
    after, before = query.get("starting_after"), query.get("ending_before")
    if after is not None and before is not None:
        message = "You cannot give both starting_after and ending_before"
        raise RefusedError(errors.invalid(message, param="ending_before"))
    first = 0 if after is None else _place(rows_, after) + 1
    last = min(first + limit, len(rows_))
    more = last < len(rows_)
    if before is not None:
        last = _place(rows_, before)
        first = max(0, last - limit)
        more = first > 0
    return {"object": "list", "data": list(rows_[first:last]), "has_more": more, "url": url}


def _place(rows_: Sequence[Body], cursor: str) -> int:
    places = [index for index, row in enumerate(rows_) if row["id"] == cursor]
    if not places:
        raise RefusedError(errors.not_found("object", cursor))
    return places[0]
