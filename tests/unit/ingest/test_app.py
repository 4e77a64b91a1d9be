"""One call: its key, its body, its answer; by the HTTP that a producer sees."""

from __future__ import annotations

import re
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from streams.adapters.metrics import exposition
from streams.ingest.keys import add
from tests.unit.ingest.producer import EVENT, Producer, producer, unavailable

CONTRACT = msgspec.json.decode(files("schemas").joinpath("ingest", "v1.json").read_bytes())


@pytest.fixture
def shop(tmp_path: Path) -> Producer:
    return producer(tmp_path)


def told(answer: Any) -> Any:
    """The document, if it is what the contract says of its status."""
    responses = CONTRACT["paths"]["/v1/usage"]["post"]["responses"]
    schema = responses[str(answer.status_code)]["content"]["application/json"]["schema"]
    document = msgspec.json.decode(answer.content)
    validator = Draft202012Validator({**schema, "components": CONTRACT["components"]})
    assert [error.message for error in validator.iter_errors(document)] == []
    return document


def test_a_first_event_is_recorded_and_its_copy_gets_the_first_result(shop: Producer) -> None:
    first, again = shop.post(EVENT), shop.post(EVENT)
    assert (first.status_code, again.status_code) == (201, 200)
    assert told(first) == {**told(again), "status": "recorded"}
    assert told(again)["status"] == "duplicate"


def test_other_content_under_a_known_key_gets_both_digests(shop: Producer) -> None:
    shop.post(EVENT)
    answer = shop.post({**EVENT, "quantity": 4})
    conflict = told(answer)["conflict"]
    assert answer.status_code == 409
    assert conflict["content"] != conflict["first_content"]
    assert conflict["parked"] == f"{told(answer)['event_id']}:{conflict['content']}"


def test_what_breaks_a_rule_is_named_and_the_others_are_recorded(shop: Producer) -> None:
    bad = {**EVENT, "event_key": "k2", "quantity": -1}
    answer = shop.post([EVENT, bad, 7, {**EVENT, "event_key": "k3", "on_conflict": "raise"}, EVENT])
    document = told(answer)
    assert answer.status_code == 422
    assert [each["status"] for each in document["results"]] == [
        "recorded", "invalid", "invalid", "invalid", "duplicate",
    ]  # fmt: skip
    paths = [each["problems"][0]["path"] for each in document["results"][1:4]]
    assert paths == ["$[1].quantity", "$[2]", "$[3].on_conflict"]
    assert [each["index"] for each in document["results"]] == [0, 1, 2, 3, 4]
    assert document["counts"] == {
        "conflict": 0, "duplicate": 1, "forbidden": 0, "invalid": 3, "recorded": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("quantities", "status"),
    [((3,), 200), ((3, 5), 409), ((3, -1, 5), 422), ((3, -1, 5, None), 403)],
)
def test_a_list_has_the_status_of_its_gravest_event(
    shop: Producer, quantities: tuple[int | None, ...], status: int
) -> None:
    shop.post(EVENT)
    events = [
        {**EVENT, "quantity": each} if each is not None else {**EVENT, "tenant_id": "gamma"}
        for each in quantities
    ]
    answer = shop.post(events)
    assert answer.status_code == status
    assert len(told(answer)["results"]) == len(quantities)


def test_a_key_records_for_its_tenants_and_for_no_other(shop: Producer) -> None:
    answer = shop.post([{**EVENT, "tenant_id": each} for each in ("acme", "gamma", "beta")])
    assert answer.status_code == 403
    assert [each["status"] for each in told(answer)["results"]] == [
        "recorded", "forbidden", "recorded",
    ]  # fmt: skip
    assert [asked.item["tenant_id"] for asked in shop.registry.asked] == ["acme", "beta"]
    assert shop.post({**EVENT, "tenant_id": "gamma"}).status_code == 403


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer trk_wrong", "Basic c2hvcDp4", "Bearer " + "x" * 5_000],
)
def test_without_a_known_key_nothing_is_looked_at(shop: Producer, authorization: str) -> None:
    answer = shop.post(b"not even JSON", Authorization=authorization)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    told(answer)


def test_a_key_that_is_taken_back_ends_at_once(shop: Producer) -> None:
    second = add(shop.keys_file, "other", ["beta"])
    assert (
        shop.post({**EVENT, "tenant_id": "beta"}, Authorization=f"bearer {second}").status_code
        == 201
    )
    shop.keys_file.write_text(shop.keys_file.read_text().split("\n\n")[1])
    assert shop.post(EVENT).status_code == 401
    assert (
        shop.post({**EVENT, "tenant_id": "beta"}, Authorization=f"Bearer {second}").status_code
        == 200
    )


@pytest.mark.parametrize("text", ["keys = 1", "[keys.shop", None])
def test_where_keys_cannot_be_read_nobody_is_let_in_and_nobody_told_no(
    shop: Producer, text: str | None
) -> None:
    assert shop.post(EVENT).status_code == 201
    shop.keys_file.unlink()
    if text is not None:
        shop.keys_file.write_text(text)
    answer = shop.post(EVENT)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "30"
    assert str(shop.keys_file) not in answer.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"{", 400), (b"\xff", 400), (b'"\\ud800"', 400), (b"[" * 99_999, 400),
        (b"1e999999999999999999999", 400), (b"9" * 5_000, 400), (b"NaN", 400), (b"[]", 400),
        (b"7", 422), (b"null", 422), (b'"text"', 422), (b"[[]]", 422), (b"true", 422),
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused_in_words(shop: Producer, body: bytes, status: int) -> None:
    answer = shop.post(body)
    assert answer.status_code == status
    told(answer)
    assert shop.registry.asked == []


def test_more_than_a_thousand_events_are_too_many(shop: Producer) -> None:
    events = [{**EVENT, "event_key": str(number)} for number in range(1_001)]
    answer = shop.post(events)
    assert answer.status_code == 413
    assert "1001" in told(answer)["error"]
    assert shop.registry.asked == []
    assert shop.post(events[:1_000]).status_code == 201


def test_a_body_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    shop = producer(tmp_path, body_bytes_max=1_000)
    large = {**EVENT, "attributes": {"x": "y" * 1_000}}
    assert shop.post(large).status_code == 413
    parts = iter([b'{"a": "', b"x" * 600, b"x" * 600, b'"}'])
    headers = {"Authorization": f"Bearer {shop.key}", "Content-Type": "application/json"}
    answer = shop.client.post("/v1/usage", content=parts, headers=headers)
    assert answer.status_code == 413
    assert shop.post(EVENT).status_code == 201


def test_a_key_that_brings_too_much_waits_and_records_nothing(tmp_path: Path) -> None:
    shop = producer(tmp_path, events_per_s=100)
    thousand = [{**EVENT, "event_key": str(number)} for number in range(1_000)]
    assert shop.post(thousand).status_code == 201
    answer = shop.post(EVENT)
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "1"
    assert len(shop.registry.asked) == 1_000
    shop.clock.now_s += 1
    assert shop.post(EVENT).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Type": "text/plain"},
        {"Content_Type": ""},
        {"Content_Type": "application/json; charset=utf-16"},
        {"Content_Encoding": "gzip"},
    ],
)
def test_what_it_does_not_read_it_does_not_guess(shop: Producer, headers: dict[str, str]) -> None:
    answer = shop.post(EVENT, **headers)
    assert answer.status_code == 415
    told(answer)


def test_parameters_of_the_type_are_no_other_type(shop: Producer) -> None:
    assert shop.post(EVENT, Content_Type='Application/JSON; charset="UTF-8"').status_code == 201


def test_every_digit_of_a_quantity_arrives(shop: Producer) -> None:
    text = b'{"tenant_id":"acme","metric":"m","event_key":"k","quantity":%s}'
    for number in (b"0.1", b"123456789012345.678901234567", b"1e2", b"100000000000000000001"):
        shop.registry.known.clear()
        assert shop.post(text % number).status_code == 201
        assert str(shop.registry.asked[-1].item["quantity"]) in {number.decode(), "1E+2"}


@pytest.mark.parametrize(
    ("attributes", "path", "rule"),
    [
        (b'{"a": [1, {"b": "x\\u0000"}]}', "$.attributes.a[1].b", "U+0000"),
        (b'{"a\\u0000": 1}', "$.attributes", "U+0000"),
        (b'{"a": 1e200}', "$.attributes.a", "digits"),
        (b'{"a": 1e-101}', "$.attributes.a", "digits"),
        (b'{"a": ' + b"9" * 101 + b"}", "$.attributes.a", "digits"),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "$.attributes.a" + "[0]" * 30, "nested"),
    ],
)
def test_what_the_database_cannot_hold_is_refused_by_its_path(
    shop: Producer, attributes: bytes, path: str, rule: str
) -> None:
    text = b'{"tenant_id":"acme","metric":"m","event_key":"k","quantity":1,"attributes":%s}'
    answer = shop.post(text % attributes)
    assert answer.status_code == 422
    (problem,) = told(answer)["problems"]
    assert problem["path"] == path
    assert rule in problem["rule"]


def test_a_trace_goes_along(shop: Producer) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    shop.post(EVENT, traceparent=trace)
    assert shop.registry.trace == trace


@pytest.mark.parametrize("error", [unavailable(), ValueError("a secret of ours")])
def test_what_goes_wrong_is_an_answer_that_says_repeat(shop: Producer, error: Exception) -> None:
    shop.registry.broken = error
    answer = shop.post(EVENT)
    assert answer.status_code in {500, 503}
    assert "again" in told(answer)["fix"]
    assert "secret" not in answer.text


def test_calls_that_are_too_many_at_a_time_are_turned_away_unread(shop: Producer) -> None:
    shop.figures.in_hand = 1
    assert shop.post(EVENT).status_code == 201
    shop.figures.in_hand = 2
    answer = shop.post(b"not even JSON")
    assert answer.status_code == 503
    assert "again" in told(answer)["fix"]
    assert shop.figures.in_hand == 2, "what was turned away was not taken into hand"


def test_it_counts_what_it_answered(shop: Producer) -> None:
    shop.post(EVENT)
    shop.post([EVENT, {**EVENT, "quantity": -1}])
    shop.post(b"{")
    seen: list[int] = []
    shop.registry.meanwhile = lambda: seen.append(shop.figures.in_hand)
    shop.post(EVENT)
    assert seen == [1]
    assert {told for told in figures(shop) if told[2]} == {
        ("usage_ingest_calls_total", "200", 1),
        ("usage_ingest_calls_total", "201", 1),
        ("usage_ingest_calls_total", "400", 1),
        ("usage_ingest_calls_total", "422", 1),
        ("usage_ingest_events_total", "duplicate", 2),
        ("usage_ingest_events_total", "invalid", 1),
        ("usage_ingest_events_total", "recorded", 1),
    }


def figures(shop: Producer) -> list[tuple[str, str | None, float]]:
    """What Prometheus reads, without the histogram's lines."""
    text = exposition(shop.figures.samples, "ingest")().decode()
    found = re.findall(r'^(usage_\w+)(?:\{\w+="(.*)"\})? (\S+)$', text, re.MULTILINE)
    return [
        (name, label or None, float(value))
        for name, label, value in found
        if not name.startswith("usage_ingest_call_seconds")
    ]


def test_what_an_alert_waits_for_is_told_from_the_start_as_nothing(shop: Producer) -> None:
    told = {(name, label): value for name, label, value in figures(shop)}
    assert {label for name, label in told if name == "usage_ingest_failures_total"} == {
        "away", "late", "held", "not_whole", "catalogue", "data", "crowded", "keys", "defect",
    }  # fmt: skip
    outcomes = {label for name, label in told if name == "usage_ingest_events_total"}
    assert outcomes == {"recorded", "duplicate", "conflict", "invalid", "forbidden"}
    assert set(told.values()) == {0}


def test_it_tells_why_calls_were_not_recorded_and_how_long_ago(shop: Producer) -> None:
    shop.registry.broken = unavailable()
    shop.post(EVENT)
    shop.clock.now_s += 7
    shop.registry.broken = ValueError("ours")
    shop.post(EVENT)
    shop.figures.in_hand = 2
    shop.post(EVENT)
    shop.figures.in_hand = 0
    shop.keys_file.unlink()
    shop.post(EVENT)
    shop.clock.now_s += 5
    told = {(name, label): value for name, label, value in figures(shop)}
    for why, age_s in {"away": 12, "defect": 5, "crowded": 5, "keys": 5}.items():
        assert told["usage_ingest_failures_total", why] == 1
        assert told["usage_ingest_failure_age_seconds", why] == age_s
    assert ("usage_ingest_failure_age_seconds", "late") not in told
    assert told["usage_ingest_failures_total", "late"] == 0


def test_it_tells_whose_key_was_too_fast(tmp_path: Path) -> None:
    shop = producer(tmp_path, events_per_s=100)
    shop.post([{**EVENT, "event_key": str(number)} for number in range(1_000)])
    assert [shop.post(EVENT).status_code for _ in range(2)] == [429, 429]
    assert ("usage_ingest_limited_total", "shop", 2) in figures(shop)


def test_it_tells_how_long_calls_took_once_their_bodies_were_there(shop: Producer) -> None:
    def passes(duration_s: float) -> None:
        shop.clock.now_s += duration_s

    for duration_s in (0.0, 0.015625, 0.5, 7.0, 99.0):
        shop.registry.meanwhile = partial(passes, duration_s)
        shop.post(EVENT)
    shop.post(EVENT, Authorization="Bearer nobody")
    text = exposition(shop.figures.samples, "ingest")().decode()
    below = dict(
        re.findall(r'^usage_ingest_call_seconds_bucket\{le="(.*)"\} (\S+)$', text, re.MULTILINE)
    )
    wanted = {"0.005": 1, "0.025": 2, "0.25": 2, "0.5": 3, "5.0": 3, "10.0": 4, "+Inf": 5}
    assert {bound: float(below[bound]) for bound in wanted} == wanted
    assert "usage_ingest_call_seconds_count 5.0" in text
    assert "usage_ingest_call_seconds_sum 106.515625" in text


def test_it_says_whether_it_is_ready_and_asks_once_a_second(shop: Producer) -> None:
    shop.registry.lacks = "the outbox"
    answers = [shop.client.get("/ready") for _ in range(3)]
    assert {each.status_code for each in answers} == {503}
    assert answers[0].text == "not ready: the outbox\n"
    assert shop.registry.looked == 1
    shop.registry.lacks = None
    shop.clock.now_s += 1
    assert shop.client.get("/ready").status_code == 200
    assert shop.client.get("/health").text == "ok\n"


def test_other_addresses_and_ways_are_told_in_words(shop: Producer) -> None:
    missing, wrong = shop.client.get("/v2/usage"), shop.client.get("/v1/usage")
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert wrong.headers["Allow"] == "POST"
    assert "/openapi.json" in missing.json()["fix"]


def test_the_contract_is_served_as_it_is_kept(shop: Producer) -> None:
    assert shop.client.get("/openapi.json").json() == CONTRACT


def test_the_contract_holds_every_status_and_word_of_an_answer() -> None:
    responses = CONTRACT["paths"]["/v1/usage"]["post"]["responses"]
    assert set(responses) == {
        "200", "201", "400", "401", "403", "408", "409", "413", "415", "422", "429", "500", "503",
    }  # fmt: skip
    example = CONTRACT["paths"]["/v1/usage"]["post"]["requestBody"]["content"]
    for each in example.values():
        schema = {**each["schema"], "components": CONTRACT["components"]}
        Draft202012Validator.check_schema(schema)
        if "example" in each:
            Draft202012Validator(schema).validate(each["example"])
