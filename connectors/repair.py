"""The repair run: a lost, advanced or foreign slot → a new one, and the gap's rows sent again.

A slot that is gone or was advanced never yields the rows it passed; they exist in the outbox
registry only. So the run forgets the stored position, makes a new slot, and re-emits from a time
before the gap. The order matters: the slot exists before the rows are put in again, so it holds
them; it is made only when no older transaction is open, so each row is in the slot or visible to
the re-emission.

Re-emitted rows keep their identity, so what had arrived before is a duplicate and counts nothing.
The connector is stopped first and started last, behind the guard; a run that breaks off leaves it
stopped and is simply run again. `plan` reads only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import Connection

from connectors.apply import STOP_WITHIN_S, start
from connectors.capture import Capture
from connectors.capture_queries import rows
from connectors.connect_answers import ConnectorStatus
from connectors.errors import NothingToRepairError, RepairRefusedError, StateNotReachedError
from connectors.guard_findings import GuardFinding, Start, must_stop
from connectors.observation import Observation
from connectors.slot_guard import judge
from connectors.source_registry import SourceIdentity, SourceStore

SLOT_WITHIN_S = 60
"""How long a new slot may wait for open transactions."""
RELEASE_WITHIN_S = 30.0
FORGET_WITHIN_S = 15.0
_FAILOVER_SLOTS_FROM = 170000
_CLOCK_SET_BACK_MAX = timedelta(days=1)
"""Rows recorded before the database's clock was set back are dated ahead of it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RepairOrder:
    """What the operator decides."""

    from_us: int
    """Re-emit what was received from here on; microseconds since 1970, UTC (`repair_from_us`)."""
    reason: str
    """Why; it is kept with the re-emission."""
    accept_identity: bool = False
    """Take the database as it is now for the source, after a restore or failover."""
    even_if_healthy: bool = False
    """Run although the guard finds nothing; costs duplicates, loses nothing."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a run would do, and why it is needed."""

    findings: tuple[GuardFinding, ...]
    """What the guard refuses now."""
    steps: tuple[str, ...]
    from_us: int
    new_identity: SourceIdentity | None
    """The identity to register in place of the old one, if it changed."""


@dataclass(frozen=True, slots=True)
class RepairReceipt:
    """What a run did; keep it with the incident."""

    slot_lsn: str
    """Where the new slot begins."""
    from_us: int
    to_us: int
    """The re-emitted range of `received_at`, half-open; microseconds since 1970, UTC."""
    rows: int
    """Rows put into the outbox again."""
    new_identity: SourceIdentity | None
    status: ConnectorStatus


@dataclass(frozen=True, slots=True)
class RepairTools:
    """What a run needs beside the capture."""

    store: SourceStore
    connect: Callable[[], Connection[Any]]
    """Opens a connection to the source's database, in autocommit, as a role that may make slots and
    may execute `metering.reemit`."""


def repair_from_us(last_sealed_us: int, longest_transaction_us: int) -> int:
    """Where a re-emission must begin so that it misses nothing.

    Args:
        last_sealed_us: end of the last minute that the audit has sealed.
        longest_transaction_us: the longest that a transaction may have been open: a row is dated
            when it is recorded, but sent when it is committed.
    """
    return last_sealed_us - longest_transaction_us


def plan(capture: Capture, order: RepairOrder) -> RepairPlan:
    """Say what a run would do; changes nothing.

    Raises:
        NothingToRepairError: the guard refuses nothing, and the order is not to go on all the same.
        RepairRefusedError: the order does not cover what was found.
        SourceUnavailableError: the database is away.
    """
    seen = capture.observe()
    findings = tuple(must_stop(_judged(capture, seen)))
    _check_order(order, seen, findings)
    changed = seen.identity != capture.identity
    if changed and not order.accept_identity:
        raise RepairRefusedError(
            f"source {seen.identity.source}: {findings[0].evidence}. If this database is the "
            "source from now on, say so in the order (accept the identity)"
        )
    slot = capture.settings.slot
    begin = _instant(order.from_us).isoformat().replace("+00:00", "Z")
    steps = [
        f"stop connector {capture.name}" if seen.status else "",
        f"delete the position stored for connector {capture.name}" if _has_position(seen) else "",
        f"drop slot {slot}" if seen.slot else "",
        f"create slot {slot}, waiting up to {SLOT_WITHIN_S} s for open transactions",
        f"register cluster {seen.identity.system_identifier} timeline {seen.identity.timeline} "
        f"for source {seen.identity.source}"
        if changed
        else "",
        f"re-emit what was received from {begin} until then: {order.reason}",
        "look through the guard again",
        f"start connector {capture.name}" if seen.status else "",
    ]
    return RepairPlan(
        findings=findings,
        steps=tuple(step for step in steps if step),
        from_us=order.from_us,
        new_identity=seen.identity if changed else None,
    )


def run(capture: Capture, order: RepairOrder, tools: RepairTools) -> RepairReceipt:
    """Repair; on any error the connector stays stopped and the run can be repeated.

    Raises:
        RepairRefusedError: as `plan`, or the slot is held, or a transaction stays open too long.
        CaptureUnsafeError: the guard still refuses after the repair.
        SourceUnavailableError: the database is away.
        ConnectError: Connect is away or says no.
    """
    planned = plan(capture, order)
    if capture.client.config(capture.name) is None:
        raise RepairRefusedError(
            f"connector {capture.name}: unknown to Connect; apply its config first, it is created "
            "stopped, then repeat the repair"
        )
    _stop(capture)
    _forget_position(capture)
    with _operating(capture, tools) as connection:
        slot_lsn = _new_slot(capture, connection)
        _register(capture, planned, tools.store)
        to, count = _reemit(connection, order)
    repaired = replace(capture, identity=planned.new_identity or capture.identity)
    status = start(repaired, Start.REPAIR)
    return RepairReceipt(
        slot_lsn=slot_lsn,
        from_us=order.from_us,
        to_us=(to - _EPOCH) // timedelta(microseconds=1),
        rows=count,
        new_identity=planned.new_identity,
        status=status,
    )


def _judged(capture: Capture, seen: Observation) -> list[GuardFinding]:
    return judge(seen, capture.expected(Start.GO_ON))


def _check_order(order: RepairOrder, seen: Observation, findings: tuple[GuardFinding, ...]) -> None:
    if not order.reason.strip():
        raise RepairRefusedError("reason: empty; say why, it is kept with the re-emission")
    if seen.standby:
        raise RepairRefusedError("the database is a standby; repair the primary")
    if not findings and not order.even_if_healthy:
        raise NothingToRepairError(
            "nothing to repair: the guard refuses nothing. If only a task has failed, heal it; if "
            "an audit lists rows as lost, order the repair even if healthy"
        )


def _has_position(seen: Observation) -> bool:
    return seen.offsets is not None and bool(seen.offsets.offsets)


def _instant(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def _stop(capture: Capture) -> None:
    try:
        capture.client.stop_and_wait(capture.name, within_s=STOP_WITHIN_S)
    except StateNotReachedError as error:
        raise RepairRefusedError(
            f"{error}. A worker that ignores the stop holds the slot: end that worker, repeat"
        ) from error
    reader: list[int | None] = []

    def look() -> bool | None:
        with capture.database() as connection:
            found = rows(connection, "slot", {"slot": capture.settings.slot})
        reader[:] = [row["active_pid"] for row in found if row["active"]]
        return None if reader else True

    if not capture.client.waiting.until(look, RELEASE_WITHIN_S):
        raise RepairRefusedError(
            f"slot {capture.settings.slot} is still read by process {reader[0]} of the "
            "database though its connector is stopped: end that reader, repeat"
        )


def _forget_position(capture: Capture) -> None:
    client, name = capture.client, capture.name

    def forgotten() -> bool | None:
        # A task's last commit can arrive after its stop, and then stands after the deletion.
        if not client.offsets(name).offsets:
            return True
        client.delete_offsets(name)
        return None

    if not client.waiting.until(forgotten, FORGET_WITHIN_S):
        raise RepairRefusedError(
            f"connector {name}: Connect still holds a position {FORGET_WITHIN_S:.0f} s after "
            "deleting it; see the worker's log, repeat"
        )


@contextmanager
def _operating(capture: Capture, tools: RepairTools) -> Iterator[Connection[Any]]:
    with replace(capture, connect=tools.connect).database() as connection:
        yield connection


def _new_slot(capture: Capture, connection: Connection[Any]) -> str:
    values = {"slot": capture.settings.slot}
    version = rows(connection, "server_identity")[0]["server_version"]
    create = "create_failover_slot" if version >= _FAILOVER_SLOTS_FROM else "create_slot"
    rows(connection, "drop_slot", values)
    connection.execute("SELECT set_config('statement_timeout', %s, false)", (f"{SLOT_WITHIN_S}s",))
    try:
        lsn: str = rows(connection, create, values)[0]["lsn"]
    except psycopg.errors.QueryCanceled as error:
        raise RepairRefusedError(_who_is_open(connection)) from error
    finally:
        connection.execute("SELECT set_config('statement_timeout', '0', false)")
    return lsn


def _who_is_open(connection: Connection[Any]) -> str:
    listed = ", ".join(
        f"process {row['pid']} of {row['user_name']} since {row['xact_start']:%Y-%m-%d %H:%M:%S%z}"
        for row in rows(connection, "open_transactions")
    )
    return (
        f"no new slot within {SLOT_WITHIN_S} s: it waits for open transactions "
        f"({listed or 'prepared ones, see pg_prepared_xacts'}); end or await them, repeat"
    )


def _register(capture: Capture, planned: RepairPlan, store: SourceStore) -> None:
    new = planned.new_identity
    if new is not None and not store.replace(capture.identity, new):
        raise RepairRefusedError(
            f"source {new.source}: its registration changed meanwhile; look at it, repeat"
        )


def _reemit(connection: Connection[Any], order: RepairOrder) -> tuple[datetime, int]:
    # A receipt says the rows are there: they must be on disk, whatever the server's default.
    connection.execute("SELECT set_config('synchronous_commit', 'on', false)")
    until: datetime = rows(connection, "database_clock")[0]["now"] + _CLOCK_SET_BACK_MAX
    values = {"from": _instant(order.from_us), "to": until, "reason": order.reason}
    try:
        return until, int(rows(connection, "reemit", values)[0]["rows"])
    except psycopg.errors.InvalidParameterValue as error:
        hint = f"; {error.diag.message_hint}" if error.diag.message_hint else ""
        raise RepairRefusedError(f"{error.diag.message_primary}{hint}") from error
