"""What is handed over, and what is not: the decision before a chunk."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from streams.engine.hand_over import HandOver
from streams.engine.log import LogId, Record
from streams.engine.poison import Isolation, Mark, Whole

LOG = LogId("usage.events", "topic-id", 3)
KILLER = Record(10, 0, b"k", b"v")


@pytest.fixture
def told() -> list[tuple[object, ...]]:
    return []


def plan(told: list[tuple[object, ...]], mark: Mark | None) -> Any:
    """What is planned for a partition with that mark, at offset 10."""
    group = SimpleNamespace(hold=lambda _assigned, reason: told.append(("held", reason)))
    over = SimpleNamespace(group=group, given_up=lambda *record: told.append(record))
    assigned = SimpleNamespace(isolation=Isolation(mark))
    table = SimpleNamespace(applied=9, log=LOG)
    return HandOver._plan(cast("Any", over), cast("Any", assigned), cast("Any", table), [KILLER])


def test_a_record_that_is_given_up_is_told_before_its_partition_is_held(
    told: list[tuple[object, ...]],
) -> None:
    """Told afterwards, it could be taken for one that another hold is over with."""
    assert plan(told, Mark(9, 3, 99, trying=10, tries=4)) is None
    (given_up, held) = told
    assert given_up[:2] == (LOG, KILLER)
    assert "offset 10 ended 4 workers" in str(given_up[2])
    assert held == ("held", given_up[2])


def test_a_healthy_record_is_told_to_nobody(told: list[tuple[object, ...]]) -> None:
    assert isinstance(plan(told, None), Whole)
    assert told == []


def test_a_record_whose_decision_did_not_help_is_held_without_asking_for_another(
    told: list[tuple[object, ...]],
) -> None:
    """Noted, it would go on at once: its decision stands for ever."""
    assert plan(told, Mark(9, 3, 99, trying=10, tries=4, decided=True)) is None
    ((what, reason),) = told
    assert what == "held"
    assert "even after it was decided to skip it" in str(reason)
