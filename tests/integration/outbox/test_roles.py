from __future__ import annotations

from typing import Final

import psycopg
import pytest

from tests.integration.outbox.conftest import Connect, Row
from tests.support.outbox import all_of, one, record
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]

TABLES = (
    "usage_outbox",
    "usage_outbox_default",
    "usage_key",
    "usage_conflict",
    "usage_correction",
    "canary",
    "canary_key",
    "sealed_minute",
    "reemission",
    "erasure",
    "metric",
    "tenant_shards",
    "setting",
    "source",
    "growth",
    "migration",
    "recorded",
)
WRITING = ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")

FINDING: Final = {"find_key", "find_conflicts"}
USAGE: Final = {"record_usage", "record_usage_batch", "usage_batch_problems", *FINDING}
MAY_CALL: Final[dict[str, set[str]]] = {
    "metering_writer": USAGE,
    "metering_corrector": {"record_correction", *FINDING},
    "metering_cdc": set(),
    "metering_ops": {
        *FINDING,
        "emit_canaries",
        "audit_minutes",
        "identities",
        "open_transactions",
        "seal",
        "sealed_changes",
        "reemit",
        "maintain",
        "put_metric",
        "set_shards",
        "grow_partitions",
        "erasable",
        "wire_time",
        "partition_of",
        "murmur2",
    },
    "metering_eraser": {"erasable", "erase_tenant"},
    "public": set(),
}


@pytest.mark.parametrize("role", MAY_CALL)
def test_a_role_may_call_exactly_its_functions(admin: Conn, role: str) -> None:
    rows = all_of(
        admin,
        "SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'metering'::regnamespace"
        " AND has_function_privilege(%s, p.oid, 'EXECUTE')",
        (role,),
    )
    assert {row["proname"] for row in rows} == MAY_CALL[role]


@pytest.mark.parametrize("role", MAY_CALL)
def test_nobody_but_the_owner_touches_a_table(admin: Conn, role: str) -> None:
    rows = all_of(
        admin,
        "SELECT t, p FROM unnest(%s::text[]) AS t, unnest(%s::text[]) AS p"
        " WHERE has_table_privilege(%s, 'metering.' || t, p)",
        (list(TABLES), ["SELECT", *WRITING], role),
    )
    expected = {(table, "SELECT") for table in TABLES} if role == "metering_ops" else set()
    assert {(row["t"], row["p"]) for row in rows} == expected


def test_every_table_is_looked_at(admin: Conn) -> None:
    rows = all_of(
        admin,
        "SELECT relname FROM pg_class WHERE relnamespace = 'metering'::regnamespace"
        " AND relkind IN ('r', 'p', 'v') AND relname !~ '_p[0-9]{8}$'",
    )
    assert {row["relname"] for row in rows} == set(TABLES)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM metering.usage_outbox",
        "COPY metering.usage_outbox FROM STDIN",
        "COPY metering.usage_outbox TO STDOUT",
        "INSERT INTO metering.usage_outbox DEFAULT VALUES",
        "DELETE FROM metering.usage_key",
        "SELECT metering.record_correction('acme', 'k1', -1, 'c', 'r', 'a')",
        "SELECT metering.emit_canaries()",
        "SELECT metering.reemit(now() - interval '1 h', now(), 'x')",
        "SELECT metering.maintain(1)",
        "SELECT metering.seal(ARRAY[now()])",
        "SELECT metering.set_shards('acme', 2)",
        "SELECT metering.record_one('s', 't', 'm', 1, 'k', NULL, '{}', 'park')",
        "CREATE TABLE metering.mine (x int)",
        "SET ROLE metering_owner",
        "ALTER PUBLICATION metering_outbox SET (publish = 'insert, delete')",
        "SELECT pg_create_logical_replication_slot('thief', 'pgoutput')",
    ],
)
def test_a_writer_is_refused_all_but_recording(writer: Conn, statement: str) -> None:
    record(writer)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        writer.execute(statement.encode())


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO metering.usage_outbox DEFAULT VALUES",
        "UPDATE metering.usage_key SET quantity = 0",
        "DELETE FROM metering.sealed_minute",
        "UPDATE metering.setting SET value = '100 years'",
        "SELECT metering.erase_tenant('acme', 1, now())",
        "SELECT metering.record_usage('acme', 'api_calls', 1, 'k')",
        "SELECT metering.record_correction('acme', 'k1', -1, 'c', 'r', 'a')",
    ],
)
def test_operators_change_no_amount(ops: Conn, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ops.execute(statement.encode())


def test_capture_may_log_in_and_replicate_and_nothing_else(outbox: Database, admin: Conn) -> None:
    role = one(admin, "SELECT * FROM pg_roles WHERE rolname = 'metering_cdc'")
    assert (role["rolcanlogin"], role["rolreplication"]) == (True, True)
    assert not any(
        role[name] for name in ("rolsuper", "rolcreaterole", "rolcreatedb", "rolbypassrls")
    )
    with outbox.connect("metering_cdc") as conn:
        for statement in (
            "SELECT 1 FROM metering.usage_outbox",
            "SELECT metering.record_usage('acme', 'api_calls', 1, 'k')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement.encode())


def test_every_public_function_pins_its_search_path_and_is_the_owners(admin: Conn) -> None:
    rows = all_of(
        admin,
        "SELECT proname, prosecdef, coalesce(proconfig, '{}') AS config, proowner::regrole::text AS"
        " owner FROM pg_proc WHERE pronamespace = 'metering'::regnamespace",
    )
    assert {row["owner"] for row in rows} == {"metering_owner"}
    assert len([row for row in rows if row["prosecdef"]]) >= 12
    for row in rows:
        if row["prosecdef"]:
            assert "search_path=pg_catalog, pg_temp" in row["config"], row["proname"]


def test_other_sessions_are_invisible_to_writers(connect: Connect) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect("metering_writer").execute("SELECT * FROM metering.open_transactions()")
