from __future__ import annotations

import asyncio

import psycopg
import pytest
from structlog.testing import capture_logs

from streams.adapters.ledger import Ledger
from streams.adapters.ledger_pool import REPEATS_MAX, Connection, LedgerPool, LedgerRefusedError
from streams.adapters.ledger_publishing import LedgerPublishing
from streams.ports import LedgerUnavailableError
from tests.integration.ledger.world import World
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres
ROLES = "ledger_service, ledger_finance, ledger_reader"


async def test_a_ledger_that_is_not_there_is_unavailable(database: Database) -> None:
    pool = LedgerPool("host=127.0.0.1 port=1 dbname=x connect_timeout=1", timeout_s=0.2)
    await pool.open()
    try:
        with pytest.raises(LedgerUnavailableError, match="ledger: "):
            await LedgerPublishing(pool, "default", livemode=False).cut_entries(1)
    finally:
        await pool.close()


async def test_a_closed_pool_is_unavailable(database: Database) -> None:
    pool = LedgerPool(database.dsn())
    await pool.open()
    await pool.close()

    with pytest.raises(LedgerUnavailableError):
        await LedgerPublishing(pool, "default", livemode=False).cut_entries(1)


async def test_connections_cut_by_the_server_are_replaced(world: World) -> None:
    await world.tell(events=(world.event("a", 4),))
    world.admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'tailrace' AND datname = current_database()"
    )

    await world.tell(events=(world.event("b", 4),))

    assert world.balance("total") == 8


async def test_who_sleeps_in_a_transaction_loses_its_locks(world: World) -> None:
    """A suspended worker would else keep its lanes from all others for as long as it sleeps."""
    await world.tell(events=(world.event("a", 4),))
    pool = LedgerPool(world.database.dsn(world.database.login("ledger_service")), idle_ms_max=100)
    await pool.open()

    async def sleeps(conn: Connection) -> None:
        await conn.execute("SELECT pg_advisory_xact_lock(4711)")
        with world.database.connect() as other:
            other.execute("SET lock_timeout = '20s'")
            other.execute("SELECT pg_advisory_xact_lock(4711)")  # waits until it is free
        await conn.execute("SELECT 1")

    try:
        with pytest.raises(LedgerUnavailableError, match="idle-in-transaction"):
            await pool.run(sleeps)
    finally:
        await pool.close()


async def test_who_dies_before_a_claim_is_committed_has_attempted_nothing(world: World) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    pool = LedgerPool(world.database.dsn(world.database.login("ledger_service")))
    await pool.open()

    class DeathError(BaseException):
        pass

    def dies(step: str) -> None:
        assert step == "attempts_written"
        assert world.rows("SELECT count(*) FROM ledger.attempt") == [(0,)], "seen by others"
        raise DeathError

    try:
        claiming = Ledger(pool, account="default", livemode=False, crash_at=dies)
        with pytest.raises(DeathError):
            await claiming.claim("dies", 16, 60)
    finally:
        await pool.close()

    assert (await world.only_claim()).previous_attempts == 0


async def test_a_connection_cut_in_a_transaction_keeps_nothing(database: Database) -> None:
    pool = LedgerPool(database.dsn(database.login("ledger_service")))
    await pool.open()

    async def dies(conn: Connection) -> None:
        await conn.execute("INSERT INTO ledger.audit_log (action, subject) VALUES ('x', 'x')")
        with database.connect() as admin:
            admin.execute("SELECT pg_terminate_backend(%s)", (conn.info.backend_pid,))
        await conn.execute("SELECT 1")

    try:
        with pytest.raises(LedgerUnavailableError):
            await pool.run(dies)
    finally:
        await pool.close()
    with database.connect() as admin:
        assert admin.execute("SELECT FROM ledger.audit_log WHERE action = 'x'").fetchone() is None


@pytest.mark.parametrize("failures", [1, REPEATS_MAX - 1, REPEATS_MAX])
async def test_deadlocks_and_lost_races_are_repeated_a_few_times(
    database: Database, failures: int
) -> None:
    pool = LedgerPool(database.dsn())
    await pool.open()
    tries = 0

    async def work(conn: Connection) -> int:
        nonlocal tries
        tries += 1
        if tries <= failures:
            raise psycopg.errors.DeadlockDetected
        return tries

    try:
        if failures < REPEATS_MAX:
            assert await pool.run(work) == failures + 1
        else:
            with pytest.raises(LedgerUnavailableError):
                await pool.run(work)
    finally:
        await pool.close()
    assert tries == min(failures + 1, REPEATS_MAX)


async def test_what_a_rule_refuses_is_not_taken_for_an_outage(database: Database) -> None:
    """Said again it would be refused again, for ever, under the name of an outage."""
    pool = LedgerPool(database.dsn(database.login("ledger_service")))
    await pool.open()

    async def work(conn: Connection) -> None:
        await conn.execute(
            "DO $$ BEGIN RAISE EXCEPTION 'meter event 7: superseded' USING"
            " ERRCODE = 'object_not_in_prerequisite_state'; END $$"
        )

    try:
        with pytest.raises(LedgerRefusedError, match="meter event 7: superseded"):
            await pool.run(work)
    finally:
        await pool.close()


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        (f"REVOKE USAGE ON SCHEMA ledger FROM {ROLES}", f"GRANT USAGE ON SCHEMA ledger TO {ROLES}"),
        ("ALTER SCHEMA ledger RENAME TO restored", "ALTER SCHEMA restored RENAME TO ledger"),
        ("ALTER TABLE ledger.halt RENAME TO h", "ALTER TABLE ledger.h RENAME TO halt"),
    ],
)
async def test_a_ledger_that_is_being_restored_is_waited_for(
    database: Database, broken: str, whole: str
) -> None:
    """A worker that ended by it would have to be started again by whoever restores."""
    pool = LedgerPool(database.dsn(database.login("ledger_service")))
    await pool.open()

    async def asks(conn: Connection) -> None:
        await conn.execute("SELECT count(*) FROM ledger.halt")

    await pool.run(asks)
    try:
        with database.connect() as admin, capture_logs() as lines:
            admin.execute(broken.encode())
            admin.commit()
            for _ in range(2):
                with pytest.raises(LedgerUnavailableError, match="tailrace schema check"):
                    await pool.run(asks)
            admin.execute(whole.encode())
            admin.commit()
            await pool.run(asks)
    finally:
        await pool.close()
    assert [line["event"] for line in lines] == ["ledger_not_whole", "ledger_whole"]


async def test_everybody_at_once_ends_with_everything_settled(world: World) -> None:
    tenants = [f"t{n}" for n in range(8)]

    async def facts(partition: int) -> None:
        for n in range(12):
            batch = world.batch(
                events=tuple(world.event(f"{partition}/{n}/{t}", 1, t) for t in tenants),
                corrections=tuple(
                    world.correction(f"c{partition}/{n}/{t}", 1, world.series(t)) for t in tenants
                ),
            )
            await world.ledger.apply_facts(batch)

    async def map_all() -> None:
        for tenant in tenants:
            await world.map(tenant, f"cus_{tenant}")

    async def publish() -> None:
        for _ in range(40):
            for claim in await world.claim(4):
                await world.settle(claim)

    await asyncio.gather(facts(1), facts(2), map_all(), publish(), publish())
    await world.drain()

    amounts = await world.ledger.audit.amounts()
    assert amounts.settled == amounts.total + amounts.decided == 2 * 12 * 8 * 2
    assert amounts.pending == 0
