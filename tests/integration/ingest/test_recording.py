"""What is answered stands in the outbox, as if the producer had called SQL itself."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streams.cli.main import run
from tests.integration.ingest.conftest import Conn
from tests.integration.ingest.endpoint import EVENT, Endpoint, serving
from tests.support.outbox import all_of, one, record
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres


def registered(conn: Conn, key: str, tenant: str = "acme") -> dict[str, Any]:
    return one(
        conn,
        "SELECT * FROM metering.usage_key WHERE tenant_id = %s AND event_key = %s",
        (tenant, key),
    )


def test_an_event_is_recorded_with_every_digit_and_its_trace(shop: Endpoint, books: Conn) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    body = (
        b'{"tenant_id":"acme","metric":"api_calls","quantity":123456789.123456,'
        b'"event_key":"digits","occurred_at":"2026-11-29T15:01:09.817658+05:30",'
        b'"attributes":{"price":0.10000000000000000000000001}}'
    )
    answer = shop.post(body, traceparent=trace)
    assert answer.status_code == 201
    row = registered(books, "digits")
    assert row["quantity"] == Decimal("123456789.123456")
    assert row["occurred_at"] == datetime(2026, 11, 29, 9, 31, 9, 817658, UTC)
    assert str(row["event_id"]) == answer.json()["event_id"]
    assert datetime.fromisoformat(answer.json()["received_at"]) == row["received_at"]
    sent = one(
        books,
        "SELECT traceparent, payload ->> 'attributes' AS attributes"
        " FROM metering.usage_outbox WHERE event_id = %s",
        (row["event_id"],),
    )
    assert sent == {
        "traceparent": trace,
        "attributes": '{"price": 0.10000000000000000000000001}',
    }


def test_a_copy_gets_the_first_result_whichever_way_it_came(
    shop: Endpoint, books: Conn, common: Database
) -> None:
    event = {**EVENT, "event_key": "both ways"}
    first = shop.post(event)
    assert first.status_code == 201
    again = shop.post({**event, "quantity": "3.0", "attributes": {"not": "content"}})
    assert again.status_code == 200
    assert again.json() == {**first.json(), "status": "duplicate"}
    writer = common.login("metering_writer")
    with psycopg.connect(common.dsn(writer), row_factory=psycopg.rows.dict_row) as conn:
        row = record(conn, event_key="both ways")
    assert row["status"] == "duplicate"
    assert str(row["event_id"]) == first.json()["event_id"]
    sent = all_of(
        books, "SELECT 1 FROM metering.usage_outbox WHERE event_id = %s", (row["event_id"],)
    )
    assert len(sent) == 1


def test_a_conflict_names_both_contents_and_what_is_parked(shop: Endpoint, books: Conn) -> None:
    event = {**EVENT, "event_key": "conflict", "occurred_at": "2026-11-29T15:00:00Z"}
    first = shop.post(event).json()
    offered = [{**event, "quantity": 4}, {**event, "metric": "exports"}, {**event, "quantity": 4}]
    answers = [shop.post(each) for each in offered]
    assert [each.status_code for each in answers] == [409, 409, 409]
    assert answers[0].json() == answers[2].json(), "offered again it is the same item"
    stands = registered(books, "conflict")
    for answer in answers[:2]:
        conflict = answer.json()["conflict"]
        parked = one(
            books,
            "SELECT * FROM metering.usage_conflict WHERE event_id = %s AND content = %s",
            (first["event_id"], bytes.fromhex(conflict["content"])),
        )
        assert conflict == {
            "parked": f"{first['event_id']}:{parked['content'].hex()}",
            "content": parked["content"].hex(),
            "first_content": stands["content"].hex(),
            "first_received_at": first["received_at"],
            "first_metric": "api_calls",
            "first_quantity": "3",
            "first_occurred_at": "2026-11-29T15:00:00.000000Z",
        }
        assert datetime.fromisoformat(answer.json()["received_at"]) == parked["received_at"]


def test_of_a_list_each_event_has_its_own_answer(shop: Endpoint, books: Conn) -> None:
    events = [{**EVENT, "event_key": f"list {number}"} for number in range(1_000)]
    events[10]["quantity"] = -1
    events[20] = {**events[19], "quantity": 7}
    events[30] = events[29]
    events[40]["tenant_id"] = "gamma"
    events[50]["metric"] = None
    answer = shop.post(events)
    assert answer.status_code == 403
    document = answer.json()
    assert document["counts"] == {
        "conflict": 1, "duplicate": 1, "forbidden": 1, "invalid": 2, "recorded": 995,
    }  # fmt: skip
    statuses = {index: document["results"][index]["status"] for index in (10, 20, 30, 40, 50)}
    assert statuses == {
        10: "invalid", 20: "conflict", 30: "duplicate", 40: "forbidden", 50: "invalid",
    }  # fmt: skip
    assert [each["index"] for each in document["results"]] == list(range(1_000))
    rows = all_of(
        books,
        "SELECT event_id::text, event_key FROM metering.usage_key WHERE event_key LIKE 'list %%'",
        (),
    )
    told = {
        (each["event_id"], events[each["index"]]["event_key"])
        for each in document["results"]
        if each["status"] == "recorded"
    }
    assert {(row["event_id"], row["event_key"]) for row in rows} == told


@pytest.mark.parametrize(
    ("changed", "path", "rule"),
    [
        ({"tenant_id": None}, "tenant_id", "must not be NULL"),
        ({"tenant_id": 7}, "tenant_id", "must be a string, is number"),
        ({"metric": " m"}, "metric", "must not begin or end with white space"),
        ({"quantity": "1e5"}, "quantity", "must be a decimal number"),
        ({"quantity": 1e15}, "quantity", "must be below 10^15"),
        ({"quantity": True}, "quantity", "must be a decimal number"),
        ({"quantity": "0.1234567890123"}, "quantity", "has 13 decimals, a meter takes at most 12"),
        ({"event_key": "k" * 201}, "event_key", "must be at most 200 bytes long, is 201"),
        ({"event_key": "a\u202eb"}, "event_key", "must not hold control characters, holds U+202E"),
        ({"occurred_at": "2026-11-29"}, "occurred_at", "must be an instant with a time zone"),
        (
            {"occurred_at": "2026-02-30T00:00:00Z"},
            "occurred_at",
            "must lie between 2000-01-01 and a year from now",
        ),
        ({"attributes": [1]}, "attributes", "must be a JSON object, is array"),
        ({"surprise": 1}, "surprise", "is not a field of an event"),
    ],
)
def test_rules_are_those_of_sql_and_named_with_their_path(
    shop: Endpoint, changed: dict[str, Any], path: str, rule: str
) -> None:
    event = {**EVENT, "event_key": "rules", **changed}
    answer = shop.post(event)
    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert (problem["path"], problem["rule"]) == (f"$.{path}", rule)
    assert problem["fix"]
    listed = shop.post([{**EVENT, "event_key": "rules fine"}, event]).json()["results"]
    assert listed[0]["status"] in {"recorded", "duplicate"}
    assert listed[1]["problems"] == [{**problem, "path": f"$[1].{path}"}]


def test_once_meters_are_pushed_their_rules_hold(
    shop: Endpoint, books: Conn, request: pytest.FixtureRequest
) -> None:
    books.execute("SELECT metering.put_metric('api_calls', 0)")
    request.addfinalizer(lambda: books.execute("DELETE FROM metering.metric"))
    events = [
        {**EVENT, "event_key": "pushed"},
        {**EVENT, "event_key": "pushed 2", "quantity": 0.5},
        {**EVENT, "event_key": "pushed 3", "metric": "exports"},
    ]
    results = shop.post(events).json()["results"]
    assert results[0]["status"] == "recorded"
    assert [each["problems"][0]["path"] for each in results[1:]] == ["$[1].quantity", "$[2].metric"]


ONE_LOOK_ONE_PROBLEM = """
    ALTER FUNCTION metering.usage_batch_problems(jsonb) RENAME TO all_problems;
    CREATE FUNCTION metering.usage_batch_problems(items jsonb)
        RETURNS TABLE (index integer, field text, rule text, hint text)
        LANGUAGE sql STABLE SECURITY DEFINER
        AS 'SELECT * FROM metering.all_problems(items) ORDER BY index LIMIT 1';
"""
"""As when another meter is withdrawn between any two looks at the rules."""


def test_what_only_a_second_look_refuses_is_named_by_its_own_place(
    dsn: str, admin: Conn, tmp_path: Path
) -> None:
    admin.execute(ONE_LOOK_ONE_PROBLEM.encode())
    good = [{**EVENT, "event_key": f"k{number}"} for number in range(5)]
    bad = {1: {**good[1], "quantity": -1}, 3: {**good[3], "metric": None}}
    with serving(dsn, tmp_path) as shop:
        answer = shop.post([bad.get(number, event) for number, event in enumerate(good)])
        results = answer.json()["results"]
        assert [each["status"] for each in results] == [
            "recorded", "invalid", "recorded", "invalid", "recorded",
        ]  # fmt: skip
        paths = [results[number]["problems"][0]["path"] for number in bad]
        assert paths == ["$[1].quantity", "$[3].metric"]
        again = shop.post([{**event, "quantity": -1} for event in good])
        assert again.status_code == 503
        assert "the catalogue changes just now" in again.json()["error"]
    assert len(all_of(admin, "SELECT 1 FROM metering.usage_key", ())) == 3


def test_a_cloud_event_is_recorded(shop: Endpoint, books: Conn) -> None:
    event = {
        "specversion": "1.0", "id": "1", "source": "/shop", "type": "api_calls", "subject": "acme",
        "time": "2026-11-29T15:01:09.817658999Z", "data": {"quantity": "0.25"},
    }  # fmt: skip
    assert shop.post(event, "application/cloudevents+json").status_code == 201
    answer = shop.post([event, {**event, "id": "2"}], "application/cloudevents-batch+json")
    assert [each["status"] for each in answer.json()["results"]] == ["duplicate", "recorded"]
    row = registered(books, '["/shop","1"]')
    assert (row["quantity"], row["occurred_at"].microsecond) == (Decimal("0.25"), 817658)


def test_it_is_ready_and_tells_what_it_has_answered(shop: Endpoint) -> None:
    assert shop.get("/ready").text == "ready\n"
    assert shop.get("/health").status_code == 200
    shop.post({**EVENT, "event_key": "figures"})
    shop.post({**EVENT, "event_key": "figures"})
    told = shop.metrics()
    assert re.search(r'^usage_ingest_calls_total\{status="200"\} [1-9]', told, re.MULTILINE)
    assert re.search(r'^usage_ingest_events_total\{outcome="duplicate"\} [1-9]', told, re.MULTILINE)
    assert "usage_ingest_calls_waiting 0.0" in told


def test_a_key_that_the_command_makes_opens_at_once_and_is_nowhere_else(
    shop: Endpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_INGEST_KEYS_FILE", str(shop.keys))
    assert run(["ingest", "key", "warehouse", "--tenant", "beta"]) == 0
    shown = capsys.readouterr()
    other = replace(shop, key=shown.out.strip())
    event = {**EVENT, "event_key": "warehouse"}
    assert other.post(event).status_code == 403
    assert other.post({**event, "tenant_id": "beta"}).status_code == 201
    assert other.key not in shown.err + shop.keys.read_text() + shop.log.read_text()
    assert run(["ingest", "key", "warehouse", "--tenant", "beta"]) == 2
    assert run(["ingest", "key", "nobody"]) == 2
    assert "bound to the tenants" in capsys.readouterr().err
