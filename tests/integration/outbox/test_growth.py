"""More partitions for an outbox that is in use: its canaries follow, and nothing half of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from schemas.errors import InstallRefusedError
from schemas.migration_files import migration_files
from schemas.migrations import install, load
from streams.engine.partitioner import home_partition
from tests.integration.outbox.conftest import Connect, Row
from tests.support.outbox import all_of, one, outbox_rows, record
from tests.support.postgres import Database, lock_waiters
from tests.support.waiting import until

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]
Fresh = Callable[..., Database]
KEYS = "SELECT partition, tenant_id FROM metering.canary_key ORDER BY partition"


def grow(conn: Conn, partitions: int) -> Row:
    return one(conn, "SELECT * FROM metering.grow_partitions(%s)", (partitions,))


def count(conn: Conn) -> int:
    return int(one(conn, "SELECT partition_count FROM metering.source")["partition_count"])


def emitted(conn: Conn) -> list[int]:
    return [row["partition"] for row in all_of(conn, "SELECT * FROM metering.emit_canaries()")]


def test_after_it_a_canary_falls_on_every_partition(ops: Conn, admin: Conn) -> None:
    assert emitted(ops) == list(range(12))
    assert grow(ops, 24) == {
        "action": "grown",
        "detail": "from 12 to 24 partitions, each with a canary key of its own",
    }
    before = {row["event_id"] for row in outbox_rows(admin)}
    assert emitted(ops) == list(range(24))
    sent = [row for row in outbox_rows(admin) if row["event_id"] not in before]
    assert len(sent) == 24
    for row in sent:
        assert row["payload"]["partition"] == home_partition(row["kafka_key"].encode(), 24)


def test_its_keys_are_those_of_a_new_installation(
    ops: Conn, admin: Conn, fresh_database: Fresh
) -> None:
    grow(ops, 48)
    with fresh_database("outbox", {"partitions": 48}).connect() as conn:
        installed = conn.execute(KEYS.encode()).fetchall()
    assert [(row["partition"], row["tenant_id"]) for row in all_of(admin, KEYS)] == installed


def test_it_can_grow_to_as_many_as_there_can_be(fresh_database: Fresh) -> None:
    with fresh_database("outbox", {"partitions": 1}).connect() as conn:
        for partitions in (4, 1024):
            conn.execute("SELECT metering.grow_partitions(%s)", (partitions,))
        keys = conn.execute(KEYS.encode()).fetchall()
        assert [partition for partition, _ in keys] == list(range(1024))
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="1 and 1024, is 2048"):
            conn.execute("SELECT metering.grow_partitions(2048)")


def test_the_same_count_again_changes_nothing_and_says_so(ops: Conn, admin: Conn) -> None:
    assert grow(ops, 12) == {"action": "unchanged", "detail": "has 12 partitions already"}
    grow(ops, 36)
    rows = "SELECT xmin::text, * FROM metering."
    before = [all_of(admin, rows + name) for name in ("source", "canary_key", "growth")]
    assert grow(ops, 36)["action"] == "unchanged"
    assert [all_of(admin, rows + name) for name in ("source", "canary_key", "growth")] == before


def test_it_is_kept_who_grew_it_and_from_where(ops: Conn, admin: Conn) -> None:
    grow(ops, 24)
    grow(ops, 72)
    rows = all_of(admin, "SELECT * FROM metering.growth ORDER BY partitions")
    assert [(row["partitions_before"], row["partitions"]) for row in rows] == [(12, 24), (24, 72)]
    assert {row["grown_by"] for row in rows} == {ops.info.user}


@pytest.mark.parametrize(
    ("partitions", "said", "hint"),
    [
        (None, "must lie between 1 and 1024, is NULL", "the count that the topics have"),
        (0, "must lie between 1 and 1024, is 0", "the count that the topics have"),
        (-12, "must lie between 1 and 1024, is -12", "the count that the topics have"),
        (1200, "must lie between 1 and 1024, is 1200", "the count that the topics have"),
        (6, "must not be less than the 12 there are, is 6", "are never taken away"),
        (18, "must be a whole multiple of the 12 there are, is 18", "pass 24, for example"),
    ],
)
def test_another_count_is_refused_by_field_and_rule(
    ops: Conn, admin: Conn, partitions: int | None, said: str, hint: str
) -> None:
    before = all_of(admin, KEYS)
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        ops.execute("SELECT metering.grow_partitions(%s)", (partitions,))
    diagnosis = refused.value.diag
    assert diagnosis.message_primary == f"partitions: {said}"
    assert diagnosis.column_name == "partitions"
    assert hint in str(diagnosis.message_hint)
    assert (count(admin), all_of(admin, KEYS)) == (12, before)


def test_where_no_multiple_is_left_nothing_is_proposed(fresh_database: Fresh) -> None:
    with (
        fresh_database("outbox", {"partitions": 600}).connect() as conn,
        pytest.raises(psycopg.errors.InvalidParameterValue) as refused,
    ):
        conn.execute("SELECT metering.grow_partitions(900)")
    assert "these are all it can have" in str(refused.value.diag.message_hint)


def waits(admin: Conn, conn: Conn) -> None:
    until("it waits for the lock", lambda: lock_waiters(admin, conn.info.backend_pid) == 1)


def test_canaries_that_are_being_sent_are_committed_before_it_grows(
    connect: Connect, admin: Conn
) -> None:
    sender, grower = connect("metering_ops", autocommit=False), connect("metering_ops")
    assert emitted(sender) == list(range(12))
    with ThreadPoolExecutor(1) as pool:
        growing = pool.submit(grow, grower, 24)
        waits(admin, grower)
        assert count(admin) == 12
        sender.commit()
        assert growing.result(10)["action"] == "grown"
    assert emitted(sender) == list(range(24))
    sender.rollback()


def test_canaries_that_are_sent_while_it_grows_are_for_every_partition(
    connect: Connect, admin: Conn
) -> None:
    grower, sender = connect("metering_ops", autocommit=False), connect("metering_ops")
    assert emitted(sender) == list(range(12)), "its statements are planned and kept"
    grow(grower, 24)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(emitted, sender)
        waits(admin, sender)
        grower.commit()
        assert sending.result(10) == list(range(24))


def test_two_that_grow_it_do_so_once(connect: Connect, admin: Conn) -> None:
    first, second = connect("metering_ops", autocommit=False), connect("metering_ops")
    assert grow(first, 24)["action"] == "grown"
    with ThreadPoolExecutor(1) as pool:
        growing = pool.submit(grow, second, 24)
        waits(admin, second)
        first.commit()
        assert growing.result(10)["action"] == "unchanged"
    assert len(all_of(admin, "SELECT FROM metering.growth")) == 1


def test_one_that_breaks_off_leaves_everything_as_it_was(connect: Connect, admin: Conn) -> None:
    before = all_of(admin, KEYS)
    conn = connect("metering_ops", autocommit=False)
    grow(conn, 24)
    conn.rollback()
    assert (count(admin), all_of(admin, KEYS)) == (12, before)
    assert all_of(admin, "SELECT * FROM metering.growth") == []


def test_recording_goes_on_while_it_grows(connect: Connect) -> None:
    writer = connect("metering_writer", autocommit=False)
    record(writer, event_key="before")
    grower = connect("metering_ops", autocommit=False)
    assert grow(grower, 24)["action"] == "grown", "an open recording holds nothing up"
    assert record(writer, event_key="while")["status"] == "recorded"
    grower.commit()
    writer.commit()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SET partition_count = 24", "partition_count: only grows, by metering.grow_partitions"),
        ("SET partition_count = 12", "partition_count: only grows, by metering.grow_partitions"),
        ("SET source = 'other', partition_count = 24", "metering.source: is fixed"),
    ],
)
def test_the_count_is_changed_by_nothing_else(admin: Conn, statement: str, said: str) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=said):
        admin.execute(f"UPDATE metering.source {statement}".encode())


def installed_for(conn: psycopg.Connection[Any], partitions: int) -> list[str]:
    return install(conn, "outbox", parameters={"source": "sandbox", "partitions": partitions})


def test_installing_again_knows_the_count_it_had_and_the_one_it_has(
    outbox: Database, ops: Conn
) -> None:
    grow(ops, 24)
    with outbox.connect() as conn:
        assert installed_for(conn, 24) == installed_for(conn, 12) == []
        with pytest.raises(InstallRefusedError) as more:
            installed_for(conn, 48)
        with pytest.raises(InstallRefusedError) as other:
            installed_for(conn, 36)
    said = "partitions: this database has 24, not {}; give the count it has, TAILRACE_PARTITIONS=24"
    way = "; where the topics have grown to 48, `tailrace source grow --partitions 48` tells it so"
    assert str(more.value) == said.format(48) + way
    assert str(other.value) == said.format(36)


def test_files_that_were_written_for_fewer_partitions_run_on_a_grown_outbox(
    outbox: Database, ops: Conn
) -> None:
    """Files are never written anew: those of a later release name the count of the first."""
    grow(ops, 24)
    *_, last = migration_files("outbox", {"source": "sandbox", "partitions": 12})
    with outbox.connect() as conn:
        conn.execute(last.text.encode())


def test_the_migration_waits_for_nobody_who_records(
    fresh_database: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, everything = fresh_database(), load("outbox")
    parameters: Mapping[str, str | int] = {"source": "shop", "slot": "slot_growth"}
    growth = next(m.name for m in everything if m.name.endswith("_pre_growth"))
    with database.connect() as conn, monkeypatch.context() as patch:
        patch.setattr(
            "schemas.migrations.load", lambda _: [m for m in everything if m.name < growth]
        )
        install(conn, "outbox", parameters=parameters)
    dsn = database.dsn(database.login("metering_writer"))
    with (
        psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as writer,
        database.connect() as conn,
    ):
        record(writer)  # its transaction stays open
        conn.execute("SET lock_timeout = '5s'")
        assert growth in install(conn, "outbox", parameters=parameters)
