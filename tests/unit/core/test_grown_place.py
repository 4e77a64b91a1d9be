"""Records of a partition whose topic grew: at home by the count of their time, and then only."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from streams.core.admission import decide
from streams.core.decided import Decided, Hold, Place, _never_elsewhere
from streams.core.fact import CanaryFact
from tests.support.events import (
    CATALOGUE,
    Wire,
    canary,
    conflict,
    correction,
    log_of,
    record,
    usage,
)

SETTLED_AT = 2
STAYED, LEFT, FOREIGN = "stayed", "left", "foreign"
"""Tenants: at home here by both counts, by the first alone, and by none."""
HERE, THERE = 1, 5


def home(key: bytes) -> int:
    return HERE if key.decode() == STAYED else THERE


def home_before(key: bytes, offset: int) -> int:
    assert offset < SETTLED_AT, "asked of a record of now"
    return 0 if key.decode() == FOREIGN else HERE


PLACE = Place(
    "usage.events",
    HERE,
    lambda ids: [None] * len(ids),
    home,
    {},
    -1,
    settled_at=SETTLED_AT,
    home_before=home_before,
    origins=frozenset({HERE}),
)


def judged(*contents: Wire, place: Place = PLACE) -> Decided:
    return decide(log_of(contents), place, CATALOGUE, fresh=True)


def of(tenant: str, key: str = "u") -> Wire:
    return usage(f"{tenant}-{key}", tenant_id=tenant)


def test_a_record_from_before_is_at_home_where_its_key_was_then() -> None:
    decided = judged(of(LEFT), of(STAYED), of(STAYED, "again"))
    assert (decided.stop, decided.counts) == (None, {"accepted": 3})


def test_a_key_that_has_left_is_astray_from_the_boundary_on() -> None:
    decided = judged(of(LEFT), of(STAYED), of(LEFT, "late"))
    assert isinstance(decided.stop, Hold)
    assert (decided.stop.offset, decided.stop.by_record, decided.last) == (SETTLED_AT, True, 1)
    assert "has not noticed that the topic grew" in decided.stop.reason
    assert "metering.reemit" in decided.stop.reason
    assert decided.counts == {"accepted": 2}


def test_a_key_of_neither_count_is_astray_before_the_boundary_too() -> None:
    decided = judged(of(STAYED), of(FOREIGN))
    assert isinstance(decided.stop, Hold)
    assert (decided.stop.offset, decided.last) == (1, 0)


@pytest.mark.parametrize(
    "content",
    [correction(of(LEFT), "-1"), conflict(of(LEFT)), canary(partition=HERE)],
    ids=["correction", "conflict", "canary"],
)
def test_nothing_of_a_key_that_has_left_is_decided_behind_the_boundary(content: Wire) -> None:
    before = judged(content)
    assert before.stop is None
    behind = decide([record(content, SETTLED_AT)], PLACE, CATALOGUE, fresh=True)
    assert isinstance(behind.stop, Hold)
    assert (behind.stop.offset, behind.last) == (SETTLED_AT, SETTLED_AT - 1)


def test_a_topic_that_never_grew_is_never_asked_what_was_before() -> None:
    plain = Place("usage.events", HERE, PLACE.lookup, home, {}, -1)
    assert judged(of(STAYED), place=plain).stop is None
    assert plain.home_before is _never_elsewhere
    with pytest.raises(LookupError, match="b'stayed' at 7: the topic never had another partition"):
        plain.home_before(STAYED.encode(), 7)


# -- canaries --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrived:
    """A canary of a partition that arrives on the new one."""

    named: int
    origins: Any = frozenset({HERE, THERE})

    def judged(self) -> Decided:
        place = replace(PLACE, partition=THERE, settled_at=0, origins=self.origins)
        content = record(canary(9, partition=self.named), 3)
        return decide([content], place, CATALOGUE, fresh=True)


@pytest.mark.parametrize("named", [HERE, THERE])
def test_a_canary_proves_the_partition_it_reaches_if_its_key_came_from_where_it_says(
    named: int,
) -> None:
    decided = Arrived(named).judged()
    assert decided.counts == {"canary": 1}
    [(_, fact)] = decided.facts
    assert isinstance(fact, CanaryFact)
    assert fact.partition == THERE


@pytest.mark.parametrize(
    "arrived", [Arrived(0), Arrived(4), Arrived(HERE, origins=()), Arrived(9)], ids=str
)
def test_a_canary_of_any_other_partition_proves_nothing(arrived: Arrived) -> None:
    decided = arrived.judged()
    assert decided.counts == {"dead": 1}
    assert not any(isinstance(fact, CanaryFact) for _, fact in decided.facts)
