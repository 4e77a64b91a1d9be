from __future__ import annotations

import pytest

from streams.core.remedy import remedy


@pytest.mark.parametrize(
    ("reason", "code", "outcome", "said"),
    [
        ("refused", "no_meter", "refused", "create the meter"),
        ("refused", "archived_meter", "refused", "reactivate the meter"),
        ("refused", "never_heard_of", "refused", "read Stripe's message"),
        ("refused", None, "too_old", "the open period by it"),
        ("exhausted", None, None, "redrive when it is well"),
        ("ambiguous", "no_meter", "fenced", "only with proof"),
        ("malformed", None, None, "new event key"),
        ("malformed", "$.quantity", None, "new event key"),
        ("malformed", "$.content", None, "metering.reemit"),
        ("malformed", "$.event_id", None, "metering.reemit"),
        ("unread", "$", None, "metering.reemit"),
        ("invented", None, None, "read the evidence"),
    ],
)
def test_every_dead_item_has_an_end(
    reason: str, code: str | None, outcome: str | None, said: str
) -> None:
    assert said in remedy(reason, code, outcome)


def test_doubt_is_never_answered_by_a_code() -> None:
    assert remedy("ambiguous", "no_meter", None) == remedy("ambiguous", None, "fenced")
