"""Units recorded against units counted: a small model of delivery, and each fault planted in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streams.core.audit import Judgment, Tally
from streams.core.audit_units import (
    LISTED_MAX,
    Part,
    Series,
    UnitsFound,
    compare_units,
    moving_minutes,
)

ACME = Series("usage", "acme", "api_calls")
SERIES = (ACME, ACME._replace(kind="conflict"), ACME._replace(tenant_id="globex"))


@dataclass(frozen=True)
class Event:
    """One identity; it is `moving` where its minute is, and `here` where the ledger has it."""

    series: Series
    start_us: int
    content: int
    units: int
    moving: bool
    here: bool


@st.composite
def deliveries(draw: st.DrawFn) -> list[Event]:
    """Any usage of which everything certain has arrived, and of the rest anything."""
    events = []
    for number in range(draw(st.integers(1, 20))):
        moving = draw(st.booleans())
        events.append(
            Event(
                draw(st.sampled_from(SERIES)),
                draw(st.integers(0, 2)),
                # Digests of 128 bits: no sum of some is the sum of others.
                1 << number,
                draw(st.integers(0, 9)),
                moving,
                not moving or draw(st.booleans()),
            )
        )
    return events


def compared(
    recorded: Sequence[Event],
    counted: Sequence[Event],
    *,
    again: bool = False,
    shared: bool = False,
) -> UnitsFound:
    sides = [
        parts((event, "moving" if event.moving else "certain") for event in recorded),
        parts((event, "counted") for event in counted if event.here),
    ]
    return compare_units(sides, again=again, shared=shared)


def parts(told: Any) -> list[Part]:
    told = (
        Part(event.series, event.start_us, side, Tally(1, event.content), event.units)
        for event, side in told
    )
    return sorted(told, key=lambda part: (part.series, part.start_us))


def moved(events: Sequence[Event], event: Event, **changes: Any) -> list[Event]:
    return [replace(each, **changes) if each is event else each for each in events]


def arrived(data: st.DataObject, events: Sequence[Event]) -> Event:
    """One that the ledger has, in a window that stands still."""
    still = [
        event
        for event in events
        if not any(e.moving for e in events if (e.series, e.start_us) == place(event))
    ]
    assume(still)
    return data.draw(st.sampled_from(still))


def place(event: Event) -> tuple[Series, int]:
    return event.series, event.start_us


@given(deliveries())
def test_nothing_under_way_is_ever_a_difference(events: list[Event]) -> None:
    found = compared(events, events)
    assert (found.differences, found.unlisted, found.shared) == ([], 0, 0)
    assert found.equal + found.open == len({place(event) for event in events})
    windows = {place(event) for event in events if event.moving and not event.here}
    assert found.open <= len(windows)


@given(deliveries(), st.integers(-9, 9), st.data())
def test_other_units_of_an_event_are_found_to_the_unit(
    events: list[Event], more: int, data: st.DataObject
) -> None:
    event = arrived(data, events)
    assume(more)
    found = compared(events, moved(events, event, units=event.units + more))
    [difference] = found.differences
    assert (difference.series, difference.start_us) == place(event)
    assert (difference.verdict, difference.more_units) == ("units", more)
    assert (difference.lost, difference.double) == (int(more < 0), int(more > 0))


@given(deliveries(), st.data())
def test_an_event_counted_to_somebody_else_is_short_there_and_over_here(
    events: list[Event], data: st.DataObject
) -> None:
    event = arrived(data, events)
    stranger = event.series._replace(tenant_id="initech")
    found = compared(events, moved(events, event, series=stranger))
    short, over = found.differences
    assert (short.series, short.verdict, short.lost, short.double) == (event.series, "short", 1, 0)
    assert (over.series, over.verdict, over.lost, over.double) == (stranger, "over", 0, 1)
    assert (short.more_units, over.more_units) == (-event.units, event.units)


def usage(content: int, units: int = 3, start_us: int = 0, *, moving: bool = False) -> Event:
    return Event(ACME, start_us, content, units, moving, here=True)


def test_as_many_events_and_others_are_a_difference_whatever_their_units() -> None:
    [difference] = compared([usage(1)], [usage(2)]).differences
    assert (difference.verdict, difference.lost, difference.double) == ("mixed", 1, 1)
    [difference] = compared([usage(1), usage(2, moving=True)], [usage(4)]).differences
    assert difference.verdict == "mixed"


def test_units_of_what_is_certain_are_judged_while_more_is_under_way() -> None:
    recorded = [usage(1), usage(2, moving=True)]
    [difference] = compared(recorded, [usage(1, units=5)]).differences
    assert (difference.verdict, difference.more_units) == ("units", 2)
    [difference] = compared(recorded, [usage(1), usage(2, units=2)]).differences
    assert (difference.verdict, difference.more_units) == ("units", -1)


def test_what_is_short_is_short_by_what_is_certain_though_more_is_under_way() -> None:
    recorded = [usage(1), usage(2), usage(4, moving=True)]
    [difference] = compared(recorded, [usage(1)]).differences
    assert (difference.verdict, difference.lost, difference.more_units) == ("short", 1, -3)


def test_other_sources_usage_hides_only_what_is_too_much() -> None:
    foreign = usage(8, start_us=0)
    assert compared([usage(1)], [usage(1), foreign], shared=True).shared == 1
    assert compared([usage(1)], [foreign], shared=True).shared == 1
    [difference] = compared([usage(1), usage(2)], [foreign], shared=True).differences
    assert difference.verdict == "short"
    [difference] = compared([usage(1)], [usage(1, units=4)], shared=True).differences
    assert difference.verdict == "units"


def test_what_was_recorded_again_may_stand_in_another_window() -> None:
    recorded, counted = [usage(1, start_us=60)], [usage(1, start_us=0)]
    assert compared(recorded, counted, again=True) == UnitsFound(equal=2)
    assert [d.verdict for d in compared(recorded, counted).differences] == ["over", "short"]
    [difference] = compared(recorded, [usage(1, units=4)], again=True).differences
    assert (difference.start_us, difference.verdict, difference.more_units) == (None, "units", 1)


def test_what_is_missing_stays_missing_where_something_else_was_recorded_again() -> None:
    recorded = [usage(1, start_us=60), usage(2, start_us=120)]
    found = compared(recorded, [usage(1, start_us=0)], again=True)
    assert [d.verdict for d in found.differences] == ["over", "short", "short"]
    [difference] = compared(recorded, recorded[:1], again=True).differences
    assert difference.verdict == "short"


def test_more_than_can_be_read_are_counted() -> None:
    recorded = [usage(1, start_us=start_us) for start_us in range(LISTED_MAX + 3)]
    counted = [usage(1, units=2 if event.start_us % 2 else 4, start_us=event.start_us)
               for event in recorded]  # fmt: skip
    found = compared(recorded, counted)
    assert len(found.differences) == LISTED_MAX
    assert (found.unlisted, found.unlisted_lost, found.unlisted_double) == (3, 1, 2)


def test_conflicts_beyond_what_can_be_read_count_as_nothing_of_usage() -> None:
    counted = [replace(usage(1), series=ACME._replace(kind="conflict"), start_us=start_us)
               for start_us in range(LISTED_MAX + 3)]  # fmt: skip
    found = compared([], counted)
    assert (found.unlisted, found.unlisted_lost, found.unlisted_double) == (3, 0, 0)


@pytest.mark.parametrize("verdict", ["lost", "phantom", "mixed", "open", "equal"])
def test_every_minute_that_is_not_equal_moves(verdict: Any) -> None:
    nothing = Tally(0, 0)
    judged = [
        Judgment(60, "usage", verdict, nothing, nothing, nothing),
        Judgment(60, "conflict", "open", nothing, nothing, nothing),
    ]
    assert moving_minutes(judged, "usage") == ([] if verdict == "equal" else [60])
    assert moving_minutes(judged, "conflict") == [60]
