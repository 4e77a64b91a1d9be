"""The one exception from append-only changes words, under its receipt, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import psycopg
import pytest

from tests.integration.ledger.world import World

pytestmark = pytest.mark.postgres

NAME = "Ann Example"
ERASED = r"^erased on \S+ \(receipt {}\)$"


async def billed(world: World) -> None:
    """Usage and a correction of it by the service, settled.

    Two more corrections are finance's: one of its own, one of the service's that it approved.
    """
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    fix = world.correction("fix", -1, world.series(metric="jobs"))
    await world.tell(corrections=(fix,))
    with world.database.connect(world.database.login("ledger_finance")) as person:
        at_us = world.series().window_start_us + 2_000_000
        person.execute(
            "SELECT ledger.correct('acme', 'jobs', ledger.at(%s), 2, 'ticket', 'his words')",
            (at_us,),
        )
        reviewed = world.parked(
            "svc", reason="correction_limit", units=1, metric="jobs",
            series=world.series(metric="jobs"), record=b'{"event_key": "svc"}',
        )  # fmt: skip
        await world.tell(parked=(reviewed,))
        person.execute("SELECT ledger.approve(max(parked_id), 'hers') FROM ledger.parked")
    await world.drain()


def erase(world: World, tenant: str = "acme") -> tuple[Any, ...]:
    return world.rows(
        "SELECT changed, receipt FROM ledger.erase_tenant_v1(%s, 'asked for', 0)", tenant
    )[0]


async def test_a_service_s_words_go_and_a_person_s_stay(world: World) -> None:
    await billed(world)
    columns = "SELECT to_jsonb(e) - 'reason' - 'actor' FROM ledger.meter_log e ORDER BY entry_id"
    amounts = world.rows(columns)

    changed, receipt = erase(world)

    assert changed
    assert world.rows(columns) == amounts
    told = world.rows(
        "SELECT reference, actor, reason FROM ledger.meter_log WHERE kind = 'correction'"
    )
    words = {reference: (actor, reason) for reference, actor, reason in told}
    assert words["ticket"] == ("login_ledger_finance", "his words")
    assert words["svc"] == ("login_ledger_finance", "hers")
    assert words["fix"][0] == "erased"
    assert world.value("SELECT %s ~ %s", words["fix"][1], ERASED.format(receipt))
    assert erase(world) == (False, receipt)
    world.check()


MARK = "reason = ledger.erased_text(%s, now())"


@pytest.mark.parametrize(
    "change",
    [
        f"{MARK}, actor = 'erased', delta = delta + 1",
        f"{MARK}, actor = 'erased', content = 1",
        f"{MARK}, actor = 'erased', reference = 'another'",
        f"{MARK}, actor = 'erased', event_id = gen_random_uuid()",
        f"{MARK}, actor = 'erased', tenant_id = 'another'",
        f"{MARK}, actor = 'somebody'",
        "reason = 'another ' || %s, actor = 'erased'",
    ],
)
async def test_an_entry_changes_in_no_other_way_not_even_under_a_receipt(
    world: World, change: str
) -> None:
    await billed(world)
    receipt = world.value(
        "INSERT INTO ledger.audit_log (action, subject) VALUES ('erase_tenant', 'acme')"
        " RETURNING audit_id"
    )

    def update(wanted: str) -> None:
        with world.admin.transaction(force_rollback=True):
            world.admin.execute(
                "INSERT INTO ledger.erasure (receipt, tenant_id, reason, records, record_bytes,"
                " entries, source_rows) VALUES (%s, 'acme', 'r', 0, 0, 1, 0)",
                (receipt,),
            )
            world.admin.execute(
                f"UPDATE ledger.meter_log SET {wanted} WHERE reference = 'fix'".encode(),
                (receipt,),
            )

    update(f"{MARK}, actor = 'erased'")
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        update(change)


async def test_neither_another_tenant_s_entries_nor_a_later_transaction_s_change(
    world: World,
) -> None:
    await billed(world)
    _, receipt = erase(world, "another")
    for kind in ("correction", "event"):
        with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
            world.admin.execute(
                "UPDATE ledger.meter_log SET actor = 'erased', reason ="
                " (SELECT ledger.erased_text(receipt, erased_at) FROM ledger.erasure"
                f"  WHERE receipt = {receipt}) WHERE kind = '{kind}'".encode()
            )


RECORD = {
    "v": 1, "source": "shop", "tenant_id": "acme", "event_id": "e", "event_key": "k",
    "metric": "jobs", "quantity": "4", "attributes": {"user": NAME}, "reason": NAME,
    "authorized_by": NAME, "note": NAME,
}  # fmt: skip


async def test_of_a_record_what_names_and_counts_it_is_left(world: World) -> None:
    whole = world.parked("a", record=msgspec.json.encode(RECORD))
    nobody = world.parked(
        None, kind="dead", reason="malformed", offset=12, tenant_id=None, metric=None, units=None,
        series=None, source=None, occurred_at_us=None, received_at_us=None, detail="{}",
        record=msgspec.json.encode(RECORD | {"metric": NAME}),
    )  # fmt: skip
    others = [
        replace(nobody, offset=offset, record=record)
        for offset, record in (
            (13, b"\xff\xfe" + b'"acme"'),
            (14, b'{"tenant_id": "another", "note": "acme"}'),
            (15, b'{"tenant_id": "acme", "note": "cut'),
        )
    ]
    await world.tell(parked=(whole, nobody, *others))
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="2 parked items"):
        erase(world)
    for item, tenant in world.rows("SELECT parked_id, tenant_id FROM ledger.parked ORDER BY 1"):
        if tenant == "acme" or item == world.value(
            "SELECT parked_id FROM ledger.parked WHERE record_offset = 12"
        ):
            world.rows("SELECT ledger.reject(%s, 'no')", item)
    (records, named) = world.rows("SELECT records, named FROM ledger.erasable('acme')")[0]
    assert (records, named) == (2, 3)

    changed, receipt = erase(world)

    assert changed
    left = {
        offset: msgspec.json.decode(bytes(record))
        for offset, record in world.rows(
            "SELECT record_offset, record FROM ledger.parked WHERE erased_receipt = %s", receipt
        )
    }
    assert set(left) == {11, 12}
    marks = [record.pop("erased") for record in left.values()]
    assert {world.value("SELECT %s ~ %s", mark, ERASED.format(receipt)) for mark in marks} == {True}
    named_by = {key: RECORD[key] for key in ("source", "tenant_id", "event_id", "event_key")}
    assert left[12] == named_by
    assert left[11] == named_by | {"v": 1, "metric": "jobs", "quantity": "4"}
    # What nobody says whose it is stays as it came.
    assert world.value("SELECT count(*) FROM ledger.parked WHERE erased_receipt IS NULL") == 3


async def test_a_service_s_words_are_not_copied_to_where_nobody_may_erase_them(
    world: World,
) -> None:
    await world.map()
    await world.tell(events=(world.event("a", 4),))
    await world.settle(await world.only_claim(), "dead", dead="refused")
    fix = world.correction("fix", -4, world.series(metric="jobs"))
    await world.tell(corrections=(fix,))
    assert world.rows("SELECT state FROM ledger.parked") == [("corrected",)]
    holding = [
        table
        for table in ("decision", "audit_log", "parked", "meter_log")
        if world.value(
            f"SELECT count(*) FROM ledger.{table} AS t WHERE t::text LIKE '%%measured twice%%'"
        )
    ]
    assert holding == ["meter_log"]


ROLES = ("ledger_service", "ledger_finance", "ledger_reader", "public")


@pytest.mark.parametrize("role", ROLES)
async def test_only_one_role_may_erase(world: World, role: str) -> None:
    may = (
        "SELECT has_function_privilege(%s, 'ledger.erase_tenant_v1(text, text, bigint)', 'EXECUTE')"
    )
    assert not world.value(may, role)
    assert world.value(may, "ledger_eraser")


async def test_who_may_erase_can_do_nothing_else(world: World) -> None:
    found = world.rows(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'ledger'::regnamespace"
        " AND prorettype <> 'trigger'::regtype AND (provolatile = 'v' OR prosecdef)"
        " AND has_function_privilege('ledger_eraser', oid, 'EXECUTE')"
    )
    assert found == [("erase_tenant_v1",)]
    with world.database.connect(world.database.login("ledger_eraser")) as login:
        for statement in (
            "UPDATE ledger.parked SET record = NULL",
            "UPDATE ledger.meter_log SET reason = 'x'",
            "INSERT INTO ledger.erasure DEFAULT VALUES",
            "DELETE FROM ledger.audit_log",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                login.execute(statement.encode())
