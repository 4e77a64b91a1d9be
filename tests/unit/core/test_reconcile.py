"""Stripe's sums prove what they explain to the unit, once they stood still, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core import reconcile
from streams.core.reconcile import (
    Decision,
    Doubtful,
    Figures,
    Nothing,
    Reading,
    Report,
    Settle,
    TakeBack,
    Wait,
    compare,
    decide,
    has_room,
)

STILL_US = 100


def in_doubt(*units: int) -> tuple[Doubtful, ...]:
    return tuple(Doubtful(number, each) for number, each in enumerate(units, 1))


def figures(recorded: int, *units: int, **more: object) -> Figures:
    return Figures(recorded, in_doubt(*units), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "observed", "wanted"),
    [
        (figures(7), "7", "equal"),
        (figures(7), "7.0", "equal"),
        (figures(7), "6", "lower"),
        (figures(7), "8", "higher"),
        (figures(7), "7.5", "higher"),
        (figures(7), "6.5", "lower"),
        (figures(7, 5), "12", "equal"),
        (figures(7, 5), "7", "missing"),
        (figures(7, 5), "9", "higher"),
        (figures(7, 5), "13", "higher"),
        (figures(7, 5), "6", "lower"),
        (figures(7, 5, 3), "10", "missing"),
        (figures(7, 5, 3), "11", "higher"),
        (figures(7, 5, -5), "7", "equal"),
        (figures(7, 5, -5), "2", "missing"),
        (figures(7, 5, -5), "1", "lower"),
        (figures(7, in_flight=1), "7", "open"),
        (figures(7, unready="not told"), "7", "open"),
        (figures(7, adopted=True, waiting=60), "55", "missing"),
        (figures(7, adopted=True, waiting=60), "67", "equal"),
        (figures(7, adopted=True, waiting=60), "68", "higher"),
        (figures(7, adopted=True, waiting=60), "6", "lower"),
        (figures(7, adopted=True, waiting=60), "7.5", "higher"),
        (figures(7, adopted=True, waiting=-5, waiting_negative=-5), "4", "missing"),
        (figures(7, adopted=True, waiting=-5, waiting_negative=-5), "1", "lower"),
        # Used and taken back: the first may be there without the second, or the other way round.
        (figures(7, adopted=True, waiting=0, waiting_negative=-5), "12", "missing"),
        (figures(7, adopted=True, waiting=0, waiting_negative=-5), "2", "missing"),
        (figures(7, adopted=True, waiting=0, waiting_negative=-5), "7", "equal"),
        (figures(7, adopted=True, waiting=0, waiting_negative=-5), "13", "higher"),
        (figures(7, 5, -5, adopted=True), "12", "missing"),
    ],
)
def test_a_cell_is_what_both_sums_say(known: Figures, observed: str, wanted: str) -> None:
    assert compare(known, Decimal(observed)) == wanted


def readings(*pairs: tuple[int, int]) -> list[Reading]:
    return [Reading(at_us, Decimal(value)) for at_us, value in pairs]


@pytest.mark.parametrize(
    ("known", "seen", "wanted"),
    [
        (figures(7), readings((0, 7)), Nothing()),
        (figures(7), readings((0, 9)), Report("higher", Decimal(2))),
        (figures(7, 5), readings((0, 9)), Report("higher", Decimal(2))),
        (figures(7, 5), readings((0, 14)), Report("higher", Decimal(2))),
        (figures(7, 5), readings((0, 4)), Report("lower", Decimal(-3))),
        (figures(7, quiet_from_us=9), readings((8, 4)), Wait("its last attempt is too young", 9)),
        (figures(7, 5, in_flight=1), readings((0, 7)), Wait("requests are in flight", None)),
        (figures(7, unready="x"), readings((0, 7)), Wait("x", None)),
        # Absent: two equal readings, far enough apart, both after the last attempt.
        (figures(7, 5), readings((0, 7), (100, 7)), Settle((), (1,), 0, 5)),
        (figures(7, 5), readings((0, 12), (100, 12)), Settle((1,), (), 0, 0)),
        (figures(7, 5, 3), readings((0, 10), (100, 10)), Settle((2,), (1,), 0, 5)),
        (figures(7, 5, 5), readings((0, 12), (100, 12)), Settle((1,), (2,), 0, 5)),
        (
            figures(7, 5),
            readings((0, 7), (99, 7)),
            Wait("Stripe's sum has not stood still for long enough", 100),
        ),
        (
            figures(7, 5),
            readings((0, 7)),
            Wait("Stripe's sum has not stood still for long enough", 100),
        ),
        # It moved in between: what was read before it proves nothing.
        (
            figures(7, 5),
            readings((0, 7), (50, 12), (120, 7)),
            Wait("Stripe's sum has not stood still for long enough", 220),
        ),
        # Read while the attempt could still arrive.
        (
            figures(7, 5, quiet_from_us=10),
            readings((0, 7), (105, 7)),
            Wait("Stripe's sum has not stood still for long enough", 205),
        ),
        (figures(7, 5, quiet_from_us=10), readings((10, 7), (110, 7)), Settle((), (1,), 0, 5)),
        (
            figures(7, 5, quiet_from_us=200),
            readings((0, 7), (100, 7)),
            Wait("an attempt could have been in flight when it was read", 300),
        ),
        # A ledger that went back: 48 of the 60 it owes are there already.
        (
            figures(40, adopted=True, waiting=60),
            readings((0, 88), (100, 88)),
            Settle((), (), 48, 12),
        ),
        (
            figures(40, 5, adopted=True, waiting=60),
            readings((0, 105), (100, 105)),
            Settle((), (1,), 65, 0),
        ),
        (figures(40, adopted=True), readings((0, 40), (100, 40)), Settle((), (), 0, 0)),
        # The invoice has closed: the part that is there is proven all the same.
        (
            figures(40, adopted=True, waiting=60, late=True),
            readings((0, 88), (100, 88)),
            Settle((), (), 48, 12, late=True),
        ),
        (
            figures(40, adopted=True, waiting=60, late=True),
            readings((0, 100), (100, 100)),
            Settle((), (), 60, 0),
        ),
        (figures(7, 5, late=True), readings((0, 7), (100, 7)), Settle((), (1,), 0, 5, late=True)),
        (figures(7, 5, late=True), readings((0, 12), (100, 12)), Settle((1,), (), 0, 0)),
        (
            figures(40, adopted=True, waiting=60, late=True),
            readings((0, 88)),
            Wait("Stripe's sum has not stood still for long enough", 100),
        ),
        (figures(7, noted=True), readings((0, 7), (100, 7)), Settle((), (), 0, 0)),
        (figures(7, noted=True), readings((0, 6), (100, 6)), Report("lower", Decimal(-1))),
        # A report that counts more than it names: what adds up to the difference is taken back.
        (
            figures(9, noted=True, reported=in_doubt(4, 5)),
            readings((0, 4), (100, 4)),
            TakeBack((2,), 5),
        ),
        (
            figures(9, noted=True, reported=in_doubt(4, 5)),
            readings((0, 0), (100, 0)),
            TakeBack((1, 2), 9),
        ),
        (
            figures(9, noted=True, reported=in_doubt(4, 5)),
            readings((0, 4)),
            Wait("Stripe's sum has not stood still for long enough", 100),
        ),
        (
            figures(9, noted=True, reported=in_doubt(4, 5)),
            readings((0, 3), (100, 3)),
            Report("lower", Decimal(-6)),
        ),
        (
            figures(9, noted=True, reported=in_doubt(4, 5)),
            (Reading(0, Decimal("4.5")), Reading(100, Decimal("4.5"))),
            Report("lower", Decimal("-4.5")),
        ),
        # What is in doubt besides could explain it as well.
        (
            Figures(9, (Doubtful(7, -5),), noted=True, reported=in_doubt(4, 5)),
            readings((0, 0), (100, 0)),
            Report("lower", Decimal(-4)),
        ),
        (
            figures(7, noted=True),
            readings((0, 7)),
            Wait("Stripe's sum has not stood still for long enough", 100),
        ),
        (
            figures(40, adopted=True),
            readings((0, 40)),
            Wait("Stripe's sum has not stood still for long enough", 100),
        ),
    ],
)
def test_what_follows_from_the_readings(
    known: Figures, seen: Sequence[Reading], wanted: Decision
) -> None:
    assert decide(known, seen, STILL_US) == wanted


UNITS = st.integers(-50, 50)


@given(
    recorded=UNITS,
    units=st.lists(UNITS, max_size=6),
    counted=st.data(),
    foreign=st.sampled_from([0, 0, 1, -3, 1000]),
)
def test_after_settling_stripe_has_each_amount_once(
    recorded: int, units: list[int], counted: st.DataObject, foreign: int
) -> None:
    there = [counted.draw(st.booleans()) for _ in units]
    stripe = recorded + sum(u for u, is_there in zip(units, there, strict=True) if is_there)
    known = figures(recorded, *units)
    sums = {sum(chosen) for n in range(len(units) + 1) for chosen in combinations(tuple(units), n)}

    decision = decide(known, readings((0, stripe + foreign), (100, stripe + foreign)), STILL_US)

    match decision:
        case Settle(present, absent, adopted_units, net_units, late):
            assert sorted((*present, *absent)) == list(range(1, len(units) + 1))
            assert adopted_units == 0
            assert not late
            # Where foreign usage looks exactly like doubt nobody can tell, and the sum is right.
            assert stripe + foreign + net_units == recorded + sum(units)
            by_id = dict(known.doubtful)
            assert recorded + sum(by_id[p] for p in present) == stripe + foreign
            assert net_units == sum(by_id[a] for a in absent)
        case Report():
            assert foreign != 0
            assert stripe + foreign - recorded not in sums
        case Nothing():
            assert not units
            assert foreign == 0
        case TakeBack():
            pytest.fail("no report named nobody")
        case Wait():
            pytest.fail("it stood still and nothing was in flight")


@given(
    recorded=UNITS,
    sent=st.integers(0, 80),
    waiting=st.integers(0, 80),
    lost=UNITS,
    closed=st.booleans(),
)
def test_an_adopted_cell_ends_at_what_the_ledger_owes(
    recorded: int, sent: int, waiting: int, lost: int, *, closed: bool
) -> None:
    known = figures(recorded, lost, adopted=True, waiting=waiting, late=closed)
    observed = recorded + sent
    match decide(known, readings((0, observed), (100, observed)), STILL_US):
        case Settle(_, absent, adopted_units, net_units, late):
            assert absent == (1,)
            assert adopted_units == sent
            assert late == (closed and net_units != 0)
            assert recorded + adopted_units + net_units == recorded + lost + waiting
        case decision:
            assert isinstance(decision, Report)
            assert not min(0, lost) <= sent <= max(0, lost) + waiting


@given(
    recorded=UNITS,
    lost=st.lists(UNITS, max_size=4),
    waiting=st.lists(UNITS, max_size=4),
    forgotten=st.data(),
)
def test_an_adopted_cell_is_explained_by_any_part_of_what_it_owes(
    recorded: int, lost: list[int], waiting: list[int], forgotten: st.DataObject
) -> None:
    """Whatever of it the lost ledger had sent, the cell settles and ends at what is owed."""
    sent = sum(units for units in (*lost, *waiting) if forgotten.draw(st.booleans()))
    known = figures(
        recorded, *lost, adopted=True, waiting=sum(waiting),
        waiting_negative=sum(units for units in waiting if units < 0),
    )  # fmt: skip
    observed = recorded + sent
    decision = decide(known, readings((0, observed), (100, observed)), STILL_US)
    assert isinstance(decision, Settle)
    assert observed + decision.net_units == recorded + sum(lost) + sum(waiting)


def test_too_many_requests_in_doubt_are_all_there_or_none_or_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconcile, "SUMS_MAX", 4)
    known = figures(0, 1, 2, 4, 8, 16)
    assert compare(known, Decimal(31)) == "equal"
    assert compare(known, Decimal(0)) == "missing"
    assert compare(known, Decimal(24)) == "higher"


@pytest.mark.parametrize(
    ("known", "observed", "wanted"),
    [
        (figures(7, 3), "7", False),
        (figures(7, 3), "10", True),
        (figures(7, 3, 3), "10", True),
        (figures(7, 10, -10), "7", True),
        (figures(7, 10, -4), "13", True),
        (figures(7, 10, -4), "3", False),
        (figures(7, -10, 10), "7", True),
        (figures(7, -10, 10), "17", False),
        # Nothing here explains these: what somebody else wrote may lie on top of it.
        (figures(7, 3), "14", True),
        (figures(7, 3), "10.5", True),
        (figures(7, 3), "9", False),
        (figures(7, 3), "2", False),
        (figures(7, 3, -2), "9", True),
        (figures(7, -3), "0", True),
        (figures(7, -3), "5", False),
        (figures(7, -3), "9", False),
    ],
)
def test_a_sum_has_room_for_what_it_may_hold_beside_the_others(
    known: Figures, observed: str, wanted: bool
) -> None:
    """Asked of the first."""
    assert has_room(known, Decimal(observed), 1) is wanted


@given(st.lists(st.integers(-9, 9).filter(bool), min_size=1, max_size=6), st.data())
def test_a_sum_that_holds_a_request_has_room_for_it(units: list[int], data: st.DataObject) -> None:
    known = figures(7, *units)
    there = data.draw(st.sets(st.sampled_from(known.doubtful)))
    observed = Decimal(7 + sum(event.units for event in there))
    assert all(has_room(known, observed, event.meter_event_id) for event in there)


def test_among_too_many_in_doubt_there_is_room_unless_the_bounds_forbid_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconcile, "SUMS_MAX", 4)
    known = figures(0, 1, 2, 4, 8, 16)
    assert has_room(known, Decimal(24), 4)
    assert has_room(known, Decimal(2), 1), "the sums that are looked at explain it without"
    assert not has_room(known, Decimal(7), 4)
