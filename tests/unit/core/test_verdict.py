"""Verdicts one by one; the bounds in time stand in the data file of time edges."""

from typing import Any

import pytest
from msgspec.structs import replace

from streams.core.catalogue import EARLY_MAX_US, Catalogue
from streams.core.event import UsageEvent
from streams.core.fact import Series
from streams.core.instant import DAY_US, HOUR_US, SECOND_US
from streams.core.quantity import UNITS_LIMIT
from streams.core.verdict import (
    AHEAD_MAX_US,
    AWAIT_CATALOGUE,
    Accepted,
    Dead,
    Review,
    Verdict,
    amount_of,
    judge,
    judge_correction,
)
from tests.support.events import CATALOGUE, METERS, T0_US

HOUR = Series("acme", "api_calls", 1, T0_US, T0_US + HOUR_US, 0)
UNKNOWN = Dead("unknown metric at the time of its occurred_at", "$.metric")


def event(**changes: Any) -> UsageEvent:
    plain: dict[str, Any] = {
        "source": "orders",
        "event_id": bytes(16),
        "content": bytes(16),
        "tenant_id": "acme",
        "metric": "api_calls",
        "shard": 0,
        "quantity": "5",
        "occurred_at_us": T0_US,
        "received_at_us": T0_US,
    }
    return UsageEvent(**plain | changes)


def verdict(
    one: UsageEvent, *, floor_us: int = -1, logged_at_us: int = T0_US, fresh: bool = True
) -> Verdict:
    return judge(one, CATALOGUE, floor_us, logged_at_us=logged_at_us, fresh=fresh)


def test_usage_on_time_counts_in_its_window() -> None:
    assert verdict(event()) == Accepted(HOUR, 5, METERS[0])


def test_the_day_window_begins_with_its_version() -> None:
    at_us = T0_US + DAY_US
    found = verdict(event(occurred_at_us=at_us, received_at_us=at_us), logged_at_us=at_us)
    day = Series("acme", "api_calls", 2, at_us, at_us + DAY_US, 0)
    assert found == Accepted(day, 5, METERS[1])


@pytest.mark.parametrize(
    ("changes", "reason", "path"),
    [
        ({"quantity": "five"}, "not a decimal number of at most 30 plain digits", "$.quantity"),
        ({"quantity": ""}, "not a decimal number of at most 30 plain digits", "$.quantity"),
        ({"quantity": "1.5"}, "has 1 decimal places, the meter's scale allows 0", "$.quantity"),
        ({"quantity": "-1"}, "is negative; take usage back by a correction", "$.quantity"),
        (
            {"metric": "calls", "quantity": "2"},
            "a count meter counts events, so the quantity must be 1",
            "$.quantity",
        ),
        ({"metric": "no"}, UNKNOWN.reason, "$.metric"),
    ],
)
def test_what_cannot_become_usage_is_dead(changes: dict[str, str], reason: str, path: str) -> None:
    assert verdict(event(**changes)) == Dead(reason, path)


def test_an_unknown_metric_waits_for_a_reading_younger_than_the_record() -> None:
    assert verdict(event(metric="no"), fresh=False) is AWAIT_CATALOGUE
    assert verdict(event(), fresh=False) == Accepted(HOUR, 5, METERS[0])


def test_beyond_the_catalogue_even_a_fresh_reading_waits() -> None:
    book = Catalogue(METERS, read_at_us=T0_US - HOUR_US)
    assert judge(event(), book, -1, logged_at_us=T0_US, fresh=True) is AWAIT_CATALOGUE


def test_too_large_an_amount_has_nothing_to_approve() -> None:
    rule = f"{UNITS_LIMIT} units, less than {UNITS_LIMIT} allowed"
    assert verdict(event(quantity=str(UNITS_LIMIT))) == Review("too_large", rule, HOUR, None)
    assert isinstance(verdict(event(quantity=str(UNITS_LIMIT - 1))), Accepted)


def test_at_the_floor_nobody_remembers() -> None:
    rule = "received_at lies before the horizon of what the state remembers"
    assert verdict(event(), floor_us=T0_US) == Review("beyond_horizon", rule, HOUR, 5)
    assert isinstance(verdict(event(), floor_us=T0_US - 1), Accepted)


def test_late_and_early_say_by_how_much() -> None:
    late = event(received_at_us=T0_US + DAY_US + 7)
    rule = "received_at lies more than 1 d after occurred_at, at most 1 d allowed"
    assert verdict(late, logged_at_us=T0_US + DAY_US) == Review("late", rule, HOUR, 5)
    early = event(received_at_us=T0_US - EARLY_MAX_US - 7)
    rule = "occurred_at lies more than 5 min after received_at, at most 5 min allowed"
    assert verdict(early) == Review("early", rule, HOUR, 5)


def test_a_source_whose_clock_runs_ahead_of_the_log_is_not_believed() -> None:
    lies = "lies more than 1 h after the log's time, at most 1 h allowed"
    rule = f"received_at {lies}"
    ahead = verdict(event(), logged_at_us=T0_US - AHEAD_MAX_US - 1)
    assert ahead == Review("early", rule, HOUR, 5)
    assert isinstance(verdict(event(), logged_at_us=T0_US - AHEAD_MAX_US), Accepted)


def test_an_early_event_of_no_known_meter_waits_for_nobody() -> None:
    early = event(metric="no", received_at_us=T0_US - HOUR_US)
    found = verdict(early, fresh=False)
    assert isinstance(found, Review)
    assert (found.reason, found.series, found.units) == ("early", None, None)


def corrected(one: UsageEvent, *, above_limit: bool = False, fresh: bool = True) -> Verdict:
    return judge_correction(one, CATALOGUE, above_limit=above_limit, fresh=fresh)


def test_a_correction_may_take_back_however_late() -> None:
    late = event(quantity="-5", received_at_us=T0_US + 90 * DAY_US)
    assert corrected(late) == Accepted(HOUR, -5, METERS[0])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metric": "no"}, UNKNOWN),
        ({"metric": "calls"}, Dead("a count meter cannot take anything back", "$.delta")),
        (
            {"quantity": "0.5"},
            Dead("has 1 decimal places, the meter's scale allows 0", "$.delta"),
        ),
        (
            {"quantity": f"-{UNITS_LIMIT}"},
            Review(
                "too_large", f"-{UNITS_LIMIT} units, less than {UNITS_LIMIT} allowed", HOUR, None
            ),
        ),
    ],
)
def test_a_correction_that_is_none(changes: dict[str, str], expected: Verdict) -> None:
    assert corrected(event(**changes)) == expected


def test_a_correction_above_the_limit_is_for_a_person() -> None:
    rule = "above what the service may correct by itself"
    assert corrected(event(quantity="-5"), above_limit=True) == Review(
        "correction_limit", rule, HOUR, -5
    )


def test_a_correction_of_an_unknown_metric_waits_as_usage_does() -> None:
    assert corrected(event(metric="no"), fresh=False) is AWAIT_CATALOGUE


@pytest.mark.parametrize(
    ("changes", "signed", "expected"),
    [
        ({}, False, (HOUR, 5)),
        ({"quantity": "-5"}, False, (HOUR, None)),
        ({"quantity": "-5"}, True, (HOUR, -5)),
        ({"quantity": "x"}, False, (HOUR, None)),
        ({"quantity": "9" * 25}, False, (HOUR, None)),
        ({"metric": "no"}, False, (None, None)),
        ({"metric": "calls", "quantity": "1"}, False, (replace(HOUR, metric="calls"), 1)),
        ({"metric": "calls", "quantity": "2"}, False, (replace(HOUR, metric="calls"), None)),
        ({"metric": "calls", "quantity": "1"}, True, (replace(HOUR, metric="calls"), None)),
    ],
)
def test_a_person_is_told_the_amount_that_could_be_approved(
    changes: dict[str, str], signed: bool, expected: tuple[Series | None, int | None]
) -> None:
    assert amount_of(event(**changes), CATALOGUE, signed=signed) == expected


def test_seconds_are_not_microseconds() -> None:
    assert (EARLY_MAX_US, AHEAD_MAX_US) == (300 * SECOND_US, 3600 * SECOND_US)
