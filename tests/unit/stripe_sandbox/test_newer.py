"""The newer API: JSON, its own codes, sessions, and a stream that says nothing of a single one."""

from typing import Any

import pytest

from sandbox.stripe_sandbox.engine import STREAM_PATH, ApiRequest, Execution
from sandbox.stripe_sandbox.errors import Reply
from tests.unit.stripe_sandbox.driver import KEY, START_US, Memory

EVENTS = "/v2/billing/meter_events"
SESSION = "/v2/billing/meter_event_session"
MINUTE_US = 60_000_000
DAY_US = 24 * 60 * MINUTE_US


def event(identifier: str | None = "id-1", **changes: Any) -> dict[str, Any]:
    payload = {"stripe_customer_id": "cus_1", "value": "5"}
    whole = {"event_name": "api_calls", "identifier": identifier, "payload": payload, **changes}
    return {name: value for name, value in whole.items() if value is not None}


def post(
    memory: Memory,
    path: str,
    body: object,
    now_us: int = START_US,
    *,
    key: str | None = None,
    authorization: str = KEY,
) -> Reply:
    request = ApiRequest("POST", path, authorization=authorization, idempotency_key=key, json=body)
    return memory.engine.handle(request, now_us)


def code(reply: Reply) -> str:
    detail = reply.body["error"]
    assert isinstance(detail, dict)
    return str(detail["code"])


def session(memory: Memory, now_us: int = START_US) -> str:
    return f"Bearer {post(memory, SESSION, {}, now_us).body['authentication_token']}"


def stream(memory: Memory, *events: object, now_us: int = START_US, token: str = "") -> Reply:
    authorization = token or session(memory, now_us)
    return post(memory, STREAM_PATH, {"events": list(events)}, now_us, authorization=authorization)


def test_a_meter_event_is_echoed_with_its_instant_as_text() -> None:
    memory = Memory()
    reply = post(memory, EVENTS, event(timestamp="2026-11-29T17:59:59.5Z"))
    assert reply.status == 200, reply.body
    assert reply.body["object"] == "v2.billing.meter_event"
    assert reply.body["timestamp"] == "2026-11-29T17:59:59.000000Z"
    assert memory.counted() == {"id-1": 1}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"event_name": "nobody"}, "no_meter"),
        ({"event_name": "a timestamp that already exists"}, "no_meter"),
        ({"payload": {"stripe_customer_id": "cus_1", "value": "x"}}, "payload_invalid_value"),
        ({"payload": {"stripe_customer_id": "cus_1", "value": "1" * 16}}, "payload_invalid_value"),
        ({"payload": {"stripe_customer_id": "cus_1"}}, "payload_no_value_defined"),
        ({"payload": {"value": "1"}}, "payload_no_customer_defined"),
        ({"payload": {"value": 1}}, "invalid_payload"),
        ({"timestamp": "2026-01-01T00:00:00Z"}, "invalid_timestamp"),
        ({"timestamp": "yesterday"}, "invalid_timestamp"),
        ({"timestamp": "2026-11-29T18:00:00"}, "invalid_timestamp"),
        ({"identifier": "x" * 101}, "invalid_identifier"),
        ({"event_name": ""}, "invalid_event_name"),
        ({"surplus": "x"}, "invalid_payload"),
    ],
)
def test_what_is_wrong_has_a_code_at_once(changes: dict[str, Any], expected: str) -> None:
    memory = Memory()
    reply = post(memory, EVENTS, event(**changes))
    assert (reply.status, code(reply)) == (400, expected)
    assert memory.state.recorded == []


def test_a_duplicate_and_an_archived_meter_have_codes_here() -> None:
    memory = Memory()
    post(memory, EVENTS, event())
    assert code(post(memory, EVENTS, event())) == "duplicate_meter_event"
    memory.post("/v1/billing/meters/mtr_test_1/deactivate", {})
    assert code(post(memory, EVENTS, event("id-2"))) == "archived_meter"


def test_a_key_keeps_a_success_for_thirty_days_and_no_failure() -> None:
    memory = Memory()
    bad = event(event_name="exports")
    assert post(memory, EVENTS, bad, key="k").status == 400
    form = {"event_name": "exports", "display_name": "E", "default_aggregation[formula]": "sum"}
    memory.post("/v1/billing/meters", form)
    assert post(memory, EVENTS, bad, key="k").status == 200
    later = post(memory, EVENTS, bad, START_US + 29 * DAY_US, key="k")
    assert later.headers["Idempotent-Replayed"] == "true"
    assert memory.counted().total() == 1


def test_one_lane_has_one_request_in_flight_here_too() -> None:
    memory = Memory()
    first = ApiRequest("POST", EVENTS, authorization=KEY, json=event())
    assert isinstance(memory.engine.begin(first, START_US), Execution)
    reply = post(memory, EVENTS, event("id-2"))
    assert (reply.status, code(reply)) == (409, "too_many_concurrent_requests")
    other = event("id-3", payload={"stripe_customer_id": "cus_2", "value": "1"})
    assert post(memory, EVENTS, other).status == 200


def test_a_stream_needs_a_session_and_a_session_ends_after_a_quarter_of_an_hour() -> None:
    memory = Memory()
    token = session(memory)
    assert session(memory) != token
    late_us = START_US + 15 * MINUTE_US
    assert stream(memory, event(), now_us=late_us - 1, token=token).body == {}
    for reply in (
        stream(memory, event("id-2"), now_us=late_us, token=token),
        stream(memory, event("id-3"), token=KEY),
        stream(memory, event("id-4"), token="Bearer token_test_made_up"),
    ):
        assert (reply.status, code(reply)) == (401, "billing_meter_event_session_expired")
    assert memory.counted() == {"id-1": 1}


def test_a_stream_drops_duplicates_without_a_word() -> None:
    memory = Memory()
    other = event(payload={"stripe_customer_id": "cus_1", "value": "6"})
    assert stream(memory, event(), other, event("id-2")).status == 200
    assert stream(memory, other, event("id-2"), event(None), event(None)).status == 200
    assert [recorded.value for recorded in memory.state.recorded] == ["5", "5", "5", "5"]
    assert memory.counted()["id-1"] == 1


def test_a_stream_looks_at_nothing_before_it_answers() -> None:
    memory = Memory()
    bad = event("id-2", payload={"stripe_customer_id": "cus_1", "value": "many"})
    assert stream(memory, event(), bad, event("id-3", event_name="nobody")).status == 200
    assert [recorded.refused for recorded in memory.state.recorded] == [
        None, "meter_event_invalid_value", "no_meter",
    ]  # fmt: skip


@pytest.mark.parametrize("events", [[], [event(None)] * 101, [{"event_name": 1}], "text"])
def test_a_stream_that_cannot_be_read_is_refused_whole(events: Any) -> None:
    memory = Memory()
    body = {"events": events}
    reply = post(memory, STREAM_PATH, body, authorization=session(memory))
    assert reply.status == 400
    assert memory.state.recorded == []


def test_an_adjustment_takes_back_within_a_day() -> None:
    memory = Memory()
    path = "/v2/billing/meter_event_adjustments"
    asked = {"event_name": "api_calls", "type": "cancel", "cancel": {"identifier": "id-1"}}
    assert code(post(memory, path, asked)) == "invalid_cancel"
    post(memory, EVENTS, event())
    assert post(memory, path, {**asked, "type": "other"}).status == 400
    assert post(memory, path, asked, START_US + DAY_US).status == 200
    assert code(post(memory, path, asked)) == "invalid_cancel"
    assert not memory.state.counts(memory.state.recorded[0])
