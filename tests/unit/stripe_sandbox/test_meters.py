from collections.abc import Mapping

import pytest

from sandbox.stripe_sandbox.errors import Reply
from tests.unit.stripe_sandbox.driver import HOUR_US, START_US, Memory

METERS = "/v1/billing/meters"
SUM = {
    "event_name": "storage",
    "display_name": "Storage",
    "default_aggregation[formula]": "sum",
}
START_S = START_US // 10**6
HOUR_S = 3_600


def created(memory: Memory, **changes: str) -> str:
    reply = memory.post(METERS, {**SUM, **changes})
    assert reply.status == 200, reply.body
    return str(reply.body["id"])


def record(
    memory: Memory,
    number: int,
    value: str,
    at_s: int = START_S,
    event_name: str = "storage",
    now_us: int = START_US,
) -> None:
    form = {
        "event_name": event_name,
        "identifier": f"id-{number}",
        "timestamp": str(at_s),
        "payload[stripe_customer_id]": "cus_1",
        "payload[value]": value,
    }
    reply = memory.post("/v1/billing/meter_events", form, now_us)
    assert reply.status == 200, reply.body


def summaries(memory: Memory, meter: str, now_us: int = START_US, /, **query: str) -> Reply:
    asked = {
        "customer": "cus_1",
        "start_time": str(START_S - 24 * HOUR_S),
        "end_time": str(START_S + 24 * HOUR_S),
        **query,
    }
    return memory.get(f"{METERS}/{meter}/event_summaries", asked, now_us)


def rows(reply: Reply) -> list[tuple[int, int, float]]:
    assert reply.status == 200, reply.body
    data = reply.body["data"]
    assert isinstance(data, list)
    return [(row["start_time"], row["end_time"], row["aggregated_value"]) for row in data]


def test_a_meter_can_be_made_read_renamed_and_switched() -> None:
    memory = Memory()
    meter = created(memory, **{"customer_mapping[event_payload_key]": "customer"})
    body = memory.get(f"{METERS}/{meter}", {}).body
    assert body["default_aggregation"] == {"formula": "sum"}
    assert body["customer_mapping"] == {"event_payload_key": "customer", "type": "by_id"}
    assert memory.post(f"{METERS}/{meter}", {"display_name": "New"}).body["display_name"] == "New"
    assert memory.post(f"{METERS}/{meter}", {}).body["display_name"] == "New"
    assert memory.post(f"{METERS}/{meter}/deactivate", {}).body["status"] == "inactive"
    event = {"event_name": "storage", "payload[customer]": "cus_1", "payload[value]": "1"}
    assert memory.post("/v1/billing/meter_events", event).status == 400
    assert memory.post(f"{METERS}/{meter}/reactivate", {}).body["status"] == "active"
    assert memory.post("/v1/billing/meter_events", event).status == 200


def test_everything_else_about_a_meter_is_for_ever() -> None:
    memory = Memory()
    meter = created(memory)
    assert memory.post(f"{METERS}/{meter}", {"event_name": "other"}).status == 400


@pytest.mark.parametrize(
    "form",
    [
        {**SUM, "event_name": "api_calls"},
        {**SUM, "default_aggregation[formula]": "max"},
        {**SUM, "event_time_window": "minute"},
        {k: v for k, v in SUM.items() if k != "display_name"},
        {**SUM, "colour": "red"},
    ],
)
def test_a_wrong_meter_is_refused(form: Mapping[str, str]) -> None:
    assert Memory().post(METERS, form).status == 400


def test_meters_are_listed_in_pages_and_by_status() -> None:
    memory = Memory()
    made = [created(memory, event_name=f"m{n}") for n in range(12)]
    first = memory.get(METERS, {}).body
    assert first["has_more"] is True
    data = first["data"]
    assert isinstance(data, list)
    assert len(data) == 10
    second = memory.get(METERS, {"starting_after": data[-1]["id"]}).body
    assert second["has_more"] is False
    more = second["data"]
    assert isinstance(more, list)
    assert {row["id"] for row in data + more} == {*made, "mtr_test_1"}
    memory.post(f"{METERS}/{made[0]}/deactivate", {})
    inactive = memory.get(METERS, {"status": "inactive"}).body["data"]
    assert isinstance(inactive, list)
    assert [row["id"] for row in inactive] == [made[0]]
    assert memory.get(METERS, {"limit": "0"}).status == 400
    assert memory.get(METERS, {"starting_after": "mtr_nobody"}).status == 404
    assert memory.get(f"{METERS}/mtr_nobody", {}).status == 404


def test_hours_without_usage_are_missing_and_newest_come_first() -> None:
    memory = Memory()
    meter = created(memory)
    record(memory, 1, "5", START_S)
    record(memory, 2, "-2", START_S + 59)
    record(memory, 3, "1.5", START_S - 3 * HOUR_S)
    assert rows(summaries(memory, meter, value_grouping_window="hour")) == [
        (START_S, START_S + HOUR_S, 3.0),
        (START_S - 3 * HOUR_S, START_S - 2 * HOUR_S, 1.5),
    ]


def test_without_grouping_there_is_one_sum_even_of_nothing() -> None:
    memory = Memory()
    meter = created(memory)
    assert rows(summaries(memory, meter)) == [(START_S - 86_400, START_S + 86_400, 0.0)]
    record(memory, 1, "5")
    assert rows(summaries(memory, meter))[0][2] == 5.0


def test_the_end_is_exclusive() -> None:
    memory = Memory()
    meter = created(memory)
    record(memory, 1, "5", START_S)
    before = summaries(memory, meter, end_time=str(START_S))
    assert rows(before)[0][2] == 0.0
    assert rows(summaries(memory, meter, start_time=str(START_S)))[0][2] == 5.0


def test_days_are_utc_days() -> None:
    memory = Memory()
    meter = created(memory)
    midnight_s = START_S - START_S % 86_400
    record(memory, 1, "5", START_S)
    reply = summaries(
        memory,
        meter,
        value_grouping_window="day",
        start_time=str(midnight_s),
        end_time=str(midnight_s + 86_400),
    )
    assert rows(reply) == [(midnight_s, midnight_s + 86_400, 5.0)]


@pytest.mark.parametrize(
    ("query", "fragment"),
    [
        ({"start_time": "61"}, "UTC minute"),
        ({"start_time": "60", "value_grouping_window": "hour"}, "UTC hour"),
        ({"end_time": str(START_S + 60), "value_grouping_window": "hour"}, "UTC hour"),
        ({"value_grouping_window": "week"}, "must be one of day, hour"),
        ({"end_time": str(START_S - 24 * HOUR_S)}, "must be after"),
        ({"customer": ""}, "Invalid customer"),
        ({"limit": "101"}, "Invalid limit"),
        ({"who": "me"}, "unknown parameter"),
    ],
)
def test_wrong_questions_are_refused(query: dict[str, str], fragment: str) -> None:
    memory = Memory()
    reply = summaries(memory, created(memory), **query)
    assert reply.status == 400
    detail = reply.body["error"]
    assert isinstance(detail, dict)
    assert fragment in detail["message"]


def test_a_missing_time_is_named() -> None:
    memory = Memory()
    reply = memory.get(f"{METERS}/{created(memory)}/event_summaries", {"customer": "cus_1"})
    assert reply.status == 400


def test_summaries_lag() -> None:
    memory = Memory()
    memory.settings.summary_lag_s = 60
    meter = created(memory)
    record(memory, 1, "5")
    assert rows(summaries(memory, meter, START_US + 59_999_999))[0][2] == 0.0
    assert rows(summaries(memory, meter, START_US + 60_000_000))[0][2] == 5.0


def test_count_and_last_meters() -> None:
    memory = Memory()
    count = created(memory, event_name="c", **{"default_aggregation[formula]": "count"})
    last = created(memory, event_name="l", **{"default_aggregation[formula]": "last"})
    for number, (value, at_s) in enumerate([("7", START_S + 5), ("9", START_S)]):
        record(memory, number, value, at_s, "c")
        record(memory, number + 10, value, at_s, "l")
    assert rows(summaries(memory, count))[0][2] == 2.0
    assert rows(summaries(memory, last))[0][2] == 7.0
    assert rows(summaries(memory, last, start_time=str(START_S + 60)))[0][2] == 0.0


def test_a_pre_aggregated_meter_keeps_what_was_received_last_in_each_window() -> None:
    memory = Memory()
    meter = created(memory, event_time_window="hour")
    record(memory, 1, "5", START_S + 50)
    record(memory, 2, "8", START_S + 10, now_us=START_US + HOUR_US)
    record(memory, 3, "1", START_S - HOUR_S)
    assert rows(summaries(memory, meter, START_US + HOUR_US))[0][2] == 9.0


def test_sums_are_exact_where_floats_are_not() -> None:
    memory = Memory()
    meter = created(memory)
    for number in range(10):
        record(memory, number, "0.1")
    assert rows(summaries(memory, meter))[0][2] == 1.0
