"""What will miss its invoice is said before it does."""

import pytest

from streams.core.instant import HOUR_US
from streams.core.outlook import Outlook, outlook

DEADLINE_US = 100 * HOUR_US


@pytest.mark.parametrize(
    ("state", "moves_at_us", "now_us", "held", "expected"),
    [
        ("level", 98 * HOUR_US, 97 * HOUR_US, False, "on time"),
        ("entry", 98 * HOUR_US, DEADLINE_US - HOUR_US, False, "on time"),
        ("entry", 98 * HOUR_US, DEADLINE_US - HOUR_US + 1, False, "at risk"),
        ("pending", DEADLINE_US - 1, 97 * HOUR_US, False, "on time"),
        ("pending", DEADLINE_US, 97 * HOUR_US, False, "will miss"),
        ("pending", 98 * HOUR_US, 97 * HOUR_US, True, "will miss"),
        ("ambiguous", None, 97 * HOUR_US, False, "will miss"),
        ("dead", 0, 97 * HOUR_US, False, "will miss"),
        ("review", 0, 97 * HOUR_US, False, "will miss"),
        ("series held", 0, 97 * HOUR_US, False, "will miss"),
        ("entry", 0, DEADLINE_US - 1, False, "at risk"),
        ("entry", 0, DEADLINE_US, False, "missed"),
        ("dead", None, DEADLINE_US, True, "missed"),
    ],
)
def test_an_amount_is_on_time_until_something_speaks_against_it(
    state: str, moves_at_us: int | None, now_us: int, held: bool, expected: Outlook
) -> None:
    assert outlook(state, moves_at_us, DEADLINE_US, now_us, held=held) == expected
