"""What is accepted and refused afterwards, and how it is told: reports, events, lists."""

from typing import Any

import msgspec
import pytest

from sandbox.stripe_sandbox import reports
from sandbox.stripe_sandbox.engine import ApiRequest, Execution
from sandbox.stripe_sandbox.errors import Reply
from sandbox.stripe_sandbox.settings import Settings
from sandbox.stripe_sandbox.state import State
from streams.core.rejection import ERROR_REPORT, NO_METER_FOUND, ErrorReport, read
from tests.unit.stripe_sandbox.driver import START_US, Memory, form_of, frozen, request_of

EVENTS = "/v1/billing/meter_events"
LIST = "/v2/core/events"
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US


def memory_with(**changes: Any) -> Memory:
    return Memory(Settings(rate_limit=10**6, **changes))


def send(memory: Memory, number: int, at_us: int = START_US, /, **changes: str) -> str:
    """Sends one meter event; its idempotency key."""
    event = frozen(number)
    key = event.idempotency_key(1)
    reply = memory.post(EVENTS, form_of(event, **changes), at_us, key)
    assert reply.status == 200, reply.body
    return key


def unknown(number: int) -> dict[str, str]:
    return {"payload[stripe_customer_id]": f"cus_unknown_{number}"}


def listed(
    memory: Memory, now_us: int = START_US + DAY_US, /, **query: str
) -> list[dict[str, Any]]:
    reply = memory.get(LIST, query, now_us)
    assert reply.status == 200, reply.body
    rows = msgspec.json.decode(msgspec.json.encode(reply.body["data"]))
    assert isinstance(rows, list)
    return rows


def only(memory: Memory) -> ErrorReport:
    [event] = listed(memory)
    seen = read(event["id"], event["type"], msgspec.json.encode(event))
    assert isinstance(seen, ErrorReport)
    return seen


def test_a_report_counts_all_and_names_the_first_few_by_their_keys() -> None:
    memory = memory_with(samples_max=2)
    keys = [send(memory, n, START_US + n * SECOND_US, **unknown(n)) for n in range(5)]

    report = only(memory)

    assert report.event_type == ERROR_REPORT
    assert report.meter_id == "mtr_test_1"
    assert (report.error_count, report.unnamed) == (5, 3)
    assert [one.idempotency_key for one in report.samples] == keys[:2]
    assert {one.code for one in report.samples} == {"meter_event_customer_not_found"}
    assert (report.start_us, report.end_us) == (START_US, START_US + 10 * SECOND_US)


@pytest.mark.parametrize("shape", ["key_as_identifier", "key", "identifier"])
def test_samples_name_a_request_in_each_of_the_shapes_that_stripe_documents(shape: Any) -> None:
    memory = memory_with(sample_shape=shape)
    send(memory, 1, START_US, **unknown(1))
    [sample] = only(memory).samples
    assert sample.identifier == frozen(1).identifier
    assert sample.key_generation == (None if shape == "identifier" else 1)


def test_a_report_is_made_once_its_validation_has_ended_and_only_once() -> None:
    memory = memory_with(report_lag_s=60)
    send(memory, 1, START_US + SECOND_US, **unknown(1))
    due_us = START_US + 70 * SECOND_US
    assert listed(memory, due_us - 1) == []
    first = listed(memory, due_us)
    assert len(first) == 1
    assert listed(memory, due_us + DAY_US) == first


def test_each_ten_seconds_and_each_meter_have_a_report_of_their_own() -> None:
    memory = memory_with(auto_create_meters=True)
    send(memory, 1, START_US, **unknown(1))
    send(memory, 2, START_US + 9 * SECOND_US, **unknown(1))
    send(memory, 3, START_US + 10 * SECOND_US, **unknown(1))
    send(memory, 4, START_US, event_name="exports", **unknown(1))
    found = listed(memory)
    assert sorted(event["data"]["reason"]["error_count"] for event in found) == [1, 1, 2]
    assert len({event["related_object"]["id"] for event in found}) == 2


def test_what_was_told_is_told_again_after_a_restart_and_nothing_twice() -> None:
    memory = Memory()
    send(memory, 1, START_US, **unknown(1))
    told = listed(memory)
    send(memory, 2, START_US + DAY_US, **unknown(1))

    state = State()
    for fact in memory.facts:
        state.apply(fact)

    assert [report.id for report in state.reports.values()] == [event["id"] for event in told]
    assert [event.identifier for event in state.unreported] == [frozen(2).identifier]


BAD = {
    "meter_event_no_customer_defined": {"payload[stripe_customer_id]": ""},
    "meter_event_invalid_value": {"payload[value]": "many"},
    "meter_event_value_too_many_digits": {"payload[value]": "1" * 16},
    "timestamp_too_far_in_past": {"timestamp": str(START_US // SECOND_US - 36 * 86_400)},
    "timestamp_in_future": {"timestamp": str(START_US // SECOND_US + 600)},
    "no_meter": {"event_name": "nobody_listens"},
    "meter_event_customer_not_found": unknown(1),
}


@pytest.mark.parametrize(("code", "changes"), BAD.items())
def test_with_validation_behind_the_answer_everything_is_accepted_and_nothing_counts(
    code: str, changes: dict[str, str]
) -> None:
    memory = memory_with(asynchronous_validation=True)
    send(memory, 1, START_US, **changes)
    [recorded] = memory.state.recorded
    assert recorded.refused == code
    assert not memory.state.counts(recorded)
    report = only(memory)
    assert [sample.code for sample in report.samples] == [code]
    assert report.event_type == (NO_METER_FOUND if code == "no_meter" else ERROR_REPORT)


def test_an_archived_meter_refuses_at_once_or_afterwards_under_its_own_code() -> None:
    memory = Memory()
    memory.post("/v1/billing/meters/mtr_test_1/deactivate", {})
    event = frozen(1)
    assert memory.post(EVENTS, form_of(event)).status == 400
    memory.settings.asynchronous_validation = True
    send(memory, 1)
    assert [sample.code for sample in only(memory).samples] == ["archived_meter"]
    assert only(memory).meter_id == "mtr_test_1"


def test_an_order_to_refuse_afterwards_strikes_what_would_have_been_counted() -> None:
    memory = Memory()
    begun = memory.engine.begin(request_of(frozen(1), 1), START_US)
    assert isinstance(begun, Execution)
    assert memory.engine.finish(begun, START_US, refused="archived_meter").status == 200
    assert [event.refused for event in memory.state.recorded] == ["archived_meter"]
    again = memory.engine.handle(request_of(frozen(1), 1), START_US)
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("frees", [False, True])
def test_whether_a_refused_identifier_is_free_again_is_a_setting(frees: bool) -> None:
    memory = memory_with(rejected_frees_identifier=frees)
    send(memory, 1, START_US, **unknown(1))
    again = memory.post(EVENTS, form_of(frozen(1)), START_US)
    assert again.status == (200 if frees else 400)
    if frees:
        assert memory.post(EVENTS, form_of(frozen(1)), START_US).status == 400


def test_events_are_listed_by_type_and_time_page_by_page() -> None:
    memory = Memory()
    for n in range(7):
        send(memory, n, START_US + n * 20 * SECOND_US, **unknown(n))
        memory.engine.advance(START_US + (n * 20 + 15) * SECOND_US)
    whole = listed(memory)
    assert len(whole) == 7
    assert [event["created"] for event in whole] == sorted(
        (event["created"] for event in whole), reverse=True
    )
    third = whole[2]["created"]
    asked: list[tuple[dict[str, str], int]] = [
        ({"types[0]": NO_METER_FOUND}, 0),
        ({"types": ERROR_REPORT, "types[1]": NO_METER_FOUND}, 7),
        ({"created[gte]": third}, 3),
        ({"created[gt]": third}, 2),
        ({"created[lt]": third}, 4),
        ({"created[lte]": third}, 5),
        ({"object_id": "mtr_other"}, 0),
    ]
    for query, count in asked:
        assert len(listed(memory, START_US + DAY_US, **query)) == count, query

    found, query = [], {"limit": "3", "types[0]": ERROR_REPORT}
    while True:
        body = memory.get(LIST, query, START_US + DAY_US).body
        found += msgspec.json.decode(msgspec.json.encode(body["data"]))
        if body["next_page_url"] is None:
            break
        path, _, rest = str(body["next_page_url"]).partition("?")
        assert path == LIST
        query = dict(pair.split("=", 1) for pair in rest.split("&"))
    assert found == whole


@pytest.mark.parametrize(
    "query", [{"limit": "101"}, {"page": "?"}, {"created[gt]": "yesterday"}], ids=str
)
def test_a_list_that_cannot_be_asked_for_is_refused(query: dict[str, str]) -> None:
    memory = Memory()
    send(memory, 1, START_US, **unknown(1))
    assert memory.get(LIST, query, START_US + DAY_US).status == 400


def test_an_event_is_fetched_by_its_id_for_thirty_days() -> None:
    memory = Memory()
    send(memory, 1, START_US, **unknown(1))
    [event] = listed(memory, START_US + 60 * SECOND_US)
    made_us = START_US + 60 * SECOND_US
    path = f"{LIST}/{event['id']}"
    assert memory.get(path, {}, made_us + 30 * DAY_US).status == 200
    assert memory.get(path, {}, made_us + 30 * DAY_US + 1).status == 404
    assert listed(memory, made_us + 30 * DAY_US + 1) == []
    assert memory.get(f"{LIST}/evt_none", {}).status == 404


def test_the_notification_is_thin() -> None:
    memory = Memory()
    send(memory, 1, START_US, **unknown(1))
    memory.engine.advance(START_US + DAY_US)
    [report] = memory.state.reports.values()
    body = reports.notification(report)
    assert set(body) == {"id", "object", "type", "created", "livemode", "context", "related_object"}
    assert body["object"] == "v2.core.event"
    assert "data" in reports.whole(report)


def test_reads_are_counted_against_their_allowance() -> None:
    memory = memory_with(read_allowance=2)
    answers: list[Reply] = [memory.get("/v1/billing/meters", {}) for _ in range(3)]
    assert [reply.status for reply in answers] == [200, 200, 429]
    assert answers[2].headers["Stripe-Rate-Limited-Reason"] == "read-allowance"
    assert memory.engine.reads == 3
    assert memory.post(EVENTS, form_of(frozen(1))).status == 200


def test_pages_are_read_in_both_directions() -> None:
    memory = Memory()
    for n in range(5):
        form = {"event_name": f"m{n}", "display_name": "M", "default_aggregation[formula]": "sum"}
        memory.post("/v1/billing/meters", form, START_US + n * SECOND_US)

    def page(**query: str) -> tuple[list[str], bool]:
        body = memory.get("/v1/billing/meters", query).body
        rows = body["data"]
        assert isinstance(rows, list)
        return [row["id"] for row in rows], bool(body["has_more"])

    names, more = page()
    assert (len(names), more) == (6, False)
    assert page(limit="2", starting_after=names[1]) == (names[2:4], True)
    assert page(limit="2", ending_before=names[4]) == (names[2:4], True)
    assert page(limit="9", ending_before=names[4]) == (names[:4], False)
    assert memory.get("/v1/billing/meters", {"ending_before": "mtr_none"}).status == 404
    both = {"ending_before": names[0], "starting_after": names[1]}
    assert memory.get("/v1/billing/meters", both).status == 400


def test_a_name_has_one_active_meter() -> None:
    memory = Memory()
    assert memory.post("/v1/billing/meters/mtr_test_1/deactivate", {}).status == 200
    shown = memory.get("/v1/billing/meters/mtr_test_1", {}).body
    assert shown["status_transitions"] == {"deactivated_at": START_US // SECOND_US}
    form = {"event_name": "api_calls", "display_name": "M", "default_aggregation[formula]": "sum"}
    assert memory.post("/v1/billing/meters", form).status == 200
    assert memory.post("/v1/billing/meters/mtr_test_1/reactivate", {}).status == 400


def test_an_unknown_request_is_still_unknown() -> None:
    memory = Memory()
    request = ApiRequest("GET", "/v2/core/nothing", authorization="Bearer sk_test_x")
    assert memory.engine.handle(request, START_US).status == 404
