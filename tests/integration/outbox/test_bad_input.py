from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration.outbox.conftest import Row
from tests.support.outbox import all_of, correct, record
from tests.support.postgres import Database, PostgresServer

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]
LONG = "x" * 201
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    """Shared by the table: what is refused leaves nothing, as the last test checks."""
    made = postgres_server.create("outbox")
    with made.connect() as conn:
        conn.execute("SELECT metering.put_metric('api_calls', 2, 100)")
        conn.execute("SELECT metering.put_metric('old', 0, NULL, false)")
        conn.execute("SELECT metering.record_usage('acme', 'api_calls', 3, 'k1')")
    yield made
    postgres_server.drop(made)


def test_attributes_that_jsonb_cannot_hold_are_refused_before_the_call_as_documented(
    service: Conn,
) -> None:
    call = "SELECT metering.record_usage('acme', 'api_calls', 1, 'nul', attributes => %s::text"
    with pytest.raises(psycopg.errors.UntranslatableCharacter) as refused:
        service.execute(f"{call}::jsonb)".encode(), ['{"a": "\\u0000"}'])
    assert refused.value.sqlstate == "22P05"
    documented = (ROOT / "schemas/outbox/README.md").read_text(encoding="utf-8")
    assert "SQLSTATE 22P05" in documented


@pytest.fixture
def service(database: Database) -> Iterator[Conn]:
    user = database.login("metering_writer", "metering_corrector")
    with psycopg.connect(
        database.dsn(user), autocommit=True, row_factory=psycopg.rows.dict_row
    ) as conn:
        yield conn


USAGE_TABLE: list[tuple[str, object, str]] = [
    ("tenant_id", None, "must not be NULL"),
    ("tenant_id", "", "must not be empty"),
    ("tenant_id", LONG, "must be at most 200 bytes long, is 201"),
    ("tenant_id", "ü" * 101, "must be at most 200 bytes long, is 202"),
    ("tenant_id", " acme", "must not begin or end with white space"),
    ("tenant_id", "acme\u00a0", "must not begin or end with white space"),
    ("tenant_id", "ac\nme", "must not hold control characters, holds U+000A"),
    ("tenant_id", "ac\u0085me", "must not hold control characters, holds U+0085"),
    ("tenant_id", "acme#1", "must not hold '#'"),
    ("tenant_id", "tailrace.canary.0", "must not begin with 'tailrace.canary'"),
    ("tenant_id", "TailRace.Canary", "must not begin with 'tailrace.canary'"),
    ("metric", None, "must not be NULL"),
    ("metric", "", "must not be empty"),
    ("metric", "x" * 101, "must be at most 100 bytes long, is 101"),
    ("metric", "api_calls\t", "must not hold control characters, holds U+0009"),
    ("metric", "tailrace.canary", "must not begin with 'tailrace.'"),
    ("metric", "api_call", "is not in the catalogue: api_call"),
    ("metric", "old", "is no longer valid: old"),
    ("event_key", None, "must not be NULL"),
    ("event_key", "", "must not be empty"),
    ("event_key", LONG, "must be at most 200 bytes long, is 201"),
    ("event_key", "k ", "must not begin or end with white space"),
    ("event_key", "k\u007f", "must not hold control characters, holds U+007F"),
    ("event_key", "a\u202eb", "must not hold control characters, holds U+202E"),
    ("quantity", None, "must not be NULL"),
    ("quantity", "NaN", "must be a number, is NaN"),
    ("quantity", "Infinity", "must be finite"),
    ("quantity", "-Infinity", "must be finite"),
    ("quantity", "-1", "must not be negative"),
    ("quantity", "1e15", "must be below 10^15"),
    ("quantity", "1e300", "must be below 10^15"),
    ("quantity", "10000000000000", "must be below 10^15 units of 10^-2"),
    ("quantity", "1.234", "has 3 decimals, metric api_calls takes at most 2"),
    ("quantity", "1e-20", "has 20 decimals, metric api_calls takes at most 2"),
    ("occurred_at", "infinity", "must lie between 2000-01-01 and a year from now"),
    ("occurred_at", "-infinity", "must lie between 2000-01-01 and a year from now"),
    ("occurred_at", "1999-12-31 23:59:59+00", "must lie between 2000-01-01 and a year from now"),
    ("occurred_at", "294000-01-01 00:00:00+00", "must lie between 2000-01-01 and a year from now"),
    ("attributes", "[]", "must be a JSON object, is array"),
    ("attributes", "null", "must be a JSON object, is null"),
    ("attributes", '"text"', "must be a JSON object, is string"),
    ("attributes", '{"k": "%s"}' % ("x" * 32768), "must be at most 32 KiB of JSON, is 32777 bytes"),
    ("on_conflict", "ignore", "must be 'park' or 'raise'"),
]


@pytest.mark.parametrize(("field", "value", "rule"), USAGE_TABLE)
def test_usage_is_refused_by_field_and_rule(
    service: Conn, field: str, value: object, rule: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        record(service, **{"event_key": "bad", field: value})
    diag = refused.value.diag
    assert diag.sqlstate == "22023"
    assert diag.message_primary == f"{field}: {rule}"
    assert diag.column_name == field
    assert diag.message_detail == "Nothing was recorded."
    assert diag.message_hint


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant_id", "ü" * 100),
        ("tenant_id", "a#b".replace("#", "-") + " c"),
        ("quantity", "0"),
        ("quantity", "9999999999999.99"),
        ("quantity", "1.100000000000000000000"),
        ("occurred_at", "2000-01-01 00:00:00+00"),
        ("attributes", '{"k": "%s"}' % ("x" * 32758)),
        ("attributes", "{}"),
    ],
)
def test_the_edge_of_a_rule_is_taken(service: Conn, field: str, value: object) -> None:
    with service.transaction(force_rollback=True):
        assert record(service, **{"event_key": "edge", field: value})["status"] == "recorded"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("tenant_id", "", "must not be empty"),
        ("tenant_id", "acme#1", "must not hold '#'"),
        ("target_event_key", None, "must not be NULL"),
        ("target_event_key", "unknown", "names no usage event of this tenant recorded here"),
        ("tenant_id", "other", None),
        ("correction_key", "", "must not be empty"),
        ("correction_key", LONG, "must be at most 200 bytes long, is 201"),
        ("reason", None, "must not be NULL"),
        ("reason", "x" * 1001, "must be at most 1000 bytes long, is 1001"),
        ("authorized_by", "", "must not be empty"),
        ("delta", None, "must not be NULL"),
        ("delta", "0", "must not be 0"),
        ("delta", "NaN", "must be a number, is NaN"),
        ("delta", "-Infinity", "must be finite"),
        ("delta", "-1e15", "must be below 10^15"),
        ("delta", "-1.234", "has 3 decimals, metric api_calls takes at most 2"),
        ("delta", "-10000000000000", "must be below 10^15 units of 10^-2"),
    ],
)
def test_a_correction_is_refused_by_field_and_rule(
    service: Conn, field: str, value: object, rule: str | None
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        correct(service, **{"correction_key": "bad", field: value})
    expected = (
        f"{field}: {rule}"
        if rule
        else "target_event_key: names no usage event of this tenant recorded here"
    )
    assert refused.value.diag.message_primary == expected
    assert refused.value.diag.message_hint


ITEM: Row = {"tenant_id": "acme", "metric": "api_calls", "quantity": 1, "event_key": "b1"}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (None, "items: must be a JSON array, is null"),
        ({}, "items: must be a JSON array, is object"),
        ([ITEM] * 10001, "items: must be at most 10000, are 10001"),
        ([ITEM, 7], "items[1]: must be an object, is number"),
        ([{**ITEM, "occured_at": "x"}], "items[0].occured_at: is not a field of an event"),
        ([{**ITEM, "quantity": "1,5"}], "items[0].quantity: must be a decimal number"),
        ([{**ITEM, "quantity": "NaN"}], "items[0].quantity: must be a decimal number"),
        ([{**ITEM, "quantity": True}], "items[0].quantity: must be a decimal number"),
        ([{**ITEM, "quantity": 0.1 + 0.2}], "items[0].quantity: has 17 decimals, metric"),
        ([{**ITEM, "quantity": None}], "items[0].quantity: must not be NULL"),
        ([{"tenant_id": "acme"}], "items[0].metric: must not be NULL"),
        ([{**ITEM, "tenant_id": 7}], "items[0].tenant_id: must be a string, is number"),
        (
            [{**ITEM, "occurred_at": "2026-11-29T15:01:09"}],
            "items[0].occurred_at: must be an instant with a time zone",
        ),
        (
            [{**ITEM, "occurred_at": "2026-02-30T15:01:09Z"}],
            "items[0].occurred_at: must lie between 2000-01-01 and a year from now",
        ),
        ([{**ITEM, "occurred_at": 7}], "items[0].occurred_at: must be a string, is number"),
        ([{**ITEM, "attributes": []}], "items[0].attributes: must be a JSON object, is array"),
        ([{**ITEM, "on_conflict": "x"}], "items[0].on_conflict: must be 'park' or 'raise'"),
        (
            [{**ITEM, "event_key": ""}, ITEM, {**ITEM, "quantity": -1}],
            "items[0].event_key: must not be empty; items[2].quantity: must not be negative",
        ),
        ([{**ITEM, "quantity": -1}] * 25, "; and 5 more"),
    ],
)
def test_all_bad_items_of_a_batch_are_named_by_index(
    service: Conn, items: object, message: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        service.execute("SELECT * FROM metering.record_usage_batch(%s)", (json.dumps(items),))
    assert message in (refused.value.diag.message_primary or "")
    assert refused.value.diag.message_hint


def test_the_limit_of_a_batch_is_where_the_readme_says_it_is(service: Conn) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        service.execute("SELECT metering.record_usage_batch(%s)", (json.dumps([ITEM] * 10_001),))
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    upstream = readme.partition("## For upstream engineers")[2].partition("## ")[0]
    assert "at most 10,000 events a call" in upstream
    assert (
        f"SQLSTATE {refused.value.sqlstate} and `{refused.value.diag.message_primary}`" in upstream
    )


def test_a_null_batch_is_refused(service: Conn) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="items: must be a JSON array"):
        service.execute("SELECT * FROM metering.record_usage_batch(NULL)")


def test_nothing_that_was_refused_left_a_trace(database: Database) -> None:
    with psycopg.connect(database.dsn(), row_factory=psycopg.rows.dict_row) as conn:
        assert [r["event_key"] for r in all_of(conn, "SELECT * FROM metering.recorded")] == ["k1"]
        assert len(all_of(conn, "SELECT FROM metering.usage_outbox")) == 1


def test_without_a_catalogue_any_meter_is_taken_within_fifteen_digits(writer: Conn) -> None:
    assert record(writer, metric="anything at all", quantity="1.123456789012")["status"]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="a meter takes at most 12"):
        record(writer, event_key="k2", quantity="0.1234567890123")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"below 10\^15 units of 10\^-3"):
        record(writer, event_key="k2", quantity="1234567890123.123")


def test_the_transaction_stays_the_callers(service: Conn) -> None:
    with service.transaction(force_rollback=True):
        record(service, event_key="good")
        with pytest.raises(psycopg.errors.InvalidParameterValue), service.transaction():
            record(service, event_key="", quantity="1")
        assert record(service, event_key="good")["status"] == "duplicate"
