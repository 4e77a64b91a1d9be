"""A span of an audit begins where the ledger's own minutes do."""

import pytest

from streams.cli.audit_span import begin_us
from streams.core.instant import FIRST_US, MINUTE_US

NOON_US = 1_780_000_000_000_000 - 1_780_000_000_000_000 % MINUTE_US


@pytest.mark.parametrize("beyond_us", [0, 1, MINUTE_US // 2, MINUTE_US - 1])
def test_the_minute_in_which_it_begins_is_judged_whole(beyond_us: int) -> None:
    assert begin_us(NOON_US + beyond_us, 0) == NOON_US
    assert begin_us(NOON_US + beyond_us, MINUTE_US) == NOON_US - MINUTE_US


def test_without_a_beginning_it_is_everything() -> None:
    assert begin_us(NOON_US, None) == FIRST_US
