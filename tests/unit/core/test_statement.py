"""A statement foots to the unit and to the event, or says by how much it does not."""

from collections.abc import Iterable
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.instant import DAY_US, HOUR_US, LAST_US, MINUTE_US
from streams.core.statement import NOTHING, Event, Item, Placed, Statement, Told
from streams.core.statement_line import RIGHT, Line, Span, totals

METER = MeterVersion(
    metric="api", version=1, event_name="api", window_us=MINUTE_US, publish="window", scale=2,
    skew_max_us=DAY_US, close_delay_us=0, carry="review", aggregation="sum", rules=1,
    effective_from_us=0,
)  # fmt: skip
CATALOGUE = Catalogue((METER,), LAST_US)
AT = 10 * HOUR_US
SPAN = Span("api", AT, AT + MINUTE_US)


def content(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:16], "big")


def event(name: str, quantity: str = "1", *, at: int = AT, metric: str = "api") -> Event:
    return Event(name, f"key-{name}", metric, quantity, at, at + 5, content(name))


def item(
    name: str, units: int | None = 100, *, number: int = 1, kind: str = "review",
    reason: str = "late", state: str = "open",
) -> Item:  # fmt: skip
    return Item(number, kind, reason, state, name, units, "api", AT)


def told(*events: Event, settled: int | None = None, **others: int) -> Told:
    """What the ledger holds where it accepted these."""
    total = sum(round(float(each.quantity) * 100) for each in events)
    return NOTHING._replace(
        events=len(events), total=total, digest=sum(each.content for each in events) % 2**128,
        settled=total if settled is None else settled, **others,
    )  # fmt: skip


def made(
    events: Iterable[Event], holds: Told, *items: Item, span: Span = SPAN
) -> tuple[Line, list[Placed]]:
    """The line of the one window, and where the events are."""
    statement = Statement(CATALOGUE, {span: holds}, items)
    placed = [statement.place(each) for each in events]
    (line,) = statement.lines()
    return line, [statement.finally_placed(each) for each in placed]


A, B, C = event("a"), event("b", "2.5"), event("c", "0.01")


def test_what_is_recorded_and_billed_foots_and_is_proven() -> None:
    line, placed = made([A, B], told(A, B))
    assert (line.recorded, line.billed, line.difference, line.missing) == (350, 350, 0, 0)
    assert line.proven
    assert line.foots
    assert [(each.where, each.units, each.item) for each in placed] == [
        ("accepted", 100, None),
        ("accepted", 250, None),
    ]
    assert line.newest_us == AT + 5


@pytest.mark.parametrize(
    ("kind", "reason", "state", "column"),
    [
        ("review", "late", "open", "review"),
        ("review", "early", "rejected", "rejected"),
        ("dead", "malformed", "open", "dead"),
        ("dead", "malformed", "rejected", "rejected"),
    ],
)
def test_what_was_not_counted_is_where_its_item_says(
    kind: str, reason: str, state: str, column: str
) -> None:
    parked = item("b", 250, kind=kind, reason=reason, state=state)
    line, placed = made([A, B], told(A), parked)
    assert line.foots
    assert (line.billed, getattr(line, column)) == (100, 250)
    assert (placed[1].where, placed[1].item) == (column, 1)


def test_an_approval_counts_in_its_own_window_or_moves() -> None:
    approved = item("b", 250, state="approved")
    own, placed = made([A, B], told(A, settled=350, approved=250), approved)
    assert (own.foots, own.moved, placed[1].where) == (True, 0, "approved")
    away, _ = made([A, B], told(A), approved)
    assert (away.foots, away.moved) == (True, -250)
    there, _ = made([A], told(A, settled=350, approved=250))
    assert (there.foots, there.moved) == (True, 250)


def test_corrections_and_what_was_carried_stand_beside_what_was_recorded() -> None:
    line, _ = made([A, B], told(A, B, settled=50, corrected=-100, shifted=-250, pending=-50))
    assert (line.corrected, line.moved, line.foots) == (-100, -250, True)


@pytest.mark.parametrize("where", [name for name in RIGHT if name not in {"review", "rejected"}])
def test_each_place_of_an_amount_is_one_of_the_line(where: str) -> None:
    there = {"settled" if where == "billed" else where: 350}
    line, _ = made([A, B], told(A, B, settled=0)._replace(**there))
    assert (getattr(line, where), line.foots) == (350, True)


def test_a_lost_event_is_a_difference_to_the_unit() -> None:
    line, _ = made([A, B, C], told(A, B))
    assert (line.difference, line.missing, line.proven, line.foots) == (1, 1, False, False)


def test_a_made_up_event_is_one_below_zero() -> None:
    line, _ = made([A], told(A, B))
    assert (line.difference, line.missing, line.foots) == (-250, -1, False)


def test_another_event_of_the_same_amount_is_not_the_one_that_was_recorded() -> None:
    line, _ = made([A], told(event("other")))
    assert (line.difference, line.missing, line.proven, line.foots) == (0, 0, False, False)


def test_an_item_of_another_amount_is_a_difference() -> None:
    line, _ = made([A, B], told(A), item("b", 249))
    assert (line.difference, line.foots) == (1, False)


def test_what_stands_beside_a_recorded_event_is_no_amount_of_it() -> None:
    beside = (item("a", 700, reason="conflict"), item("a", -5, reason="correction_limit"))
    line, placed = made([A], told(A), *beside)
    assert (line.foots, line.review, placed[0].where) == (True, 0, "accepted")


@pytest.mark.parametrize(
    "copy",
    [item("a", reason="beyond_horizon"), item("a", None, kind="dead", reason="malformed")],
)
def test_a_parked_copy_of_what_was_accepted_counts_once(copy: Item) -> None:
    line, placed = made([A, B], told(A, B), copy)
    assert (line.foots, line.review, line.dead, line.billed) == (True, 0, 0, 350)
    assert [(each.where, each.item) for each in placed] == [("accepted", None)] * 2


def test_beside_a_copy_another_item_keeps_its_amount() -> None:
    items = (item("a", reason="beyond_horizon"), item("b", 250, number=2, reason="beyond_horizon"))
    line, placed = made([A, B], told(A), *items)
    assert (line.foots, line.review, line.billed) == (True, 250, 100)
    assert [each.where for each in placed] == ["accepted", "review"]


def test_of_two_items_of_an_event_the_first_counts() -> None:
    items = (item("a", state="rejected"), item("a", number=2, reason="beyond_horizon"))
    line, placed = made([A], NOTHING, *items)
    assert (line.foots, line.rejected, line.review, placed[0].item) == (True, 100, 0, 1)


def test_an_item_without_an_amount_takes_that_of_its_event() -> None:
    line, placed = made([A], NOTHING, item("a", None, reason="too_large"))
    assert (line.foots, line.review, placed[0].units) == (True, 100, 100)


def test_what_has_no_amount_must_be_parked_or_is_missing() -> None:
    fine = event("fine", "0.001")
    dead, placed = made([fine], NOTHING, item("fine", None, kind="dead"))
    assert (dead.unusable, dead.recorded, dead.foots, placed[0].units) == (1, 0, True, None)
    lost, _ = made([fine], NOTHING)
    assert (lost.unusable, lost.difference, lost.missing, lost.foots) == (1, 0, 1, False)


def test_usage_of_no_meter_stands_in_a_line_of_its_own() -> None:
    stray = event("x", metric="nobody's", at=AT + 7)
    line, placed = made([stray], NOTHING, item("x", None, kind="dead"),
                        span=Span("nobody's", AT, AT + MINUTE_US))  # fmt: skip
    assert (line.span.metric, line.unusable, line.foots) == ("nobody's", 1, True)
    assert placed[0].where == "dead"


def test_without_a_registry_the_ledger_s_word_is_taken_and_nothing_is_proven() -> None:
    elsewhere = Item(3, "dead", "malformed", "open", "n", 40, "", None)
    statement = Statement(
        CATALOGUE,
        {SPAN: told(A, settled=0, pending=100)},
        [item("b", 250), item("c", None, kind="dead", number=2), elsewhere],
    )
    statement.told_only()
    (line,) = statement.lines()
    assert (line.recorded, line.events, line.pending, line.review) == (350, 3, 100, 250)
    assert (line.unusable, line.proven, line.foots, line.newest_us) == (1, None, True, None)


def test_the_ledger_alone_still_has_to_foot() -> None:
    statement = Statement(CATALOGUE, {SPAN: told(A, settled=90)}, [])
    statement.told_only()
    assert [line.difference for line in statement.lines()] == [10]


def test_a_metric_s_total_is_the_sum_and_keeps_what_is_wrong_in_sight() -> None:
    later = event("later", at=AT + HOUR_US)
    other = Span("api", AT + HOUR_US, AT + HOUR_US + MINUTE_US)
    statement = Statement(CATALOGUE, {SPAN: told(A), other: told(event("later2"))}, [])
    for each in (A, later):
        statement.place(each)
    lines = statement.lines()
    (total,) = totals(lines)
    assert (total.recorded, total.billed, total.events) == (200, 200, 2)
    assert (total.span.start_us, total.span.end_us) == (AT, other.end_us)
    assert (total.proven, total.newest_us) == (False, AT + HOUR_US + 5)
    (unread,) = totals([line._replace(proven=None) for line in lines])
    assert unread.proven is None
    assert totals([lines[0]])[0].proven is True


@given(st.lists(st.sampled_from(["accepted", "review", "rejected", "dead", "lost"]), max_size=12))
def test_whatever_becomes_of_events_only_lost_ones_are_a_difference(fates: list[str]) -> None:
    events = [event(f"e{n}", str(n + 1)) for n in range(len(fates))]
    accepted = [each for each, fate in zip(events, fates, strict=True) if fate == "accepted"]
    items = [
        item(each.event_id, (n + 1) * 100, number=n,
             kind="dead" if fate == "dead" else "review",
             state="rejected" if fate == "rejected" else "open")
        for n, (each, fate) in enumerate(zip(events, fates, strict=True))
        if fate not in {"accepted", "lost"}
    ]  # fmt: skip
    line, placed = made(events, told(*accepted), *items)
    lost = [each for each, fate in zip(placed, fates, strict=True) if fate == "lost"]
    assert line.difference == sum(each.units or 0 for each in lost)
    assert line.missing == len(lost)
    assert line.foots == (not lost)
