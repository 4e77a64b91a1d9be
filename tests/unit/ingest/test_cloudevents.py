"""A CloudEvent in structured mode is the same usage event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.ingest.cloudevents import usage_of
from streams.ingest.outcome import Asked, Refused
from tests.unit.ingest.producer import producer

EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "1042",
    "source": "/shop",
    "type": "api_calls",
    "subject": "acme",
    "time": "2026-11-29T15:01:09.817658Z",
    "data": {"quantity": 3},
}


def asked(**changed: Any) -> Asked:
    event = usage_of("$", {**EVENT, **changed})
    assert isinstance(event, Asked)
    return event


def test_it_is_the_event_that_it_tells_of() -> None:
    assert asked(data={"quantity": "1.5", "attributes": {"a": 1}}).item == {
        "tenant_id": "acme",
        "metric": "api_calls",
        "quantity": "1.5",
        "event_key": '["/shop","1042"]',
        "occurred_at": "2026-11-29T15:01:09.817658Z",
        "attributes": {"a": 1},
    }


def test_the_data_may_name_the_metric_where_the_type_is_another_word() -> None:
    given = {"type": "com.acme.used", "data": {"quantity": 1, "metric": "exports"}}
    assert asked(**given).item["metric"] == "exports"
    assert asked(data={"quantity": 1, "metric": None}).item["metric"] == "api_calls"


@given(
    st.tuples(st.text(min_size=1), st.text(min_size=1)),
    st.tuples(st.text(min_size=1), st.text(min_size=1)),
)
def test_no_two_sources_and_ids_share_a_key(one: tuple[str, str], two: tuple[str, str]) -> None:
    keys = [asked(source=source, id=name).item["event_key"] for source, name in (one, two)]
    assert (keys[0] == keys[1]) == (one == two)


@pytest.mark.parametrize(
    ("time", "instant"),
    [
        ("2026-11-29T15:01:09.817658999Z", "2026-11-29T15:01:09.817658Z"),
        ("2026-11-29t15:01:09z", "2026-11-29T15:01:09Z"),
        ("2026-11-29T15:01:09.1+05:30", "2026-11-29T15:01:09.1+05:30"),
        (None, None),
    ],
)
def test_a_time_is_cut_to_the_microsecond(time: str | None, instant: str | None) -> None:
    assert asked(time=time).item["occurred_at"] == instant


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"specversion": "0.3"}, "$.specversion"),
        ({"id": ""}, "$.id"),
        ({"source": None}, "$.source"),
        ({"type": 7}, "$.type"),
        ({"subject": None}, "$.subject"),
        ({"time": "yesterday"}, "$.time"),
        ({"time": 7}, "$.time"),
        ({"data": [1]}, "$.data"),
        ({"data": None}, "$.data"),
        ({"data": {"quantity": 1, "tenant_id": "beta"}}, "$.data.tenant_id"),
        ({"data": {"quantity": 1, "on_conflict": "raise"}}, "$.data.on_conflict"),
        ({"data_base64": "AA=="}, "$.data_base64"),
        ({"datacontenttype": "text/xml"}, "$.datacontenttype"),
    ],
)
def test_what_breaks_a_rule_is_named_in_its_own_words(changed: dict[str, Any], path: str) -> None:
    event = usage_of("$", {**EVENT, **changed})
    assert isinstance(event, Refused)
    assert event.problem.path == path


def test_rules_of_usage_are_told_in_the_words_of_the_event(tmp_path: Path) -> None:
    shop = producer(tmp_path)
    kind = "application/cloudevents+json"
    assert shop.post(EVENT, Content_Type=kind).status_code == 201
    assert shop.post(EVENT, Content_Type=kind).status_code == 200
    bad = shop.post({**EVENT, "id": "2", "data": {"quantity": -1}}, Content_Type=kind)
    assert bad.json()["problems"][0]["path"] == "$.data.quantity"
    foreign = shop.post({**EVENT, "subject": "gamma"}, Content_Type=kind)
    assert foreign.status_code == 403
    assert foreign.json()["problems"][0]["path"] == "$.subject"


def test_one_is_no_batch_and_a_batch_is_not_one(tmp_path: Path) -> None:
    shop = producer(tmp_path)
    one, batch = "application/cloudevents+json", "application/cloudevents-batch+json"
    assert shop.post([EVENT], Content_Type=one).status_code == 400
    assert shop.post(EVENT, Content_Type=batch).status_code == 400
    answer = shop.post([EVENT, {**EVENT, "id": "2"}], Content_Type=batch)
    assert answer.status_code == 201
    assert answer.json()["counts"]["recorded"] == 2
