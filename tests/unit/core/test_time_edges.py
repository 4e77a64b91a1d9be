"""Instants at every edge of the calendar and of the rules, from one data file."""

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streams.core.catalogue import Catalogue
from streams.core.edges import CutoffEdge, DateEdge, Edges, PeriodEdge, read_edges, try_edges
from streams.core.instant import DAY_US, FIRST_US, HOUR_US, LAST_US, MINUTE_US, to_us, wire_text
from streams.core.window import WINDOW_LENGTHS_US, assign
from tests.support.events import Partition, log_of, meter, record, usage

_RAW = (Path(__file__).parents[2] / "data/time_edges.json").read_bytes()
_EDGES = msgspec.json.decode(_RAW)
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
    log = log_of([content])
    if "logged_at" in edge:
        logged_us = to_us(datetime.fromisoformat(edge["logged_at"]))
        log = [record(content, timestamp_ms=logged_us // 1000)]
    partition = Partition(catalogue=_BOOK).run(log)
    (name,) = partition.counts
    if name == "review":
        ((_, fact),) = partition.facts
        name = getattr(fact, "reason")  # noqa: B009 - the union of facts has no common field
    assert name == edge["verdict"]


def test_lengths_are_what_their_names_say() -> None:
    assert (MINUTE_US, HOUR_US, DAY_US) == (60_000_000, 3_600_000_000, 86_400_000_000)
    assert wire_text(FIRST_US) == "0001-01-01T00:00:00.000000Z"
    assert wire_text(LAST_US) == "9999-12-31T00:00:00.000000Z"


# -- the same file under anybody's catalogue ------------------------------------------------------

FOR_ALL_TIME_US = LAST_US + 2 * DAY_US
MANY = (
    meter("api_calls"),
    meter("api_calls", version=2, window_us=DAY_US, effective_from_us=40_000 * DAY_US),
    meter("storage", window_us=MINUTE_US, skew_max_us=HOUR_US),
    meter("jobs", publish="event", aggregation="count"),
    meter("new", effective_from_us=22_000 * DAY_US),
)


def tried(edges: Edges, *meters: Any) -> list[Any]:
    return list(try_edges(edges, Catalogue(meters, read_at_us=FOR_ALL_TIME_US)))


@pytest.mark.parametrize("wanted", MANY, ids=lambda m: f"{m.metric} v{m.version}")
def test_every_edge_is_as_expected_under_every_kind_of_meter(wanted: Any) -> None:
    found = tried(read_edges(_RAW), wanted._replace(version=1, effective_from_us=0), wanted)
    assert [one for one in found if not one.right] == []
    assert {one.found for one in found} >= {"accepted", "early", "late", "dead", "send", "too old"}


def test_versions_of_a_metric_judge_their_own_time() -> None:
    found = tried(read_edges(_RAW), *MANY)
    assert [one for one in found if not one.right] == []
    windows = {
        (one.metric, one.start, one.end) for one in found if one.edge == "no leap day in 2100"
    }
    day = "2100-03-01T00:00:00.000000Z"
    assert ("api_calls", day, "2100-03-02T00:00:00.000000Z") in windows
    assert ("storage", day, "2100-03-01T00:01:00.000000Z") in windows


def test_what_depends_on_a_cutoff_is_not_expected_of_another_one() -> None:
    found = tried(read_edges(_RAW), meter("m", skew_max_us=HOUR_US))
    (late,) = [one for one in found if one.edge == "24 h late exactly"]
    assert (late.found, late.expected, late.right) == ("late", None, True)
    (bound,) = [one for one in found if one.edge == "at the skew cutoff exactly"]
    assert (bound.found, bound.expected) == ("accepted", "accepted")


def test_a_catalogue_that_is_not_complete_says_that_it_waits() -> None:
    catalogue = Catalogue((meter("m"),), read_at_us=0)
    found = list(try_edges(read_edges(_RAW), catalogue))
    waits = [one for one in found if one.edge == "at once"]
    assert [(one.found, one.right) for one in waits] == [("waits", False)]


def test_an_edge_that_is_expected_wrongly_is_said_to_be_wrong() -> None:
    """The check checks: each kind of edge, planted wrong, is found."""
    edges = read_edges(_RAW)
    period, date, cutoff = edges.periods[0], edges.dates[0], edges.cutoffs[0]
    instant, verdict = edges.instants[0], edges.verdicts[0]
    wrong = Edges(
        edges.margin,
        [msgspec.structs.replace(instant, hour=instant.minute)],
        [msgspec.structs.replace(verdict, verdict="late")],
        [CutoffEdge(cutoff.name, cutoff.occurred_at, cutoff.plus_us, "late")],
        [
            msgspec.structs.replace(period, deadline=period.period_end),
            PeriodEdge(**msgspec.structs.asdict(period) | {"period_end": period.period_start}),
        ],
        [DateEdge(date.name, date.timestamp, date.now, "wait")],
    )
    found = tried(wrong, meter("m"))
    assert len(found) == 6
    assert not any(one.right for one in found)


def test_deadlines_are_computed_with_the_margin_of_the_file() -> None:
    edges = msgspec.structs.replace(read_edges(_RAW), margin="16m")
    found = list(tried(edges, meter("m")))[: len(edges.periods)]
    assert not any(one.right for one in found)


def test_a_file_of_another_shape_is_refused_by_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.dates\[0\]\.may"):
        read_edges(_RAW.replace(b'"may": "send"', b'"may": "perhaps"'))
