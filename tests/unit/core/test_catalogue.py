"""The rule book: which version judges, and when only a fresher reading may answer."""

import pytest

from streams.core.catalogue import Catalogue, MeterVersion, TooFresh, Unknown, history_hash
from streams.core.catalogue import is_prefix as adds_only
from streams.core.instant import DAY_US, HOUR_US
from tests.support.events import T0_US, meter

FIRST = meter("api_calls", effective_from_us=T0_US)
SECOND = meter("api_calls", version=2, window_us=DAY_US, effective_from_us=T0_US + DAY_US)
BOOK = Catalogue((SECOND, FIRST, meter("jobs")), read_at_us=T0_US + 3 * DAY_US)


@pytest.mark.parametrize(
    ("occurred_at_us", "version"),
    [
        (T0_US, FIRST),
        (T0_US + DAY_US - 1, FIRST),
        (T0_US + DAY_US, SECOND),
        (T0_US + 3 * DAY_US + HOUR_US - 1, SECOND),
    ],
)
def test_the_version_is_chosen_by_when_it_occurred(
    occurred_at_us: int, version: MeterVersion
) -> None:
    assert BOOK.at("api_calls", occurred_at_us) == version


def test_before_the_first_version_and_without_one_a_metric_is_unknown() -> None:
    assert BOOK.at("api_calls", T0_US - 1) == Unknown()
    assert BOOK.at("storage", T0_US) == Unknown()


def test_beyond_the_notice_nobody_can_answer() -> None:
    assert BOOK.at("api_calls", T0_US + 3 * DAY_US + HOUR_US) == TooFresh()
    assert BOOK.at("storage", T0_US + 3 * DAY_US + HOUR_US) == TooFresh()


def test_a_history_has_one_name_in_any_order() -> None:
    lines = (FIRST, SECOND, meter("jobs"))
    assert history_hash(lines) == history_hash(lines[::-1]) == BOOK.hash
    assert len(BOOK.hash) == 16
    assert history_hash((*lines[:2], meter("jobs", scale=1))) != BOOK.hash
    assert history_hash(lines[:2]) != BOOK.hash


def test_a_history_only_grows() -> None:
    assert adds_only([FIRST], [FIRST, SECOND])
    assert not adds_only([FIRST], [SECOND])
    assert not adds_only([FIRST], [FIRST._replace(scale=2), SECOND])


def test_the_greatest_rule_number_counts() -> None:
    assert Catalogue((FIRST, SECOND._replace(rules=4)), 0).newest_rules() == 4
    assert Catalogue((), 0).newest_rules() == 0
