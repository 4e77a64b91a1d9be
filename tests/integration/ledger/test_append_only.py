from __future__ import annotations

import psycopg
import pytest

from tests.integration.ledger.world import World

pytestmark = pytest.mark.postgres

AMOUNTS = (
    "identity", "log", "meter_version", "customer", "meter_log", "decision", "audit_log",
    "sealed_minute", "error_report", "summary_reading", "adoption", "skip", "skip_name", "carry",
    "archived_day", "erasure",
)  # fmt: skip
KEPT = (
    "meter_event", "meter_event_entry", "attempt", "parked", "proposal", "rejection", "doubt",
    "pause", "log_span",
)  # fmt: skip
MOVES = (
    # What follows from the others, is told again, or says how things stand.
    "migration", "setting", "position", "source", "halt", "level", "cell", "canary",
    "canary_token", "finding", "lane", "uncovered", "report_sweep", "went_back", "held_record",
    "meter_look",
)  # fmt: skip


async def filled(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),), parked=(world.parked("p"),))
    await world.settle(await world.only_claim())


@pytest.mark.parametrize("table", AMOUNTS)
@pytest.mark.parametrize("change", ["DELETE FROM {}", "TRUNCATE {} CASCADE", "UPDATE {} SET {}={}"])
async def test_amounts_are_never_changed_not_even_by_a_superuser(
    world: World, table: str, change: str
) -> None:
    await filled(world)
    column = world.value(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND attidentity = '' LIMIT 1",
        f"ledger.{table}",
    )

    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        world.admin.execute(change.format(f"ledger.{table}", column, column).encode())


@pytest.mark.parametrize("table", KEPT)
async def test_what_was_sent_and_parked_is_never_removed(world: World, table: str) -> None:
    await filled(world)

    for change in ("DELETE FROM {}", "TRUNCATE {} CASCADE"):
        with pytest.raises(psycopg.errors.RestrictViolation):
            world.admin.execute(change.format(f"ledger.{table}").encode())


async def test_of_every_table_it_is_known_whether_rows_may_go(world: World) -> None:
    tables = world.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = 'ledger'::regnamespace AND relkind = 'r'"
    )
    assert sorted(name for (name,) in tables) == sorted((*AMOUNTS, *KEPT, *MOVES))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger.meter_event SET value = '5'",
        "UPDATE ledger.meter_event SET units = 5",
        "UPDATE ledger.meter_event SET customer = 'cus_2'",
        "UPDATE ledger.meter_event SET identifier = 'm1:x'",
        "UPDATE ledger.meter_event SET timestamp_s = timestamp_s + 1",
        "UPDATE ledger.meter_event SET state = 'pending'",
        "UPDATE ledger.meter_event_entry SET entry_id = entry_id + 1",
        "UPDATE ledger.attempt SET outcome = 'other'",
        "UPDATE ledger.attempt SET worker = 'other'",
    ],
)
async def test_a_frozen_request_and_a_final_state_never_change(world: World, change: str) -> None:
    await filled(world)

    with pytest.raises(psycopg.errors.RestrictViolation):
        world.admin.execute(change.encode())


async def test_a_link_that_ended_never_comes_back_and_doubt_is_never_taken_back(
    world: World,
) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    await world.settle(await world.only_claim(), "ambiguous", executed=True)

    with pytest.raises(psycopg.errors.RestrictViolation, match="never taken back"):
        world.admin.execute("UPDATE ledger.meter_event SET possibly_executed = false")
    with world.admin.transaction(force_rollback=True):
        world.admin.execute("UPDATE ledger.meter_event_entry SET live = false")
        with pytest.raises(psycopg.errors.RestrictViolation, match="only ever ends"):
            world.admin.execute("UPDATE ledger.meter_event_entry SET live = true")


async def test_an_entry_is_in_one_live_meter_event_only(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4), world.event("b", 4)))
    await world.drain()

    with pytest.raises(psycopg.errors.UniqueViolation, match="meter_event_entry_live"):
        world.admin.execute(
            "INSERT INTO ledger.meter_event_entry (meter_event_id, entry_id)"
            " SELECT max(meter_event_id), min(entry_id) FROM ledger.meter_event_entry"
        )


SERVICE_MUST_NOT = (
    "UPDATE ledger.meter_log SET delta = 0",
    "DELETE FROM ledger.meter_log",
    "DELETE FROM ledger.level",
    "UPDATE ledger.meter_event SET value = '0'",
    "DELETE FROM ledger.meter_event",
    "DELETE FROM ledger.attempt",
    "UPDATE ledger.parked SET state = 'approved'",
    "INSERT INTO ledger.decision (action, reason) VALUES ('approve', 'x')",
    "INSERT INTO ledger.customer VALUES ('t', now(), 'c')",
    "UPDATE ledger.setting SET value = '0 s'",
    "SELECT ledger.approve(1, 'x')",
    "SELECT ledger.correct('t', 'api_calls', now(), 1, 'k', 'w')",
    "SELECT ledger.lift_halt('x', 'y')",
    "SELECT ledger.clear_finding(1, 'y')",
    "SELECT ledger.resume_lane(1, 'y')",
    "SELECT ledger.open_log('t', gen_random_uuid(), 'x')",
    "CREATE TABLE ledger.own ()",
    "DROP TABLE ledger.meter_log",
    "ALTER TABLE ledger.meter_log DISABLE TRIGGER ALL",
)
FINANCE_MUST_NOT = (
    "INSERT INTO ledger.meter_log (kind) VALUES ('correction')",
    "INSERT INTO ledger.decision (action, reason) VALUES ('approve', 'x')",
    "UPDATE ledger.parked SET state = 'approved'",
    "UPDATE ledger.lane SET paused = false",
    "SELECT ledger.settle_v1('{}')",
    "SELECT ledger.unfreeze('{1}')",
    "SELECT ledger.cut_entries_v1(1)",
    "SELECT ledger.note_meters_v1(1, '[]')",
)
READER_MUST_NOT = (
    "INSERT INTO ledger.setting VALUES ('a', 'b', 'c')",
    "SELECT ledger.reject(1, 'x')",
    "SELECT ledger.map_customer_v1('t', 'c', NULL, NULL, NULL, NULL, 'me')",
)


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        *(("ledger_service", s) for s in SERVICE_MUST_NOT),
        *(("ledger_finance", s) for s in FINANCE_MUST_NOT),
        *(("ledger_reader", s) for s in READER_MUST_NOT),
    ],
)
async def test_a_role_can_do_no_more_than_its_work(world: World, role: str, statement: str) -> None:
    with (
        world.database.connect(world.database.login(role)) as login,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        login.execute(statement.encode())


WRITES = ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


@pytest.mark.parametrize("role", ["ledger_reader", "ledger_finance", "public"])
async def test_people_and_readers_write_no_table_themselves(world: World, role: str) -> None:
    found = world.rows(
        "SELECT c.relname, p FROM pg_class AS c, unnest(%s::text[]) AS p"
        " WHERE c.relnamespace = 'ledger'::regnamespace AND c.relkind IN ('r', 'v', 'p')"
        " AND (has_table_privilege(%s, c.oid, p)"
        "  OR (p IN ('INSERT', 'UPDATE', 'REFERENCES')"
        "      AND has_any_column_privilege(%s, c.oid, p)))",
        list(WRITES),
        role,
        role,
    )
    assert found == []


CALLABLE = """
SELECT proname, provolatile = 'v' OR prosecdef FROM pg_proc
WHERE pronamespace = 'ledger'::regnamespace AND prorettype <> 'trigger'::regtype
  AND has_function_privilege(%s, oid, 'EXECUTE')
"""
"""With whether it could change something: PostgreSQL lets no other function write."""


async def test_readers_call_only_what_computes(world: World) -> None:
    changing = dict(world.rows(CALLABLE, "ledger_reader"))
    assert "us" in changing
    assert [name for name, changes in changing.items() if changes] == []


async def test_who_has_no_role_calls_nothing(world: World) -> None:
    assert world.rows(CALLABLE, "public") == []


async def test_a_login_without_a_role_sees_nothing(world: World) -> None:
    with (
        world.database.connect(world.database.login()) as login,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        login.execute("SELECT ledger.us(now())")


@pytest.mark.parametrize("role", ["ledger_reader", "ledger_finance", "ledger_service"])
async def test_every_role_reads_every_table_and_view(world: World, role: str) -> None:
    names = [
        name
        for (name,) in world.rows(
            "SELECT oid::regclass::text FROM pg_class"
            " WHERE relnamespace = 'ledger'::regnamespace AND relkind IN ('r', 'v')"
        )
    ]
    assert len(names) > 20
    with world.database.connect(world.database.login(role)) as login:
        for name in names:
            login.execute(f"SELECT * FROM {name} LIMIT 1".encode())
