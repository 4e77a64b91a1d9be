"""Instants at every edge of the calendar and of the rules, from one data file."""

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streams.core.catalogue import Catalogue
from streams.core.instant import DAY_US, FIRST_US, HOUR_US, LAST_US, MINUTE_US, to_us, wire_text
from streams.core.window import WINDOW_LENGTHS_US, assign
from tests.support.events import Partition, log_of, meter, usage

_EDGES = msgspec.json.decode((Path(__file__).parents[2] / "data/time_edges.json").read_bytes())
_BOOK = Catalogue((meter("api_calls"),), read_at_us=LAST_US + DAY_US)


@pytest.mark.parametrize("edge", _EDGES["instants"], ids=lambda edge: edge["name"])
def test_an_instant_has_one_number_one_text_and_its_windows(edge: dict[str, Any]) -> None:
    assert to_us(datetime.fromisoformat(edge["wire"])) == edge["us"]
    assert wire_text(edge["us"]) == edge["wire"]
    for name, length_us in WINDOW_LENGTHS_US.items():
        start_us, end_us = assign(edge["us"], length_us)
        assert wire_text(start_us) == edge[name]
        assert start_us <= edge["us"] < end_us
        assert end_us - start_us == length_us
        assert len(wire_text(end_us)) == 27


@pytest.mark.parametrize("edge", _EDGES["verdicts"], ids=lambda edge: edge["name"])
def test_a_bound_belongs_to_the_side_it_says(edge: dict[str, Any]) -> None:
    occurred, received = edge["occurred_at"], edge["received_at"]
    content = usage(occurred_at=occurred, received_at=received)
    partition = Partition(catalogue=_BOOK).run(log_of([content]))
    (name,) = partition.counts
    if name == "review":
        ((_, fact),) = partition.facts
        name = getattr(fact, "reason")  # noqa: B009 - the union of facts has no common field
    assert name == edge["verdict"]


def test_lengths_are_what_their_names_say() -> None:
    assert (MINUTE_US, HOUR_US, DAY_US) == (60_000_000, 3_600_000_000, 86_400_000_000)
    assert wire_text(FIRST_US) == "0001-01-01T00:00:00.000000Z"
    assert wire_text(LAST_US) == "9999-12-31T00:00:00.000000Z"
