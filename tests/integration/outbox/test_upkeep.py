from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.conftest import Connect, Row
from tests.support.outbox import all_of, correct, one, outbox_rows, record

pytestmark = pytest.mark.postgres
Conn = psycopg.Connection[Row]

OLD = datetime(2026, 1, 5, 12, 30, 7, 123456, tzinfo=UTC)
PARTITIONS = (
    "SELECT inhrelid::regclass::text AS name FROM pg_inherits"
    " WHERE inhparent = 'metering.usage_outbox'::regclass ORDER BY 1"
)


def partitions(conn: Conn) -> list[str]:
    names = [row["name"].removeprefix("metering.") for row in all_of(conn, PARTITIONS)]
    return [name.removeprefix("usage_outbox_") for name in names]


def installed_on(conn: Conn) -> date:
    """The day of the template's installation: the test may run on the next."""
    text = "SELECT max(applied_at AT TIME ZONE 'UTC')::date AS d FROM metering.migration"
    day = one(conn, text)["d"]
    assert isinstance(day, date)
    return day


def maintain(conn: Conn, *arguments: int) -> dict[str, tuple[str, str]]:
    marks = ", ".join(["%s"] * len(arguments))
    rows = all_of(conn, f"SELECT * FROM metering.maintain({marks})", arguments)
    return {r["partition"].removeprefix("usage_outbox_"): (r["action"], r["detail"]) for r in rows}


def aged(admin: Conn, writer: Conn, *, in_partition: bool = True, key: str = "old") -> str:
    """A recorded event whose rows all date from `OLD`; returns its partition's short name."""
    name = f"p{OLD:%Y%m%d}" if in_partition else "default"
    record(writer, event_key=key)
    if in_partition and name not in partitions(admin):
        admin.execute("SET ROLE metering_owner")
        all_of(admin, "SELECT * FROM metering.ensure_partitions(0, %s)", (OLD.date(),))
        admin.execute("RESET ROLE")
    admin.execute("UPDATE metering.usage_key SET received_at = %s WHERE event_key = %s", (OLD, key))
    admin.execute(
        "UPDATE metering.usage_outbox SET emitted_at = %s, received_at = %s"
        " WHERE payload ->> 'event_key' = %s",
        (OLD, OLD, key),
    )
    return name


def seal(ops: Conn) -> None:
    ops.execute("SELECT metering.seal(%s)", ([OLD],))


def test_a_new_outbox_has_partitions_for_a_week_and_a_default(admin: Conn) -> None:
    first = installed_on(admin)
    expected = [f"p{first + timedelta(days=n):%Y%m%d}" for n in range(8)]
    assert partitions(admin) == ["default", *expected]


def test_partitions_are_made_ahead_while_writers_go_on(
    connect: Connect, ops: Conn, admin: Conn
) -> None:
    writing = connect("metering_writer", autocommit=False)
    record(writing)
    first = installed_on(admin)
    today = one(admin, "SELECT (now() AT TIME ZONE 'UTC')::date AS d")["d"]
    made = maintain(ops, 14, 10)
    assert [action for action, _ in made.values()] == ["created"] * (3 + (today - first).days)
    assert maintain(ops, 14, 10) == {}
    writing.commit()
    assert len(partitions(admin)) == 1 + 11 + (today - first).days
    assert outbox_rows(admin)


@pytest.mark.parametrize(("days", "ahead"), [(0, 7), (14, 0), (14, 91)])
def test_senseless_retention_is_refused(ops: Conn, days: int, ahead: int) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="days: must"):
        maintain(ops, days, ahead)


def test_an_unsealed_row_is_never_dropped(ops: Conn, writer: Conn, admin: Conn) -> None:
    name = aged(admin, writer)
    for _ in range(2):
        action, detail = maintain(ops)[name]
        assert action == "kept"
        assert "2026-01-05T12:30:00.000000Z" in detail
    seal(ops)
    assert maintain(ops)[name][0] == "dropped"
    assert name not in partitions(admin)
    assert outbox_rows(admin) == []
    assert record(writer, event_key="old")["status"] == "duplicate", "the registry remembers"


def test_a_row_sent_again_keeps_its_partition_until_its_own_minute_is_sealed(
    ops: Conn, writer: Conn, admin: Conn
) -> None:
    name = aged(admin, writer)
    admin.execute("UPDATE metering.usage_outbox SET received_at = received_at - interval '1 hour'")
    seal(ops)
    assert maintain(ops)[name][0] == "kept"


def test_an_open_writer_of_an_old_day_keeps_its_partition(
    connect: Connect, ops: Conn, writer: Conn, admin: Conn
) -> None:
    name = aged(admin, writer)
    seal(ops)
    holding = connect(autocommit=False)
    holding.execute(
        f"INSERT INTO metering.usage_outbox_{name}"
        f" SELECT * FROM metering.usage_outbox_{name}".encode()
    )
    assert maintain(ops)[name][0] == "busy"
    holding.rollback()
    assert maintain(ops)[name][0] == "dropped"


def test_partitions_within_retention_stay(ops: Conn, writer: Conn, admin: Conn) -> None:
    name = aged(admin, writer)
    seal(ops)
    days = one(admin, "SELECT (now() AT TIME ZONE 'UTC')::date - %s AS n", (OLD.date(),))["n"]
    assert name not in maintain(ops, days)
    assert maintain(ops, days - 1)[name][0] == "dropped"


def test_a_missed_run_fails_no_business_transaction_and_is_alarmed(
    ops: Conn, writer: Conn, admin: Conn
) -> None:
    today = one(admin, "SELECT (now() AT TIME ZONE 'UTC')::date AS d")["d"]
    for name in partitions(admin):
        if name != "default":
            admin.execute(f"DROP TABLE metering.usage_outbox_{name}".encode())
    assert record(writer)["status"] == "recorded"
    report = maintain(ops)
    assert report[f"p{today:%Y%m%d}"][0] == "kept", "its rows stand in the default partition"
    assert report[f"p{today + timedelta(days=1):%Y%m%d}"][0] == "created"
    assert report["default"] == (
        "alarm",
        "1 rows found no partition of their day: run maintain at least once a day",
    )


def test_the_default_partition_is_emptied_like_any_other(
    ops: Conn, writer: Conn, admin: Conn
) -> None:
    aged(admin, writer, in_partition=False)
    assert maintain(ops)["default"][0] == "alarm"
    seal(ops)
    assert "default" not in maintain(ops)
    assert outbox_rows(admin) == []


def test_old_canaries_go_without_looking_like_a_change(ops: Conn, admin: Conn) -> None:
    all_of(ops, "SELECT * FROM metering.emit_canaries()")
    admin.execute("UPDATE metering.canary SET received_at = %s", (OLD,))
    maintain(ops)
    count = "SELECT count(*) AS n FROM metering.canary"
    assert one(admin, count)["n"] == 12, "not sealed yet"
    seal(ops)
    maintain(ops)
    assert one(admin, count)["n"] == 0
    assert all_of(ops, "SELECT * FROM metering.sealed_changes('-infinity', 'infinity')") == []


REEMIT = "SELECT metering.reemit(%s, %s, %s) AS rows"


def everything(writer: Conn, corrector: Conn) -> None:
    record(writer, quantity="1.50", attributes='{"k": "v"}', occurred_at="2026-11-29 12:00:00+00")
    record(writer, event_key="k2")
    record(writer, event_key="k2", quantity="4", attributes='{"other": 1}')
    record(writer, event_key="k2", quantity="5")
    correct(corrector)
    correct(corrector, delta="-2")


def as_sent(rows: list[Row]) -> list[tuple[Any, ...]]:
    """All but when it was sent."""
    names = ("event_id", "kafka_key", "event_type", "schema_version", "received_at", "payload")
    return sorted((tuple(str(row[name]) for name in names) for row in rows), key=str)


def test_what_is_sent_again_is_the_same_but_for_when(
    writer: Conn, corrector: Conn, ops: Conn, admin: Conn
) -> None:
    everything(writer, corrector)
    all_of(ops, "SELECT * FROM metering.emit_canaries()")
    first = outbox_rows(admin)
    audit = "SELECT * FROM metering.audit_minutes('-infinity', 'infinity')"
    before = all_of(ops, audit)
    until = one(admin, "SELECT clock_timestamp() AS t")["t"]
    assert one(ops, REEMIT, (first[0]["received_at"], until, "slot lost"))["rows"] == 6
    again = [row for row in outbox_rows(admin) if row["emitted_at"] > until]
    assert as_sent(again) == as_sent(first)
    assert again[-1]["event_type"] == "metering.canary", "it speaks for all before it"
    assert all(row["emitted_at"] > row["received_at"] for row in again)
    assert all_of(ops, audit) == before, "sending again moves no count"
    assert one(ops, REEMIT, (first[0]["received_at"], until, "once more"))["rows"] == 6
    assert as_sent([r for r in outbox_rows(admin) if r["emitted_at"] > until]) == sorted(
        as_sent(first) * 2, key=str
    )


def test_sending_again_is_written_down(
    writer: Conn, corrector: Conn, ops: Conn, admin: Conn
) -> None:
    everything(writer, corrector)
    start = outbox_rows(admin)[0]["received_at"]
    end = start + timedelta(hours=1)
    one(ops, REEMIT, (start, end, "slot lost"))
    row = one(admin, "SELECT * FROM metering.reemission")
    assert (row["usage_rows"], row["conflict_rows"], row["correction_rows"]) == (2, 3, 1)
    assert (row["from_received_at"], row["to_received_at"]) == (start, end)
    assert (row["reason"], row["requested_by"]) == ("slot lost", "login_metering_ops")


def test_the_range_is_half_open(writer: Conn, ops: Conn, admin: Conn) -> None:
    first, second = record(writer)["received_at"], record(writer, event_key="k2")["received_at"]
    assert one(ops, REEMIT, (first, second, "x"))["rows"] == 1
    assert outbox_rows(admin)[-1]["payload"]["event_key"] == "k1"


def test_after_retention_only_the_attributes_are_gone(
    writer: Conn, corrector: Conn, ops: Conn, admin: Conn
) -> None:
    everything(writer, corrector)
    first = outbox_rows(admin)
    admin.execute("DELETE FROM metering.usage_outbox")
    end = one(admin, "SELECT clock_timestamp() AS t")["t"]
    one(ops, REEMIT, (first[0]["received_at"], end, "slot lost"))
    for row in first:
        row["payload"]["attributes"] = {}
    assert as_sent(outbox_rows(admin)) == as_sent(first)


@pytest.mark.parametrize(
    ("start", "end", "reason", "message"),
    [
        (timedelta(hours=-1), timedelta(0), "", "reason: must not be empty"),
        (timedelta(0), timedelta(0), "x", "from_received_at: must lie before to_received_at"),
        (None, timedelta(0), "x", "from_received_at: must lie before to_received_at"),
        (timedelta(days=-8), timedelta(0), "x", "from_received_at: must not be older than 7 days"),
    ],
)
def test_a_senseless_or_too_old_range_is_refused(
    ops: Conn, start: timedelta | None, end: timedelta, reason: str, message: str
) -> None:
    now = one(ops, "SELECT clock_timestamp() AS t")["t"]
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        one(ops, REEMIT, (None if start is None else now + start, now + end, reason))
    assert (refused.value.diag.message_primary or "").startswith(message)


def test_the_owner_may_widen_the_reemission_horizon(writer: Conn, ops: Conn, admin: Conn) -> None:
    aged(admin, writer)
    admin.execute("UPDATE metering.setting SET value = '1000 days' WHERE name = 'reemit_horizon'")
    assert one(ops, REEMIT, (OLD, OLD + timedelta(seconds=1), "x"))["rows"] == 1


def test_meters_are_pushed_once_and_keep_their_scale(ops: Conn, writer: Conn) -> None:
    put = "SELECT metering.put_metric(%s, %s, %s, %s) AS changed"
    assert one(ops, put, ("api_calls", 2, None, True))["changed"] is True
    assert one(ops, put, ("api_calls", 2, None, True))["changed"] is False
    assert one(ops, put, ("api_calls", 2, 5, True))["changed"] is True
    assert one(ops, put, ("api_calls", 2, None, True))["changed"] is False, "the limit stands"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="scale: is 2 for api_calls"):
        one(ops, put, ("api_calls", 3, None, True))
    assert record(writer)["status"] == "recorded"
    assert one(ops, put, ("api_calls", 2, None, False))["changed"] is True
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no longer valid"):
        record(writer, event_key="k2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", 0, None, True), "name: must not be empty"),
        (("tailrace.canary", 0, None, True), "name: must not begin with"),
        (("m", None, None, True), "scale: must lie between 0 and 12"),
        (("m", 13, None, True), "scale: must lie between 0 and 12"),
        (("m", 0, -1, True), "correction_limit: must be a finite amount"),
    ],
)
def test_a_senseless_meter_is_refused(
    ops: Conn, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
        one(ops, "SELECT metering.put_metric(%s, %s, %s, %s)", arguments)


@pytest.mark.parametrize(("tenant", "shards"), [("acme", 0), ("acme", 65), ("a#b", 2)])
def test_senseless_shards_are_refused(ops: Conn, tenant: str, shards: int) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        ops.execute("SELECT metering.set_shards(%s, %s)", (tenant, shards))


def test_partition_names_follow_the_utc_day_in_any_session(connect: Connect, admin: Conn) -> None:
    conn = connect("metering_ops")
    conn.execute("SET timezone = 'Pacific/Kiritimati'")
    conn.execute("SET datestyle = 'German'")
    maintain(conn, 14, 9)
    bounds = all_of(
        admin,
        "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) AS bound FROM pg_class AS c"
        " WHERE c.relname ~ '^usage_outbox_p' ORDER BY 1",
    )
    for row in bounds:
        day = date.fromisoformat(row["relname"].removeprefix("usage_outbox_p"))
        assert f"FROM ('{day} 00:00:00+00')" in row["bound"]
