from __future__ import annotations

from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from schemas.contracts import NAMES, contract, problems
from schemas.errors import ContractMissingError
from streams.core import output
from streams.core.dead_letter import DeadMeterEvent, record_of
from streams.core.fact import Series
from streams.core.instant import HOUR_US
from streams.core.meters_file import parse
from streams.core.verdict import Accepted, Dead, Review

EVENT: dict[str, Any] = {
    "v": 1,
    "type": "usage",
    "source": "shop",
    "event_id": "91692b97-accf-4822-409c-5b43d9232732",
    "tenant_id": "acme",
    "event_key": "k1",
    "kafka_key": "acme",
    "shard": 0,
    "metric": "api_calls",
    "quantity": "1.5",
    "occurred_at": "2026-11-29T15:00:00.000000Z",
    "received_at": "2026-11-29T15:01:09.817658Z",
    "content": "0485cdb1be2409b2b3e6f9c1232dd421",
    "content_version": 1,
    "attributes": {},
}
RAW = msgspec.json.encode(EVENT)


@pytest.mark.parametrize("name", ["shared", *NAMES])
def test_every_contract_is_a_schema_that_explains_itself(name: str) -> None:
    found = contract(name)
    Draft202012Validator.check_schema(dict(found))
    assert found["$id"] == f"urn:tailrace:{name}:v1"
    assert found["title"]
    assert name == "shared" or found["description"]


def test_an_unknown_contract_is_refused_by_name() -> None:
    with pytest.raises(ContractMissingError, match=r"schemas/usage_event/v2\.json"):
        contract("usage_event", 2)


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("v", 2, "$.v"),
        ("type", "canary", "$.type"),
        ("event_id", "91692B97-ACCF-4822-409C-5B43D9232732", "$.event_id"),
        ("content", "0485", "$.content"),
        ("quantity", 1.5, "$.quantity"),
        ("quantity", "1.50", "$.quantity"),
        ("quantity", "-1", "$.quantity"),
        ("quantity", "1e3", "$.quantity"),
        ("quantity", "1000000000000000", "$.quantity"),
        ("occurred_at", "2026-11-29T15:00:00Z", "$.occurred_at"),
        ("received_at", "2026-11-29T15:00:00.000000+00:00", "$.received_at"),
        ("tenant_id", "acme#1", "$.tenant_id"),
        ("shard", -1, "$.shard"),
        ("attributes", [], "$.attributes"),
        ("unknown", 1, "$"),
    ],
)
def test_a_broken_event_is_named_by_its_path(field: str, value: object, path: str) -> None:
    assert problems("usage_event", EVENT) == []
    found = problems("usage_event", EVENT | {field: value})
    assert any(problem.startswith(f"{path}: ") for problem in found)


SERIES = Series("acme", "api_calls", 3, 0, HOUR_US, 0)
METER = parse("[meters.api_calls]\nscale = 1").wanted[0][0]


def decoded(raw: bytes) -> object:
    return msgspec.json.decode(raw)


def test_an_accepted_record_keeps_its_contract() -> None:
    raw = output.accepted(Accepted(SERIES, 15, METER), 3, 1_000, RAW)
    assert problems("accepted", decoded(raw)) == []


@pytest.mark.parametrize(
    "reason", ["late", "early", "conflict", "beyond_horizon", "too_large", "correction_limit"]
)
def test_a_review_record_keeps_its_contract(reason: Any) -> None:
    raw = output.review(Review(reason, "30 h late", SERIES, 15), "usage.events", 3, 7, RAW)
    assert problems("review", decoded(raw)) == []


@pytest.mark.parametrize("value", [None, b"", b"{", RAW, b"\xff" * 100_000])
@pytest.mark.parametrize("key", [None, b"", b"acme"])
@pytest.mark.parametrize("dead", [Dead("not JSON", "$"), Dead("it killed", "$", "unread")])
def test_a_dead_letter_keeps_its_contract(
    dead: Dead, key: bytes | None, value: bytes | None
) -> None:
    raw = output.dead_letter(dead, "usage.events", 3, 7, key, value)
    assert problems("dead_letter", decoded(raw)) == []


DETAIL = """{"customer": "cus_1", "event_name": "x", "value": "5", "timestamp_s": 1,
    "generation": 1, "identifier": "m1:x", "possibly_executed": false, "first_attempt_at": null,
    "deadline_at": null, "entries_total": 0, "entries": [], "attempts_total": 0, "attempts": []}"""


@pytest.mark.parametrize("reason", ["refused", "exhausted", "ambiguous"])
@pytest.mark.parametrize("tenant", ["acme", None])
def test_a_dead_meter_event_keeps_its_contract(reason: str, tenant: str | None) -> None:
    dead = DeadMeterEvent(7, reason, 9, tenant, "x", "-5", 0, 60_000_000, 61_000_000, DETAIL)
    letter = msgspec.json.decode(record_of(dead)[1], type=dict[str, Any])
    assert problems("dead_letter", letter) == []
    assert problems("dead_letter", letter | {"kind": "malformed"})
    assert problems("dead_letter", letter | {"next": ""})


def meters(settings: dict[str, object], name: str = "api_calls") -> dict[str, object]:
    return {"meters": {name: settings}}


@pytest.mark.parametrize(
    ("settings", "valid"),
    [
        ({}, True),
        (
            {
                "event_name": "calls",
                "window": "minute",
                "publish": "window",
                "scale": 12,
                "skew_max": "90s",
                "close_delay": "5m",
                "carry": "next-period",
                "effective_from": "2026-12-01T00:00:00Z",
                "aggregation": "sum",
            },
            True,
        ),
        ({"aggregation": "count", "publish": "event"}, True),
        ({"aggregation": "count"}, False),
        ({"aggregation": "last"}, False),
        ({"window": "week"}, False),
        ({"publish": "now"}, False),
        ({"scale": 13}, False),
        ({"scale": -1}, False),
        ({"scale": "2"}, False),
        ({"skew_max": "24"}, False),
        ({"skew_max": "1.5h"}, False),
        ({"carry": "never"}, False),
        ({"event_name": ""}, False),
        ({"effective_from": "2026-12-01"}, False),
        ({"effective_from": "2026-12-01T00:00:00"}, False),
        ({"windw": "hour"}, False),
    ],
)
def test_the_meters_schema_and_the_reader_agree(settings: dict[str, object], valid: bool) -> None:
    text = "\n".join(
        [
            "[meters.api_calls]",
            *(f"{k} = {msgspec.json.encode(v).decode()}" for k, v in settings.items()),
        ]
    )
    assert (problems("meters", meters(settings)) == []) is valid
    assert (parse(text).problems == ()) is valid


@pytest.mark.parametrize("name", ["", "tailrace.canary", "a b", "x" * 101, "é"])
def test_a_meter_has_a_name_that_fits_everywhere(name: str) -> None:
    assert problems("meters", meters({}, name))
    assert parse(f'[meters."{name}"]').problems
