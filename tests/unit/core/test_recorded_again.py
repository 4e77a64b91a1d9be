"""Identities recorded again after a restore: one verdict each, in the minute of the first."""

from collections.abc import Sequence

import pytest

from streams.core.audit import NOTHING, Group, Judgment, Row, Tally, judge
from streams.core.audit import cell_readings as cells_of
from streams.core.audit import registry_readings as registry_of
from streams.core.instant import MINUTE_US
from streams.core.recorded_again import MINUTES_MAX, perhaps_again, without_recorded_again

CLASS = {"usage": "accepted", "conflict": "conflict", "canary": "canary"}
Side = Sequence[tuple[int, int]]
"""Minutes and contents."""


def tally(contents: Sequence[int]) -> Tally:
    total = NOTHING
    for content in contents:
        total = total.plus(Tally(1, content))
    return total


def judged(registry: Side, cells: Side, group: Group = "usage") -> list[Judgment]:
    """What an audit makes of a registry that stands still."""
    known = registry_of(Row(m * MINUTE_US, group, Tally(1, c)) for m, c in registry)
    held = cells_of(Row(m * MINUTE_US, CLASS[group], Tally(1, c)) for m, c in cells)
    return judge(known, held, known)


@pytest.mark.parametrize("group", ["usage", "conflict"])
def test_what_is_too_many_in_one_minute_and_missing_in_another_was_recorded_again(
    group: Group,
) -> None:
    before = judged([(1, 7), (9, 11), (9, 12), (9, 30)], [(1, 7), (2, 11), (3, 12), (9, 30)], group)
    assert {j.verdict for j in before} == {"equal", "phantom", "lost"}
    after, again = without_recorded_again(before)
    assert again == 2
    assert [(j.minute_us, j.verdict) for j in after] == [(j.minute_us, "equal") for j in before]
    assert [j.second for j in after] == [j.second for j in before]


def test_another_content_is_lost_and_the_other_one_a_phantom() -> None:
    before = judged([(9, 11), (9, 13)], [(2, 11), (2, 12)])
    assert without_recorded_again(before) == (before, 0)


def test_what_nobody_records_again_stays_a_phantom() -> None:
    before = judged([(9, 11), (9, 12)], [(2, 11), (3, 12), (4, 50)])
    after, again = without_recorded_again(before)
    assert again == 2
    verdicts = {j.minute_us // MINUTE_US: j.verdict for j in after}
    assert verdicts == {2: "equal", 3: "equal", 4: "phantom", 9: "equal"}


def test_what_is_lost_besides_stays_lost() -> None:
    before = judged([(8, 40), (9, 11)], [(2, 11)])
    after, again = without_recorded_again(before)
    assert (again, [j.verdict for j in after]) == (1, ["equal", "lost", "equal"])


def test_the_greatest_run_is_taken() -> None:
    before = judged([(9, 1), (9, 2), (9, 3)], [(2, 1), (3, 2), (4, 3)])
    _, again = without_recorded_again(before)
    assert again == 3


def test_usage_is_no_conflict_and_a_canary_is_neither() -> None:
    for over, short in (("usage", "conflict"), ("canary", "canary")):
        before = [*judged([], [(2, 11)], over), *judged([(9, 11)], [], short)]  # type: ignore[arg-type]
        assert without_recorded_again(before) == (before, 0)


def test_a_minute_that_still_moves_is_open_not_equal() -> None:
    (over, short) = judged([(9, 11)], [(2, 11)])
    moving = short._replace(first=NOTHING)
    after, again = without_recorded_again([over, moving])
    assert (again, [j.verdict for j in after]) == (1, ["equal", "open"])


def test_with_too_many_minutes_nothing_is_recognised() -> None:
    many = [(minute, minute) for minute in range(MINUTES_MAX + 1)]
    before = judged([(MINUTES_MAX + 5, content) for _, content in many], many)
    assert without_recorded_again(before) == (before, 0)


def test_a_part_recorded_again_is_not_proven_and_takes_nothing_off_what_is_lost() -> None:
    before = judged([(9, 11), (9, 13)], [(2, 11), (2, 12), (3, 13), (3, 14)])
    assert without_recorded_again(before) == (before, 0)
    assert perhaps_again(before) == 2
    assert sum(judgment.lost for judgment in before) == 2


def test_what_is_lost_beyond_the_phantoms_is_lost_whatever_was_recorded_again() -> None:
    before = judged([(8, 11), (8, 40), (9, 41), (9, 42)], [(2, 11), (2, 12), (3, 13)])
    assert (perhaps_again(before), sum(judgment.lost for judgment in before)) == (3, 4)


def test_nothing_is_recorded_again_before_its_first_verdict_or_as_something_else() -> None:
    assert perhaps_again(judged([(2, 11)], [(9, 12), (9, 13)])) == 0
    usage, conflict = judged([(9, 11)], []), judged([], [(2, 12)], "conflict")
    assert perhaps_again([*conflict, *usage]) == 0
    assert perhaps_again(judged([(9, 11)], [(2, 12)], "canary")) == 0
    assert perhaps_again(judged([(2, 11), (9, 12)], [(2, 12)])) == 0
