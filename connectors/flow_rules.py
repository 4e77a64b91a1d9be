"""Guard rules about what flows: publication, connector, config and lag. Pure."""

from connectors import names
from connectors.guard_findings import REPAIR, Expected, GuardFinding, alarm, refuse
from connectors.linter import lint
from connectors.observation import Observation, Publication

_UNDECODABLE = "ERROR: publication "
"""What PostgreSQL says of WAL from a time without the publication, also when it is back."""
_UNROUTABLE = (
    "Unable to find payload field",
    "Unable to find event-id field",
    "Unable to find field",
    "is not a valid field name",
)
"""What the router says of rows that were written under other columns; the WAL keeps their names."""


def judge_publication(seen: Observation, expected: Expected) -> list[GuardFinding]:
    """The publication sends inserts of the outbox alone, whole, under its root's name."""
    name = expected.settings.publication
    if seen.publication is None:
        fix = f"make publication {name} again; then, for rows written meanwhile, {REPAIR}"
        return [refuse("publication-missing", f"publication {name} does not exist", fix)]
    faults = _publication_faults(seen.publication)
    fix = (
        f"make {name} send inserts of {names.OUTBOX_SCHEMA}.{names.OUTBOX_TABLE} alone, via its "
        "root, without filters; if rows may have been left out meanwhile, re-emit them"
    )
    return [refuse("publication", f"publication {name} {fault}", fix) for fault in faults]


def _publication_faults(publication: Publication) -> list[str]:
    checks = (
        (not publication.pubinsert, "does not send inserts"),
        (publication.pubupdate, "sends updates"),
        (publication.pubdelete, "sends deletes"),
        (publication.pubtruncate, "sends truncates"),
        (not publication.pubviaroot, "does not send partitions under their root's name"),
        (publication.puballtables, "sends all tables"),
    )
    faults = [text for broken, text in checks if broken]
    tables = {(table.schema_name, table.table_name) for table in publication.tables}
    if not publication.puballtables and tables != {(names.OUTBOX_SCHEMA, names.OUTBOX_TABLE)}:
        listed = ", ".join(f"{schema}.{table}" for schema, table in sorted(tables)) or "no table"
        faults.append(f"sends {listed}")
    faults += [
        f"leaves out rows or columns of {table.schema_name}.{table.table_name}"
        for table in publication.tables
        if table.row_filter or table.column_list
    ]
    return faults


def judge_connector(seen: Observation, expected: Expected) -> list[GuardFinding]:
    """Connector and every task run, and exactly then somebody reads the slot."""
    if seen.status is None:
        return []
    found = []
    if seen.status.failed and _UNDECODABLE in seen.status.traces:
        found.append(
            refuse(
                "undecodable",
                f"{seen.status}: the slot stands before rows written while the publication was "
                "away, and PostgreSQL can never decode those",
                f"{REPAIR}; order it even if healthy: a stopped connector shows nothing of this",
            )
        )
    elif seen.status.failed and (said := _unroutable(seen.status.traces)) is not None:
        found.append(
            refuse(
                "unroutable",
                f"{seen.status}: {said}: the slot stands before rows written while the outbox had "
                "other columns, and the WAL keeps their names",
                f"give the outbox its columns back; then {REPAIR}; order it even if healthy: a "
                "stopped connector shows nothing of this",
            )
        )
    elif seen.status.failed:
        found.append(
            alarm(
                "failed",
                f"{seen.status}: {seen.status.cause}",
                "heal it: guard, then restart of what failed",
            )
        )
    elif seen.status.state == "RUNNING" and not seen.status.all_running:
        found.append(alarm("task-missing", str(seen.status), "see the worker's log"))
    return found + _judge_reader(seen, expected)


def _unroutable(traces: str) -> str | None:
    """What the router says of a row that it can never send, if it says so."""
    lines = (line.strip().removeprefix("Caused by: ") for line in traces.splitlines())
    return next((line for line in lines if any(said in line for said in _UNROUTABLE)), None)


def _judge_reader(seen: Observation, expected: Expected) -> list[GuardFinding]:
    if seen.slot is None or seen.status is None:
        return []
    if seen.status.state == "STOPPED" and seen.slot.active:
        return [
            refuse(
                "slot-taken",
                f"the connector is stopped, but process {seen.slot.active_pid} of the database "
                f"reads slot {expected.settings.slot}",
                "a worker that hangs or a second connector: end it, it moves the slot",
            )
        ]
    if seen.status.all_running and not seen.slot.active:
        return [
            alarm(
                "slot-idle",
                f"{seen.status}, but nobody reads slot {expected.settings.slot}",
                "see the worker's log: the database or the slot is out of its reach",
            )
        ]
    return []


def judge_config(seen: Observation, expected: Expected) -> list[GuardFinding]:
    """Connect holds the config that was applied."""
    if seen.config is None or seen.config == expected.config:
        return []
    fix = "apply the config; find out who changed it"
    unsafe = lint(seen.config, expected.scope)
    if unsafe:
        return [refuse("config-unsafe", str(finding), fix) for finding in unsafe]
    differs = sorted(
        option
        for option in seen.config.keys() | expected.config.keys()
        if seen.config.get(option) != expected.config.get(option)
    )
    return [alarm("config-drift", f"Connect holds another {', '.join(differs)}", fix)]


def judge_lag(seen: Observation, expected: Expected) -> list[GuardFinding]:
    """WAL held back, WAL still allowed, and the age of what came through are in bounds."""
    found = []
    slot, limits = seen.slot, expected.limits
    if slot is not None and slot.confirmed_lsn is not None and seen.written_lsn is not None:
        behind = seen.written_lsn - slot.confirmed_lsn
        if behind > limits.behind_bytes_max:
            found.append(
                alarm(
                    "slot-behind",
                    f"the slot holds back {behind} bytes of WAL",
                    "see whether canaries come through, and for transactions open for long",
                )
            )
    safe = slot.safe_wal_bytes if slot is not None else None
    if safe is not None and safe < limits.safe_wal_bytes_min:
        found.append(
            alarm(
                "slot-endangered",
                f"after {safe} more bytes of WAL the server gives the slot up",
                "raise max_slot_wal_keep_size if the disk allows it; get capture going",
            )
        )
    age_s = expected.canary_age_s
    if age_s is not None and age_s > limits.canary_age_s_max:
        found.append(
            alarm(
                "canary-old",
                f"the freshest canary is {age_s:.0f} s old",
                "RUNNING is no proof of flow: follow the journey from the outbox on",
            )
        )
    return found
