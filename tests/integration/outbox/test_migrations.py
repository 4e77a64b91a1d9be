from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from schemas.errors import InstallRefusedError, MigrationChangedError
from schemas.migrations import install, load, missing
from tests.support.catalog import build_from_file, describe
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

Fresh = Callable[..., Database]
PARAMETERS: Mapping[str, str | int] = {
    "source": "shop",
    "partitions": 12,
    "slot": "slot_migrations",
}


def test_the_schema_file_equals_the_sum_of_the_migrations(fresh_database: Fresh) -> None:
    migrated, built = fresh_database("outbox", PARAMETERS), fresh_database()
    with built.connect() as conn:
        build_from_file(conn, "outbox", PARAMETERS)
        from_file = describe(conn, "metering")
    with migrated.connect() as conn:
        from_migrations = describe(conn, "metering")
    assert from_file == from_migrations
    assert len(from_file) > 200, "the comparison must see the schema"


def test_installing_twice_changes_nothing(fresh_database: Fresh) -> None:
    with fresh_database().connect() as conn:
        assert missing(conn, "outbox") == [m.name for m in load("outbox")]
        assert install(conn, "outbox", parameters=PARAMETERS) == [m.name for m in load("outbox")]
        before = describe(conn, "metering")
        assert install(conn, "outbox", parameters=PARAMETERS) == []
        assert missing(conn, "outbox") == []
        assert describe(conn, "metering") == before
        assert not conn.execute("SELECT current_setting('tailrace.source', true)").fetchall()[0][0]


def test_two_installations_at_a_time_wait_for_each_other(fresh_database: Fresh) -> None:
    database = fresh_database()

    def run(_: int) -> list[str]:
        with database.connect() as conn:
            return install(conn, "outbox", parameters=PARAMETERS)

    with ThreadPoolExecutor(2) as pool:
        applied = list(pool.map(run, range(2)))
    assert sorted(len(a) for a in applied) == [0, len(load("outbox"))]


def test_a_changed_migration_is_refused_by_name(fresh_database: Fresh) -> None:
    name = load("outbox")[3].name
    with fresh_database("outbox").connect() as conn:
        conn.execute(
            "UPDATE metering.migration SET sha256 = repeat('0', 64) WHERE name = %s", (name,)
        )
        with pytest.raises(MigrationChangedError, match=f"{name}.*install the release"):
            missing(conn, "outbox")
        with pytest.raises(MigrationChangedError, match=name):
            install(conn, "outbox", parameters=PARAMETERS)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"source": "other"}, "source: this database is sandbox for ever, not other; its identit"),
        (
            {"partitions": 24},
            "partitions: this database has 12, not 24; give the count it has, TAI",
        ),
        ({"Bad-Name": 1}, "parameter 'Bad-Name': use lower-case"),
    ],
)
def test_another_database_than_asked_for_is_refused(
    fresh_database: Fresh, parameters: Mapping[str, str | int], message: str
) -> None:
    with (
        fresh_database("outbox").connect() as conn,
        pytest.raises(InstallRefusedError) as refused,
    ):
        install(conn, "outbox", parameters=parameters)
    assert str(refused.value).startswith(message)


def test_an_open_transaction_is_refused(fresh_database: Fresh) -> None:
    with fresh_database().connect(autocommit=False) as conn:
        conn.execute("SELECT 1")
        with pytest.raises(InstallRefusedError, match="a transaction is open"):
            install(conn, "outbox", parameters=PARAMETERS)


def test_a_slot_of_another_database_is_refused_and_writers_stay_out(fresh_database: Fresh) -> None:
    first, second = fresh_database(), fresh_database()
    with first.connect() as conn:
        install(conn, "outbox", parameters=PARAMETERS)
    with second.connect() as conn:
        with pytest.raises(InstallRefusedError, match="slot: slot_migrations belongs to database"):
            install(conn, "outbox", parameters=PARAMETERS)
        granted = conn.execute(
            "SELECT has_schema_privilege('metering_writer', 'metering', 'USAGE')"
        ).fetchone()
        assert granted == (False,), "no writer before the slot: no row can precede it"


def test_the_source_is_fixed_at_installation(fresh_database: Fresh) -> None:
    with fresh_database("outbox").connect() as conn:
        for statement in (
            "UPDATE metering.source SET source = 'other'",
            "DELETE FROM metering.source",
            "TRUNCATE metering.source",
        ):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is fixed"):
                conn.execute(statement.encode())


@pytest.mark.parametrize("source", ["", "Shop", "9", "a b", "x" * 64])
def test_a_source_name_that_no_topic_can_carry_is_refused(
    fresh_database: Fresh, source: str
) -> None:
    with (
        fresh_database().connect() as conn,
        pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation)),
    ):
        install(conn, "outbox", parameters={**PARAMETERS, "source": source})


def test_a_slot_follows_to_a_standby_where_the_server_can(fresh_database: Fresh) -> None:
    database = fresh_database()
    with database.connect() as conn:
        install(conn, "outbox", parameters=PARAMETERS)
        found = conn.execute(
            "SELECT to_jsonb(s) FROM pg_replication_slots AS s WHERE database = %s",
            (database.name,),
        ).fetchone()
    assert found is not None
    slot = found[0]
    assert (slot["slot_name"], slot["plugin"]) == ("slot_migrations", "pgoutput")
    assert slot.get("failover", True) is True
