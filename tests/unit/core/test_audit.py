"""The audit against a small model of commits, delivery and readings, and against planted faults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streams.core.audit import (
    GROUP_OF_CLASS,
    GROUP_OF_KIND,
    NOTHING,
    Judgment,
    Readings,
    Row,
    Tally,
    UnknownClassError,
    broken_seals,
    cell_readings,
    judge,
    registry_readings,
    sealable,
    without_swept_canaries,
)
from streams.core.audit_names import (
    SEARCH_WIDTH_MAX,
    Identity,
    Named,
    name_missing,
    name_repeated,
)
from streams.core.identity import DIGEST_MODULUS
from streams.core.instant import MINUTE_US

CLASSES_OF = {
    "usage": ("accepted", "review", "dead"),
    "correction": ("correction", "review", "dead"),
    "conflict": ("conflict",),
    "canary": ("canary",),
}


@dataclass(frozen=True)
class Event:
    """One identity: its minute is fixed at its insert, it is visible from its commit on."""

    minute: int
    kind: str
    verdict_class: str
    content: int
    committed_at: int


@dataclass(frozen=True)
class Run:
    """An audit's steps as places in the order of commits: everything before a place is visible."""

    events: tuple[Event, ...]
    first_at: int
    delivered_to: int
    second_at: int

    def registry(self, at: int) -> list[Event]:
        return [event for event in self.events if event.committed_at < at]

    @property
    def settled(self) -> list[Event]:
        return self.registry(self.delivered_to)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Transactions of any length: the minute of an insert says nothing of its commit's place."""
    size = draw(st.integers(1, 25))
    events = []
    for place in range(size):
        kind = draw(st.sampled_from(sorted(CLASSES_OF)))
        events.append(
            Event(
                draw(st.integers(0, 4)),
                kind,
                draw(st.sampled_from(CLASSES_OF[kind])),
                draw(st.integers(0, DIGEST_MODULUS - 1)),
                place,
            )
        )
    first_at, delivered_to, second_at = sorted(draw(st.integers(0, size)) for _ in range(3))
    return Run(tuple(events), first_at, delivered_to, second_at)


def rows(events: Iterable[Event], *, classes: bool) -> list[Row]:
    return [
        Row(
            event.minute * MINUTE_US,
            event.verdict_class if classes else event.kind,
            Tally(1, event.content),
        )
        for event in events
    ]


def audited(run: Run, settled: Iterable[Event]) -> list[Judgment]:
    return judge(
        registry_readings(rows(run.registry(run.first_at), classes=False)),
        cell_readings(rows(settled, classes=True)),
        registry_readings(rows(run.registry(run.second_at), classes=False)),
    )


def at(judgments: list[Judgment], event: Event) -> Judgment:
    group = GROUP_OF_KIND[event.kind]
    place = (event.minute * MINUTE_US, group)
    return next(j for j in judgments if (j.minute_us, j.group) == place)


@given(runs())
def test_nothing_in_flight_is_ever_called_lost_or_phantom(run: Run) -> None:
    assert {j.verdict for j in audited(run, run.settled)} <= {"equal", "open"}


@given(runs())
def test_a_minute_that_stood_still_is_equal(run: Run) -> None:
    moving = {
        (event.minute * MINUTE_US, GROUP_OF_KIND[event.kind])
        for event in run.events[run.first_at : run.second_at]
    }
    for judgment in audited(run, run.settled):
        still = (judgment.minute_us, judgment.group) not in moving
        assert (judgment.verdict == "equal") == still


@given(runs(), st.data())
def test_every_loss_in_a_minute_that_stood_still_is_found(run: Run, data: st.DataObject) -> None:
    candidates = run.registry(run.first_at)
    assume(candidates)
    lost = data.draw(st.sampled_from(candidates))
    assume(lost.content != 0)
    found = at(audited(run, [e for e in run.settled if e is not lost]), lost)
    assert found.verdict in {"lost", "mixed", "open"}
    assert found.verdict != "open" or found.first != found.second
    if found.verdict == "lost":
        assert found.lost == 1


@given(runs(), st.data())
def test_every_phantom_in_a_minute_that_stood_still_is_found(run: Run, data: st.DataObject) -> None:
    assume(run.settled)
    twice = data.draw(st.sampled_from(run.settled))
    assume(twice.content != 0)
    found = at(audited(run, [*run.settled, twice]), twice)
    assert found.verdict in {"phantom", "mixed", "open"}
    assert found.verdict != "open" or found.first != found.second
    if found.verdict == "phantom":
        assert found.phantom == 1


@given(runs(), st.data())
def test_a_changed_content_is_found_though_the_counts_agree(run: Run, data: st.DataObject) -> None:
    candidates = run.registry(run.first_at)
    assume(candidates)
    changed = data.draw(st.sampled_from(candidates))
    other = Event(
        changed.minute,
        changed.kind,
        changed.verdict_class,
        (changed.content + 1) % DIGEST_MODULUS,
        changed.committed_at,
    )
    judgments = audited(run, [other if e is changed else e for e in run.settled])
    found = at(judgments, changed)
    assert found.verdict == "mixed" or (
        found.verdict == "open" and found.first.count < found.cells.count < found.second.count
    )
    if found.verdict == "mixed":
        assert (found.lost, found.phantom) == (1, 1)


def test_a_loss_is_found_in_an_open_minute_too_when_cells_hold_less_than_was_settled() -> None:
    first: Readings = {(0, "usage"): Tally(5, 50)}
    second: Readings = {(0, "usage"): Tally(9, 90)}
    [judgment] = judge(first, {(0, "usage"): Tally(4, 40)}, second)
    assert (judgment.verdict, judgment.lost, judgment.phantom) == ("lost", 1, 0)


def test_a_registry_that_shrank_meanwhile_proves_nothing() -> None:
    first: Readings = {(0, "usage"): Tally(5, 50)}
    second: Readings = {(0, "usage"): Tally(2, 20)}
    [judgment] = judge(first, {(0, "usage"): Tally(9, 1)}, second)
    assert (judgment.verdict, judgment.lost, judgment.phantom) == ("open", 0, 0)


@pytest.mark.parametrize(
    ("read", "known"),
    [(registry_readings, GROUP_OF_KIND), (cell_readings, GROUP_OF_CLASS)],
)
def test_an_unknown_name_is_refused_and_every_known_one_has_its_group(
    read: object, known: dict[str, str]
) -> None:
    assert callable(read)
    for name, group in known.items():
        assert read([Row(0, name, Tally(1, 1))]) == {(0, group): Tally(1, 1)}
    with pytest.raises(UnknownClassError, match="'mystery' is unknown to this command: upgrade it"):
        read([Row(0, "mystery", Tally(1, 1))])


def judgment(minute: int, verdict: str, second: Tally, group: str = "usage") -> Judgment:
    return Judgment(minute * MINUTE_US, group, verdict, second, second, second)  # type: ignore[arg-type]  # literals widen


def test_a_minute_is_sealed_only_when_all_of_it_is_equal_and_nothing_can_join_it() -> None:
    judgments = [
        judgment(0, "equal", Tally(2, 5)),
        judgment(0, "equal", Tally(1, DIGEST_MODULUS - 1), "conflict"),
        judgment(1, "equal", Tally(1, 1)),
        judgment(1, "open", Tally(1, 1), "canary"),
        judgment(0, "equal", Tally(12, 99), "canary"),
        judgment(2, "lost", Tally(1, 1)),
        judgment(3, "equal", Tally(7, 7)),
    ]
    assert sealable(judgments, 3 * MINUTE_US + MINUTE_US - 1) == {0: Tally(3, 4)}
    assert sealable(judgments, 4 * MINUTE_US) == {0: Tally(3, 4), 3 * MINUTE_US: Tally(7, 7)}


def test_a_sealed_minute_that_says_something_else_today_is_named() -> None:
    sealed = {0: Tally(1, 1), MINUTE_US: Tally(2, 3), 2 * MINUTE_US: Tally(9, 9)}
    today = registry_readings(
        [
            Row(0, "usage", Tally(1, 1)),
            Row(MINUTE_US, "usage", Tally(1, 1)),
            Row(MINUTE_US, "conflict", Tally(2, 2)),
            Row(MINUTE_US, "canary", Tally(12, 7)),
            Row(5 * MINUTE_US, "usage", Tally(1, 1)),
        ]
    )
    assert broken_seals(sealed, today) == [MINUTE_US, 2 * MINUTE_US]


def test_swept_canaries_are_left_out_and_nothing_else() -> None:
    readings = cell_readings(
        [Row(minute * MINUTE_US, name, Tally(1, 1)) for minute in (0, 1) for name in GROUP_OF_CLASS]
    )
    kept = without_swept_canaries(readings, MINUTE_US)
    assert readings.keys() - kept.keys() == {(0, "canary")}


def identities(contents: Iterable[int]) -> list[Identity]:
    return [Identity(f"id-{n}", "usage", "t", f"k{n}", c) for n, c in enumerate(contents)]


def tally(some: Iterable[Identity]) -> Tally:
    total = NOTHING
    for identity in some:
        total = total.plus(Tally(1, identity.content))
    return total


CONTENTS = st.lists(st.integers(1, DIGEST_MODULUS - 1), min_size=1, max_size=30, unique=True)


@settings(deadline=None)
@given(CONTENTS, st.data())
def test_up_to_three_missing_identities_are_named_exactly(
    contents: list[int], data: st.DataObject
) -> None:
    everyone = identities(contents)
    missing = data.draw(st.lists(st.sampled_from(everyone), min_size=1, max_size=3, unique=True))
    held = tally(i for i in everyone if i not in missing)
    named = name_missing(everyone, held)
    assert named.exact
    # Another subset with the same sum would be as good an explanation; random contents have none.
    assert tally(named.identities) == tally(missing)


@settings(deadline=None)
@given(CONTENTS, st.data())
def test_when_at_most_three_are_left_the_missing_ones_are_named_exactly(
    contents: list[int], data: st.DataObject
) -> None:
    everyone = identities(contents)
    left = data.draw(st.lists(st.sampled_from(everyone), max_size=3, unique=True))
    assume(len(left) < len(everyone))
    named = name_missing(everyone, tally(left))
    assert named.exact
    assert tally(named.identities) == tally(i for i in everyone if i not in left)


@settings(deadline=None)
@given(CONTENTS, st.data())
def test_up_to_three_repeated_identities_are_named(
    contents: list[int], data: st.DataObject
) -> None:
    everyone = identities(contents)
    twice = data.draw(st.lists(st.sampled_from(everyone), min_size=1, max_size=3, unique=True))
    named = name_repeated(everyone, tally([*everyone, *twice]))
    assert named.exact
    assert tally(named.identities) == tally(twice)


BITS = [1 << n for n in range(128)]
"""Contents of which no two sets add up to the same."""


@given(st.integers(1, 127), st.data())
def test_any_number_that_follow_each_other_are_named_exactly(
    number: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, 128 - number))
    everyone = identities(data.draw(st.permutations(BITS)))
    skipped = everyone[start : start + number]
    held = tally(i for i in everyone if i not in skipped)
    assert name_missing(everyone, held) == Named(tuple(skipped), exact=True)


@settings(deadline=None)
@given(st.data())
def test_seven_of_a_quiet_minute_are_named_exactly_wherever_they_are(data: st.DataObject) -> None:
    everyone = identities(BITS[:30])
    missing = data.draw(st.lists(st.sampled_from(everyone), min_size=7, max_size=7, unique=True))
    named = name_missing(everyone, tally(i for i in everyone if i not in missing))
    assert named.exact
    assert set(named.identities) == set(missing)


def test_all_but_two_of_a_busy_minute_are_named_exactly() -> None:
    everyone = identities(BITS)
    left = [everyone[5], everyone[90]]
    missing = [i for i in everyone if i not in left]
    assert name_missing(everyone, tally(left)) == Named(tuple(missing), exact=True)


def test_halves_that_share_an_identity_are_no_answer() -> None:
    # 1 + 2 and 2 + 4 would add up to it, with one of them twice.
    everyone = identities([1, 2, 4, 100, 200, 400, 800, 1600])
    total = tally(everyone)
    held = Tally(total.count - 4, (total.digest - (1 + 2 + 2 + 4)) % DIGEST_MODULUS)
    assert not name_missing(everyone, held).exact


def test_many_scattered_over_a_busy_minute_are_listed_as_candidates() -> None:
    everyone = identities(BITS)
    missing = everyone[::16]
    named = name_missing(everyone, tally(i for i in everyone if i not in missing))
    assert named == Named(tuple(everyone), exact=False)


def test_a_search_that_would_take_minutes_is_not_started() -> None:
    everyone = identities(n * n for n in range(1, SEARCH_WIDTH_MAX + 2))
    missing = [everyone[0], everyone[10], everyone[3_000]]
    assert not name_missing(everyone, tally(i for i in everyone if i not in missing)).exact
    assert name_missing(everyone, tally(everyone[2:])).exact


def test_nothing_missing_names_nobody() -> None:
    everyone = identities([1, 2])
    assert name_missing(everyone, tally(everyone)) == Named((), exact=False)


def test_a_phantom_that_is_no_copy_names_nobody() -> None:
    everyone = identities([1, 2])
    assert name_repeated(everyone, Tally(3, 99)) == Named((), exact=False)
    assert name_repeated(everyone, Tally(9, 99)) == Named((), exact=False)


def test_an_empty_cell_with_a_digest_is_not_called_exact() -> None:
    everyone = identities([1, 2])
    assert name_missing(everyone, Tally(0, 7)) == Named(tuple(everyone), exact=False)


def test_two_missing_that_no_pair_explains_are_candidates() -> None:
    everyone = identities([1, 2, 4, 8, 16, 32])
    assert name_missing(everyone, Tally(4, 1)) == Named(tuple(everyone), exact=False)
    assert name_missing(everyone, Tally(3, 1)) == Named(tuple(everyone), exact=False)
