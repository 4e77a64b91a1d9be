from dataclasses import replace
from typing import get_args

import pytest

from streams.core.live_meter import ABSENT, CHECKS, MEANING, LiveMeter, Wrong, check_meters

GOOD = LiveMeter(
    id="mtr_1",
    event_name="api_calls",
    active=True,
    formula="sum",
    customer_key="stripe_customer_id",
    value_key="value",
    event_time_window=None,
    livemode=False,
    changed_s=100,
)


def test_a_plain_sum_meter_is_fine_whatever_else_there_is() -> None:
    other = replace(GOOD, event_name="other", formula="last")
    archived = replace(GOOD, id="mtr_0", active=False, formula="count")
    assert check_meters(["api_calls"], [other, archived, GOOD], livemode=False) == ()


@pytest.mark.parametrize(
    ("meters", "rule"),
    [
        ([], "does not exist"),
        ([replace(GOOD, active=False)], "is archived"),
        ([replace(GOOD, formula="last")], "formula is last"),
        ([replace(GOOD, formula="count")], "formula is count"),
        ([replace(GOOD, event_time_window="hour")], "last event of each hour"),
        ([replace(GOOD, customer_key="customer")], "customer under 'customer'"),
        ([replace(GOOD, value_key="amount")], "value under 'amount'"),
        ([replace(GOOD, livemode=True)], "is a live meter"),
    ],
)
def test_a_meter_that_would_count_wrongly_is_named(meters: list[LiveMeter], rule: str) -> None:
    (finding,) = check_meters(["api_calls", "api_calls"], meters, livemode=False)
    assert rule in finding.rule
    assert str(finding) == f"api_calls: {finding.rule}; {finding.remedy}"


def test_of_every_wrong_it_is_known_what_it_means_and_which_check_names_it() -> None:
    assert set(MEANING) == set(CHECKS) == set(get_args(Wrong))
    assert set(MEANING) > ABSENT


def test_the_wrong_mode_is_named_both_ways() -> None:
    (finding,) = check_meters(["api_calls"], [GOOD], livemode=True)
    assert "is a test meter" in finding.rule


@pytest.mark.parametrize(
    ("meter", "took"),
    [
        (GOOD, True),
        (replace(GOOD, active=False), False),
        (replace(GOOD, changed_s=200), False),
        (replace(GOOD, changed_s=201), False),
    ],
)
def test_a_meter_took_all_of_its_name_since_before_it_was_changed_last(
    meter: LiveMeter, took: bool
) -> None:
    assert meter.took_since(200_000_000) == took
