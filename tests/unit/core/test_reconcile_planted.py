"""A Stripe that lags and attempts that arrive late: whatever is settled stays true, and each rule
that makes it so is pinned by planting its commonest bug."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streams.core import reconcile
from streams.core.reconcile import Doubtful, Figures, Reading, Settle

STILL_US = 50
QUIET_US = 100
NEVER_US = 10**9
Patch = pytest.MonkeyPatch
_since, _witness = reconcile._still_since_us, reconcile._witness

SENT = st.tuples(
    st.sampled_from([1, 2, 3, 5, 5, 8, -5]),
    # When it is executed, never after the last lease; then it takes a while until sums show it.
    st.one_of(st.just(NEVER_US), st.integers(80, QUIET_US)),
    st.integers(0, STILL_US),
)


@settings(
    max_examples=1_000,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    sent=st.lists(SENT, min_size=1, max_size=4),
    recorded=st.integers(-3, 9),
    read_at=st.lists(st.integers(40, 200), min_size=1, max_size=6).map(sorted),
)
def settled_amounts_are_never_there_twice(
    sent: list[tuple[int, int, int]], recorded: int, read_at: Sequence[int]
) -> None:
    """Once settled, nothing that was in doubt can arrive any more, and nothing is missing."""
    doubtful = tuple(Doubtful(n, units) for n, (units, _, _) in enumerate(sent, 1))
    figures = Figures(recorded, doubtful, quiet_from_us=QUIET_US)
    readings = [
        Reading(
            at_us,
            Decimal(recorded + sum(u for u, when, lag in sent if when + lag <= at_us)),
        )
        for at_us in read_at
    ]
    decision = reconcile.decide(figures, readings, STILL_US)
    if isinstance(decision, Settle):
        in_the_end = recorded + sum(u for u, when, _ in sent if when < NEVER_US)
        assert in_the_end + decision.net_units == recorded + figures.owed
        by_id = dict(doubtful)
        assert recorded + sum(by_id[p] for p in decision.present) == in_the_end
        assert sum(by_id[a] for a in decision.absent) == decision.net_units


def test_settled_amounts_are_never_there_twice() -> None:
    settled_amounts_are_never_there_twice()


def readings_in_flight_count(patch: Patch) -> None:
    patch.setattr(reconcile, "_still_since_us", lambda readings, _quiet: _since(readings, -1))


def one_reading_is_enough(patch: Patch) -> None:
    decide = reconcile.decide
    patch.setattr(reconcile, "decide", lambda figures, seen, _still: decide(figures, seen, 0))


def everything_in_doubt_counts_as_absent(patch: Patch) -> None:
    patch.setattr(reconcile, "_witness", lambda _doubtful, _total: ())


def the_net_amount_is_all_of_the_doubt(patch: Patch) -> None:
    settled = reconcile._settled

    def wrong(figures: Figures, excess: int) -> Any:
        return replace(settled(figures, excess), net_units=figures.owed)

    patch.setattr(reconcile, "_settled", wrong)


PLANTED = [
    readings_in_flight_count,
    one_reading_is_enough,
    everything_in_doubt_counts_as_absent,
    the_net_amount_is_all_of_the_doubt,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: str(plant.__name__))
def test_falls(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        settled_amounts_are_never_there_twice()
