"""The judge itself: books that agree, and one planted difference each."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.support.books import Books, Use
from tests.support.oracle import Counted, Expected, Row, Seen, Verdict, compare

AT = datetime(2026, 11, 3, 10, 20, 30, tzinfo=UTC)
START_S = int(AT.timestamp()) // 60 * 60


def books() -> Books:
    """Two tenants, three usage events in windows, a late one, a rolled back one."""
    made = Books()
    for use in (
        Use("a", "api_calls", "a1", 5, AT),
        Use("a", "api_calls", "a2", 7, AT, "conflict"),
        Use("b", "exports", "b1", 9, AT, "twice"),
        Use("b", "exports", "b2", 2, AT, "late"),
        Use("b", "exports", "b3", 4, AT, "rollback"),
    ):
        made.note(use)
    return made


CALLS = ("a", "api_calls", START_S)
EXPORTS = ("b", "exports", START_S - START_S % 3_600)
RIGHT = Seen(
    keys=Counter([("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")]),
    conflicts={"a": 1},
    windows={CALLS: Row(2, 12, 0, 12, 0), EXPORTS: Row(1, 9, 0, 9, 0)},
    parked={("a", "conflict"): 1, ("b", "late"): 1},
    stripe=(
        Counted("cus_a", "api_calls", START_S + 59, "m1", 12),
        Counted("cus_b", "exports", START_S, "m2", 9),
    ),
)


def expected() -> Expected:
    return books().expected({})


def test_books_that_agree_are_exact_and_say_what_was_compared() -> None:
    verdict = compare(expected(), RIGHT)
    assert verdict.exact
    assert str(verdict) == "lost 0 · double 0 · phantom 0 · misattributed 0 · stuck 0"
    assert verdict.compared == (
        "4 identities",
        "2 windows with 3 events",
        "2 meter events at Stripe",
    )


def with_window(window: tuple[str, str, int], row: Row) -> Callable[[Seen], Seen]:
    return lambda seen: replace(seen, windows={**seen.windows, window: row})


def with_stripe(*events: Counted) -> Callable[[Seen], Seen]:
    return lambda seen: replace(seen, stripe=events)


FIRST, SECOND = RIGHT.stripe
PLANTED: dict[str, tuple[Callable[[Seen], Seen], dict[str, int]]] = {
    "an identity is not in the registry": (
        lambda s: replace(
            s,
            keys=s.keys - Counter([("a", "a1")]),
            windows={**s.windows, CALLS: Row(1, 7, 0, 7, 0)},
            stripe=(FIRST._replace(units=7), SECOND),
        ),
        {"lost": 1},
    ),
    "a late one is not in the registry": (
        lambda s: replace(s, keys=s.keys - Counter([("b", "b2")])),
        {"lost": 1},
    ),
    "a rolled back identity is in the registry": (
        lambda s: replace(s, keys=s.keys + Counter([("b", "b3")])),
        {"phantom": 1},
    ),
    "a conflict was not noticed": (
        lambda s: replace(s, conflicts={}, parked={("b", "late"): 1}),
        {"lost": 2},
    ),
    "an event is not in the ledger": (
        lambda s: replace(
            with_window(CALLS, Row(1, 7, 0, 7, 0))(s),
            stripe=(FIRST._replace(units=7), SECOND),
        ),
        {"lost": 1},
    ),
    "an event is twice in the ledger": (
        lambda s: replace(
            with_window(EXPORTS, Row(2, 18, 0, 18, 0))(s),
            stripe=(FIRST, SECOND._replace(units=18)),
        ),
        {"double": 1},
    ),
    "an amount is smaller": (
        lambda s: replace(
            with_window(EXPORTS, Row(1, 8, 0, 8, 0))(s),
            stripe=(FIRST, SECOND._replace(units=8)),
        ),
        {"lost": 1},
    ),
    "a window that nobody used": (
        lambda s: replace(
            with_window(("a", "exports", 0), Row(3, 6, 0, 6, 0))(s),
            stripe=(*s.stripe, Counted("cus_a", "exports", 5, "m3", 6)),
        ),
        {"phantom": 3},
    ),
    "an event in another tenant's window": (
        lambda s: replace(
            s,
            windows={
                CALLS: Row(1, 7, 0, 7, 0),
                EXPORTS: Row(1, 9, 0, 9, 0),
                ("b", "api_calls", START_S): Row(1, 5, 0, 5, 0),
            },
            stripe=(
                FIRST._replace(units=7),
                SECOND,
                Counted("cus_b", "api_calls", START_S, "m3", 5),
            ),
        ),
        {"misattributed": 1},
    ),
    "units wait": (with_window(CALLS, Row(2, 12, 0, 5, 7)), {"stuck": 7, "double": 7}),
    "the ledger settled less than it has": (
        lambda s: replace(
            with_window(CALLS, Row(2, 12, 0, 5, 0))(s),
            stripe=(FIRST._replace(units=5), SECOND),
        ),
        {"lost": 7},
    ),
    "the ledger settled more than it has": (
        lambda s: replace(
            with_window(CALLS, Row(2, 12, 0, 13, 0))(s),
            stripe=(FIRST._replace(units=13), SECOND),
        ),
        {"double": 1},
    ),
    "a correction that nobody made": (
        lambda s: replace(
            with_window(CALLS, Row(2, 12, 3, 15, 0))(s),
            stripe=(FIRST._replace(units=15), SECOND),
        ),
        {"phantom": 3},
    ),
    "an item waits for a person": (
        lambda s: replace(s, parked={**s.parked, ("a", "early"): 1}),
        {"stuck": 1},
    ),
    "an item is gone": (lambda s: replace(s, parked={("a", "conflict"): 1}), {"lost": 1}),
    "a meter event is not at Stripe": (with_stripe(FIRST), {"lost": 9}),
    "Stripe counts an identifier again": (with_stripe(FIRST, SECOND, SECOND), {"double": 9}),
    "Stripe counts one again and lacks another, so that the sum is right": (
        with_stripe(FIRST, *[SECOND._replace(units=3)] * 3),
        {"double": 6, "lost": 6},
    ),
    "Stripe has an amount under two identifiers": (
        with_stripe(FIRST, SECOND, SECOND._replace(identifier="m3")),
        {"double": 9},
    ),
    "Stripe has it for another customer": (
        with_stripe(FIRST, SECOND._replace(customer="cus_c")),
        {"misattributed": 9},
    ),
    "Stripe has it in another hour": (
        with_stripe(FIRST, SECOND._replace(at_s=START_S + 3_600)),
        {"misattributed": 9},
    ),
    "one of two misses, the other moved": (
        with_stripe(SECOND._replace(at_s=START_S + 3_600)),
        {"misattributed": 9, "lost": 12},
    ),
    "a foreign meter event": (
        with_stripe(FIRST, SECOND, Counted("cus_a", "storage_gb", START_S, "x", 3)),
        {"phantom": 3},
    ),
}


@pytest.mark.parametrize(("change", "figures"), PLANTED.values(), ids=PLANTED)
def test_a_planted_difference_is_counted_where_it_is(
    change: Callable[[Seen], Seen], figures: dict[str, int]
) -> None:
    verdict = compare(expected(), change(RIGHT))
    assert {name: number for name, number in verdict.figures.items() if number} == figures
    assert verdict.differences


def test_what_was_carried_need_not_be_in_its_own_hour() -> None:
    moved = with_stripe(FIRST, SECOND._replace(at_s=START_S + 86_400))(RIGHT)
    assert compare(expected(), moved, by_hour=False).exact


def test_doubt_on_the_way_is_named_with_its_number() -> None:
    with_doubt = replace(RIGHT, parked={**RIGHT.parked, ("b", "ambiguous"): 2})
    assert compare(books().expected({"ambiguous": 2}), with_doubt).exact
    assert compare(books().expected({"ambiguous": 1}), with_doubt).stuck == 1
    assert compare(books().expected({"ambiguous": 3}), with_doubt).lost == 1
    assert compare(expected(), with_doubt).stuck == 2


def test_what_is_listed_as_doubt_is_not_lost() -> None:
    unnamed = replace(RIGHT, stripe=(FIRST,), doubted=(SECOND,))
    assert compare(expected(), unnamed).exact
    assert "1 of them listed as doubt" in compare(expected(), unnamed).compared


def test_verdicts_add_up() -> None:
    both = Verdict(lost=1, differences=("x",)) + Verdict(lost=2, stuck=3, compared=("y",))
    assert both == Verdict(lost=3, stuck=3, differences=("x",), compared=("y",))


def test_a_contradiction_that_the_ledger_has_noted_is_stuck() -> None:
    verdict = compare(expected(), replace(RIGHT, findings=("level_differs a api_calls",)))
    assert verdict.figures == {
        "lost": 0,
        "double": 0,
        "phantom": 0,
        "misattributed": 0,
        "stuck": 1,
    }
    assert verdict.differences == (
        "ledger: it has found a contradiction: level_differs a api_calls",
    )
