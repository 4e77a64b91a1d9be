"""One text for each length of a billing period, and no other."""

import pytest

from streams.core.instant import DAY_US
from streams.core.interval import Length, interval_of, length_of, read_interval


@pytest.mark.parametrize(
    ("typed", "kept", "length"),
    [
        ("day", "day", Length(DAY_US, 0)),
        ("1 month", "month", Length(0, 1)),
        ("months", "month", Length(0, 1)),
        ("3 month", "3 months", Length(0, 3)),
        ("3 months", "3 months", Length(0, 3)),
        ("2 weeks", "2 weeks", Length(14 * DAY_US, 0)),
        ("1095 days", "1095 days", Length(1095 * DAY_US, 0)),
        ("3 years", "3 years", Length(0, 36)),
    ],
)
def test_what_is_typed_is_kept_in_one_form(typed: str, kept: str, length: Length) -> None:
    assert read_interval(typed) == kept
    assert length_of(kept) == length


@pytest.mark.parametrize(
    "typed",
    ["", "hour", "0 months", "03 months", "37 months", "4 years", "157 weeks", "1096 days",
     "3months", "3  months", "quarter", "-1 day", "1.5 months", "10000 days"],
)  # fmt: skip
def test_what_stripe_does_not_have_is_none(typed: str) -> None:
    assert read_interval(typed) is None
    with pytest.raises(ValueError, match="no billing interval"):
        length_of(typed)


def test_only_the_kept_form_has_a_length() -> None:
    with pytest.raises(ValueError, match="no billing interval"):
        length_of("1 month")


def test_units_without_a_name_are_none() -> None:
    assert interval_of(None, 1) is None
    assert interval_of("hour", 1) is None
    assert interval_of("month", 0) is None
