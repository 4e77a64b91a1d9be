from collections.abc import Callable

import pytest

from sandbox.stripe_sandbox.engine import ApiRequest, Execution
from sandbox.stripe_sandbox.errors import Reply
from sandbox.stripe_sandbox.fact import StoredAnswer
from sandbox.stripe_sandbox.settings import Settings
from tests.unit.stripe_sandbox.driver import (
    KEY,
    START_US,
    Memory,
    form_of,
    frozen,
    request_of,
    texts,
)

EVENTS = "/v1/billing/meter_events"
DAY_US = 86_400_000_000
START_S = START_US // 10**6


def error(reply: Reply) -> dict[str, str]:
    detail = reply.body["error"]
    assert isinstance(detail, dict)
    return detail


def test_a_meter_event_is_echoed_and_remembered_with_its_answer() -> None:
    memory = Memory()
    event = frozen()
    reply = memory.engine.handle(request_of(event, 0), START_US)
    assert reply.status == 200
    assert reply.body["object"] == "billing.meter_event"
    assert reply.body["identifier"] == event.identifier
    assert reply.body["payload"] == {"stripe_customer_id": "cus_1", "value": "5"}
    assert texts(memory.facts) == ["Recorded", "StoredAnswer"]


def test_the_same_key_is_answered_from_memory_and_counts_once() -> None:
    memory = Memory()
    event = frozen()
    first = memory.engine.handle(request_of(event, 0), START_US)
    second = memory.engine.handle(request_of(event, 0), START_US + DAY_US - 1)
    assert second.body == first.body
    assert second.headers["Idempotent-Replayed"] == "true"
    assert memory.counted().total() == 1


def test_a_held_identifier_is_refused_without_a_code_whatever_the_body() -> None:
    memory = Memory()
    event = frozen()
    memory.engine.handle(request_of(event, 0), START_US)
    reply = memory.post(EVENTS, form_of(event, **{"payload[value]": "6"}), START_US + DAY_US - 1)
    assert reply.status == 400
    assert "code" not in error(reply)
    assert error(reply)["message"].startswith(
        f"An event already exists with identifier {event.identifier}"
    )
    assert reply.headers["Stripe-Should-Retry"] == "false"


def test_after_its_window_an_identifier_counts_again() -> None:
    memory = Memory()
    event = frozen()
    memory.post(EVENTS, form_of(event))
    assert memory.post(EVENTS, form_of(event), START_US + DAY_US).status == 200
    assert memory.counted()[event.identifier] == 2


def test_the_window_can_be_longer_than_promised() -> None:
    memory = Memory(Settings(identifier_window_s=2 * 86_400))
    event = frozen()
    memory.post(EVENTS, form_of(event))
    assert memory.post(EVENTS, form_of(event), START_US + DAY_US).status == 400


def test_a_pruned_key_is_a_new_request() -> None:
    memory = Memory(Settings(identifier_window_s=3_600))
    event = frozen()
    memory.engine.handle(request_of(event, 0), START_US)
    reply = memory.engine.handle(request_of(event, 0), START_US + DAY_US)
    assert reply.status == 200
    assert "Idempotent-Replayed" not in reply.headers
    assert memory.counted()[event.identifier] == 2


def test_a_key_with_other_parameters_is_an_idempotency_error() -> None:
    memory = Memory()
    memory.post(EVENTS, form_of(frozen(1)), key="k")
    reply = memory.post(EVENTS, form_of(frozen(2)), key="k")
    assert (reply.status, error(reply)["type"]) == (400, "idempotency_error")


def test_errors_of_an_execution_are_stored_and_those_of_parameters_are_not() -> None:
    memory = Memory()
    missing = {"payload[stripe_customer_id]": "cus_1", "payload[value]": "1"}
    assert memory.post(EVENTS, missing, key="k").status == 400
    assert memory.post(EVENTS, form_of(frozen()), key="k").status == 200
    unknown = form_of(frozen(2), event_name="nobody")
    assert memory.post(EVENTS, unknown, key="k2").status == 400
    memory.settings.auto_create_meters = True
    replayed = memory.post(EVENTS, unknown, key="k2")
    assert (replayed.status, replayed.headers["Idempotent-Replayed"]) == (400, "true")
    assert memory.post(EVENTS, unknown, key="k3").status == 200


def test_errors_of_parameters_can_be_stored_too() -> None:
    memory = Memory(Settings(store_validation_errors=True))
    bad = {"event_name": "api_calls"}
    memory.post(EVENTS, bad, key="k")
    assert memory.post(EVENTS, bad, key="k").headers["Idempotent-Replayed"] == "true"


def test_a_key_in_flight_is_refused_and_the_refusal_is_not_stored() -> None:
    memory = Memory()
    event = frozen()
    begun = memory.engine.begin(request_of(event, 0), START_US)
    assert isinstance(begun, Execution)
    second = memory.engine.handle(request_of(event, 0), START_US)
    assert (second.status, error(second)["code"]) == (409, "idempotency_key_in_use")
    assert memory.engine.finish(begun, START_US).status == 200
    third = memory.engine.handle(request_of(event, 0), START_US)
    assert (third.status, third.headers["Idempotent-Replayed"]) == (200, "true")


def test_a_lane_in_flight_is_a_lock_timeout_that_the_key_keeps() -> None:
    memory = Memory()
    begun = memory.engine.begin(request_of(frozen(1), 0), START_US)
    assert isinstance(begun, Execution)
    busy = memory.engine.handle(request_of(frozen(2), 0), START_US)
    assert (busy.status, error(busy)["code"]) == (429, "lock_timeout")
    assert "Stripe-Rate-Limited-Reason" not in busy.headers
    memory.engine.finish(begun, START_US)
    wedged = memory.engine.handle(request_of(frozen(2), 0), START_US)
    assert (wedged.status, wedged.headers["Idempotent-Replayed"]) == (429, "true")
    assert memory.engine.handle(request_of(frozen(2), 1), START_US).status == 200


def test_an_abandoned_execution_frees_its_key_and_lane() -> None:
    memory = Memory()
    begun = memory.engine.begin(request_of(frozen(), 0), START_US)
    assert isinstance(begun, Execution)
    memory.engine.abandon(begun)
    assert memory.engine.handle(request_of(frozen(), 0), START_US).status == 200


def test_a_failure_may_or_may_not_have_recorded() -> None:
    for recorded in (False, True):
        memory = Memory()
        begun = memory.engine.begin(request_of(frozen(), 0), START_US)
        assert isinstance(begun, Execution)
        memory.engine.fail(begun, Reply(500, {"error": {}}), START_US, recorded=recorded)
        assert memory.counted().total() == recorded
        again = memory.engine.handle(request_of(frozen(), 0), START_US)
        assert (again.status, again.headers["Idempotent-Replayed"]) == (500, "true")


def test_the_limiter_stands_before_stored_answers() -> None:
    memory = Memory(Settings(rate_limit=1))
    event = frozen()
    assert memory.engine.handle(request_of(event, 0), START_US).status == 200
    limited = memory.engine.handle(request_of(event, 0), START_US)
    assert limited.status == 429
    assert limited.headers["Stripe-Rate-Limited-Reason"] == "global-rate"
    later = memory.engine.handle(request_of(event, 0), START_US + 1_000_000)
    assert later.headers["Idempotent-Replayed"] == "true"


def test_the_limit_can_be_changed_while_it_runs() -> None:
    memory = Memory(Settings(rate_limit=1))
    memory.settings.rate_limit = 3
    statuses = [
        memory.engine.handle(request_of(frozen(n), 0), START_US).status for n in range(1, 6)
    ]
    assert statuses == [200, 200, 200, 429, 429]


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer sk_live_1", "Basic sk_test"])
def test_only_test_keys_are_let_in(authorization: str | None) -> None:
    memory = Memory()
    reply = memory.engine.handle(
        ApiRequest("GET", "/v1/account", authorization=authorization), START_US
    )
    assert reply.status == 401


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_keys_have_bounds(key: str) -> None:
    assert Memory().post(EVENTS, form_of(frozen()), key=key).status == 400


def changed(**changes: str) -> Callable[[], dict[str, str]]:
    return lambda: form_of(frozen(), **changes)


def without(*names: str) -> Callable[[], dict[str, str]]:
    return lambda: {k: v for k, v in form_of(frozen()).items() if k not in names}


@pytest.mark.parametrize(
    ("form", "fragment"),
    [
        (without("event_name"), "Missing required param: event_name"),
        (without("payload[value]", "payload[stripe_customer_id]"), "required param: payload"),
        (without("payload[value]"), "Missing value in payload"),
        (without("payload[stripe_customer_id]"), "Missing customer in payload"),
        (changed(event_name=""), "Invalid event_name"),
        (changed(event_name="e" * 101), "Invalid event_name"),
        (changed(event_name="nobody"), "No active meter found"),
        (changed(identifier="i" * 101), "Invalid identifier"),
        (changed(timestamp="1.5"), "Invalid integer: 1.5"),
        (changed(timestamp=str(START_S - 35 * 86_400 - 1)), "more than 35 days in past"),
        (changed(timestamp=str(START_S + 301)), "5 minutes in the future"),
        (changed(color="red"), "unknown parameter: color"),
        (changed(payload="text"), "Invalid payload"),
        (changed(**{"event_name[x]": "1"}), "Invalid event_name: must be a hash"),
        (changed(**{"payload[a][b]": "1"}), "unknown parameter: payload[a][b]"),
        (changed(**{"payload[value]": "one"}), "Invalid value in payload"),
        (changed(**{"payload[value]": "NaN"}), "Invalid value in payload"),
        (changed(**{"payload[value]": "1" * 101}), "Invalid value in payload"),
        (changed(**{"payload[value]": "1234567890123456"}), "significant digits"),
        (changed(**{"payload[value]": "1000000000000000"}), "significant digits"),
        (changed(**{"payload[value]": "1e15"}), "significant digits"),
        (changed(**{"payload[value]": "1.234567890123456"}), "significant digits"),
    ],
)
def test_bad_parameters_are_refused_by_name(
    form: Callable[[], dict[str, str]], fragment: str
) -> None:
    memory = Memory()
    reply = memory.post(EVENTS, form())
    assert reply.status == 400
    assert fragment in error(reply)["message"]
    assert memory.counted().total() == 0


def test_a_hash_where_a_text_belongs_is_refused() -> None:
    form = {k: v for k, v in form_of(frozen()).items() if k != "identifier"}
    reply = Memory().post(EVENTS, {**form, "identifier[a]": "1"})
    assert error(reply)["message"].startswith("Invalid string")


@pytest.mark.parametrize(
    "value", ["0", "-5", "999999999999999", "0.00001", "1.50", "1e14", "-0.000000000000001"]
)
def test_decimals_and_negatives_are_taken(value: str) -> None:
    memory = Memory()
    assert memory.post(EVENTS, form_of(frozen(), **{"payload[value]": value})).status == 200


@pytest.mark.parametrize("offset_s", [-35 * 86_400, 300])
def test_dates_at_the_bounds_are_taken(offset_s: int) -> None:
    form = form_of(frozen(), timestamp=str(START_S + offset_s))
    assert Memory().post(EVENTS, form).status == 200


def test_without_a_date_and_identifier_stripe_chooses_them() -> None:
    memory = Memory()
    form = without("timestamp", "identifier")()
    first = memory.post(EVENTS, form)
    second = memory.post(EVENTS, form)
    assert first.body["timestamp"] == START_S
    assert first.body["identifier"] != second.body["identifier"]


def test_unknown_customers_are_answered_with_success_and_never_counted() -> None:
    memory = Memory()
    form = form_of(frozen(), **{"payload[stripe_customer_id]": "cus_unknown_7"})
    assert memory.post(EVENTS, form).status == 200
    assert memory.state.recorded[0].refused == "meter_event_customer_not_found"
    assert list(memory.state.counted("cus_unknown_7", "api_calls")) == []
    assert memory.post(EVENTS, form).status == 400, "the identifier is held all the same"
    assert memory.get("/v1/customers/cus_unknown_7", {}).status == 404
    assert memory.get("/v1/customers/cus_1", {}).status == 200


def test_an_adjustment_takes_an_event_back_within_a_day_and_once() -> None:
    memory = Memory()
    event = frozen()
    memory.post(EVENTS, form_of(event))
    form = {
        "event_name": "api_calls",
        "type": "cancel",
        "cancel[identifier]": event.identifier,
    }
    path = "/v1/billing/meter_event_adjustments"
    assert memory.post(path, form, START_US + DAY_US + 1).status == 400
    assert memory.post(path, {**form, "type": "undo"}).status == 400
    assert memory.post(path, form).status == 200
    assert list(memory.state.counted("cus_1", "api_calls")) == []
    assert memory.post(path, form).status == 400


def test_the_fold_of_the_facts_is_the_state() -> None:
    memory = Memory()
    for number in range(1, 6):
        memory.engine.handle(request_of(frozen(number), 0), START_US)
    other = Memory()
    for fact in memory.facts:
        other.state.apply(fact)
    assert other.state.recorded == memory.state.recorded
    assert other.state.answers == memory.state.answers
    assert all(isinstance(row, StoredAnswer) for row in other.state.answers.values())


def test_unknown_paths_are_named() -> None:
    reply = Memory().get("/v1/charges", {})
    assert reply.status == 404
    assert error(reply)["message"] == "Unrecognized request URL (GET: /v1/charges)."


def test_only_posts_have_keys() -> None:
    memory = Memory()
    request = ApiRequest("GET", "/v1/account", authorization=KEY, idempotency_key="k")
    memory.engine.handle(request, START_US)
    assert memory.facts == []
