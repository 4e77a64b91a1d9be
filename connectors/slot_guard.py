"""The slot guard: one observation → what is wrong, how bad, and the repair.

Pure. Debezium does not notice a slot that was advanced past rows it never sent, nor a database that
went back in time, under any of its options; this does, before each start of ours and once a minute.
It is an early warning: once rows flow again the gap lies behind the position, and only the audit
still sees it.
"""

from collections.abc import Callable

from connectors import names
from connectors.flow_rules import (
    judge_config,
    judge_connector,
    judge_lag,
    judge_publication,
)
from connectors.guard_findings import (
    REPAIR,
    Expected,
    GuardFinding,
    Limits,
    Severity,
    Start,
    must_stop,
    refuse,
)
from connectors.observation import Observation, Slot, observe
from connectors.source_registry import changed_error

__all__ = [
    "Expected",
    "GuardFinding",
    "Limits",
    "Observation",
    "Severity",
    "Start",
    "judge",
    "must_stop",
    "observe",
]


def judge(seen: Observation, expected: Expected) -> list[GuardFinding]:
    """Everything that is wrong, worst first; empty when rows are safe and flow.

    Args:
        seen: one reading, made by `observe`.
        expected: what should have been seen.
    """
    found = [finding for rule in RULES for finding in rule(seen, expected)]
    return sorted(found, key=lambda finding: finding.severity is Severity.ALARM)


def _judge_server(seen: Observation, expected: Expected) -> list[GuardFinding]:
    if seen.standby:
        return [
            refuse(
                "standby",
                f"the database of {seen.identity.source} is in recovery",
                "point the source at the primary",
            )
        ]
    if seen.identity != expected.identity:
        return [refuse("identity", str(changed_error(expected.identity, seen.identity)))]
    if seen.database != expected.settings.database:
        return [
            refuse(
                "database",
                f"this is database {seen.database}, the source is {expected.settings.database}",
                "correct the address the guard reads from",
            )
        ]
    return []


def _judge_slot(seen: Observation, expected: Expected) -> list[GuardFinding]:
    slot, name = seen.slot, expected.settings.slot
    if slot is None:
        return [refuse("slot-missing", f"slot {name} does not exist: rows since are not held")]
    kind = (slot.slot_type, slot.plugin, slot.database)
    if kind != ("logical", "pgoutput", expected.settings.database):
        return [
            refuse(
                "slot-kind",
                f"slot {name} is {slot.slot_type} {slot.plugin} of {slot.database}, must be "
                f"logical pgoutput of {expected.settings.database}",
            )
        ]
    if slot.wal_status not in ("reserved", "extended"):
        return [
            refuse(
                "slot-wal",
                f"slot {name} has wal_status {slot.wal_status}: the server has given up, or is "
                "about to give up, WAL it needs",
            )
        ]
    return []


def _judge_position(seen: Observation, expected: Expected) -> list[GuardFinding]:
    prefix = names.topic_prefix(expected.settings.source)
    offset = seen.offsets.of(prefix) if seen.offsets is not None else None
    stored = offset.safe_lsn if offset is not None else None
    found = _foreign_positions(seen, prefix)
    if stored is None:
        return found + _without_position(expected)
    return found + _ahead(seen.slot, stored) + _future(seen.written_lsn, stored)


def _foreign_positions(seen: Observation, prefix: str) -> list[GuardFinding]:
    foreign = sorted(seen.offsets.prefixes - {prefix}) if seen.offsets is not None else []
    if not foreign:
        return []
    return [
        refuse(
            "position-foreign",
            f"Connect holds positions of {', '.join(foreign)}, this source is {prefix}: the prefix "
            "was changed or the connector's name is used twice",
        )
    ]


def _without_position(expected: Expected) -> list[GuardFinding]:
    if expected.start is not Start.GO_ON:
        return []
    return [
        refuse(
            "position-missing",
            "Connect holds no position for this source, so it would go on wherever the slot is",
            f"if it has never delivered a row, start it as a first start; else {REPAIR}",
        )
    ]


def _ahead(slot: Slot | None, stored: int) -> list[GuardFinding]:
    if slot is None or slot.confirmed_lsn is None or slot.confirmed_lsn <= stored:
        return []
    return [
        refuse(
            "slot-ahead",
            f"the slot was confirmed {slot.confirmed_lsn - stored} bytes past the stored position "
            f"{stored}: somebody advanced it or made it anew, and rows between were never sent",
        )
    ]


def _future(written: int | None, stored: int) -> list[GuardFinding]:
    if written is None or stored <= written:
        return []
    return [
        refuse(
            "position-future",
            f"the stored position is {stored - written} bytes past the end of the WAL: the "
            "database went back in time, and new rows would be swallowed until it is passed",
        )
    ]


RULES: tuple[Callable[[Observation, Expected], list[GuardFinding]], ...] = (
    _judge_server,
    _judge_slot,
    _judge_position,
    judge_publication,
    judge_connector,
    judge_config,
    judge_lag,
)
"""Every rule, in the order of its weight."""
