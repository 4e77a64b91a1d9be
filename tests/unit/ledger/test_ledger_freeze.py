from __future__ import annotations

from dataclasses import replace

import pytest

from streams.adapters.ledger_publishing import Candidate, freeze
from streams.core.meter_event import Origin, UnsendableMeterEventError

ORIGIN = Origin("acct", livemode=False, ledger_id="ledger")
MINUTE_US = 60_000_000
WINDOW = Candidate(
    lane_id=1, customer="cus_1", event_name="api", window_start_us=MINUTE_US,
    window_end_us=2 * MINUTE_US, units=5, entry_ids=[7, 9], event_id=None, occurred_at_us=None,
    generation=1, attempts_used=0, now_us=90 * MINUTE_US,
)  # fmt: skip
SINGLE = replace(WINDOW, entry_ids=[7], event_id="e1", occurred_at_us=MINUTE_US + 2_500_000)


def test_a_window_is_dated_a_second_before_its_end_once_it_is_over() -> None:
    assert freeze(ORIGIN, WINDOW).timestamp_s == 119
    assert freeze(ORIGIN, replace(WINDOW, now_us=MINUTE_US + 10_000_000)).timestamp_s == 70


def test_a_single_event_is_dated_when_it_happened() -> None:
    assert freeze(ORIGIN, SINGLE).timestamp_s == 62


def test_an_entry_without_an_event_is_named_by_itself() -> None:
    unnamed = replace(SINGLE, event_id=None)

    assert freeze(ORIGIN, unnamed).identifier != freeze(ORIGIN, SINGLE).identifier
    assert freeze(ORIGIN, unnamed).identifier == freeze(ORIGIN, unnamed).identifier


def test_the_identifier_follows_the_first_entry_and_the_generation() -> None:
    identifiers = {
        freeze(ORIGIN, candidate).identifier
        for candidate in (
            WINDOW,
            replace(WINDOW, units=6, entry_ids=[7, 9, 11]),
            replace(WINDOW, entry_ids=[8, 9]),
            replace(WINDOW, generation=2),
        )
    }

    assert len(identifiers) == 3


def test_what_stripe_cannot_take_is_refused_by_name() -> None:
    with pytest.raises(UnsendableMeterEventError, match="customer"):
        freeze(ORIGIN, replace(WINDOW, customer=""))
