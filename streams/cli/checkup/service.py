"""The service's database: server, outbox, slot, publication, and who may do what in it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from connectors.guard_findings import Expected, GuardFinding, Start
from connectors.names import OUTBOX_SCHEMA, OUTBOX_TABLE, PUBLICATION
from connectors.slot_guard import judge
from connectors.source_registry import identify
from streams.adapters.ledger_catalogue import LedgerSources
from streams.cli.checkup.broker import kind_of
from streams.cli.checkup.check import Check, Fix, NotMadeError, Trouble, answers
from streams.cli.checkup.patient import Patient
from streams.cli.database import row, rows

OUTBOX: Final = f"{OUTBOX_SCHEMA}.{OUTBOX_TABLE}"
REPAIR: Final = Fix("shell", 'tailrace connector repair --reason "…" --yes')
DAYS_AHEAD_MIN: Final = 1
_LOST_WHY: Final = "rows that were recorded since may never come out of it"
_MAKE_PUBLICATION: Final = (
    f"BEGIN; DROP PUBLICATION IF EXISTS {PUBLICATION}; CREATE PUBLICATION {PUBLICATION} FOR TABLE "
    f"{OUTBOX} WITH (publish = 'insert', publish_via_partition_root = true); COMMIT"
)
"""One transaction: what is written while there is no publication can never be decoded."""
GUARDED: Final[Mapping[str, tuple[tuple[str, ...], str, Fix]]] = {
    "primary": (
        ("standby", "database"),
        "usage is recorded, and its WAL written, elsewhere",
        Fix("settings", "TAILRACE_SOURCE_DSN=postgresql://…  # of the primary"),
    ),
    "slot": (("slot-missing", "slot-kind"), _LOST_WHY, REPAIR),
    "slot-lost": (("slot-wal",), _LOST_WHY, REPAIR),
    "slot-position": (
        (
            "slot-ahead",
            "position-future",
            "position-missing",
            "position-foreign",
            "undecodable",
        ),
        _LOST_WHY,
        REPAIR,
    ),
    "slot-lag": (
        ("slot-behind", "slot-endangered"),
        "the server gives a slot up, or runs out of disk, when it holds back too much",
        Fix("shell", "tailrace connector heal"),
    ),
    "slot-reader": (
        ("slot-taken", "slot-idle"),
        "two readers move one slot past rows, and none moves nothing",
        Fix("shell", "tailrace connector heal"),
    ),
    "publication": (
        ("publication-missing", "publication"),
        "retention's deletes would travel as records, and rows left out are lost",
        Fix("service's database", _MAKE_PUBLICATION),
    ),
}
"""Rules of the slot guard by the check that tells of them."""


def _reached(patient: Patient) -> Iterator[Trouble]:
    return answers(patient.service)


def _server(patient: Patient) -> dict[str, Any]:
    return patient.once("server", lambda: row(patient.service, "doctor_service"))


def _outbox(patient: Patient) -> dict[str, Any]:
    return patient.once("outbox", lambda: row(patient.service, "doctor_outbox"))


def _wal_level(patient: Patient) -> Iterator[Trouble]:
    yield from of_wal_level(_server(patient)["wal_level"])


def of_wal_level(level: str) -> Iterator[Trouble]:
    """Whether the WAL tells what was inserted."""
    if level != "logical":
        yield Trouble(
            f"wal_level is {level}, must be logical",
            "without it there is no slot, and nothing that is recorded leaves the database",
            Fix("service's database", "ALTER SYSTEM SET wal_level = 'logical'  -- then restart it"),
        )


def _schema(patient: Patient) -> Iterator[Trouble]:
    return patient.lacking("outbox", patient.settings.source_dsn)


def _registered(patient: Patient) -> Iterator[Trouble]:
    patient.set("source_dsn")
    settings = patient.settings
    known = LedgerSources(patient.plain(patient.ledger_dsn)).find(settings.source)
    if known is None:
        yield Trouble(
            f"source {settings.source} is not registered",
            "a restored or exchanged database could not be told from the one that was there",
            Fix("shell", "tailrace source register"),
        )
        return
    seen = identify(patient.plain(settings.source_dsn), settings.source)
    if seen != known:
        yield Trouble(
            f"source {settings.source} was cluster {known.system_identifier}, timeline "
            f"{known.timeline}; this is {seen.system_identifier}, {seen.timeline}",
            "another database, or one that was restored: what it forgot is billed already",
            REPAIR,
        )


def told(name: str, findings: Iterable[GuardFinding]) -> Iterator[Trouble]:
    """What a check has to tell of the slot guard's findings."""
    rules, why, fix = GUARDED[name]
    for finding in findings:
        if finding.rule in rules:
            yield Trouble(finding.evidence, why, fix)


def _guarded(name: str) -> Callable[[Patient], Iterator[Trouble]]:
    def look(patient: Patient) -> Iterator[Trouble]:
        # Of a slot or publication alone the database tells; what Connect holds it does not know.
        if name in {"slot-position", "slot-reader"}:
            answers(patient.held)
        seen = patient.observation()
        expected = Expected(
            identity=seen.identity,
            settings=patient.source,
            config=patient.wanted,
            start=_start(patient) if name == "slot-position" else Start.FIRST,
        )
        yield from told(name, judge(seen, expected))

    return look


def _start(patient: Patient) -> Start:
    """A source that never delivered a row has no position, and needs none."""
    return Start.GO_ON if rows(patient.ledger, "status_positions") else Start.FIRST


def _cdc_role(patient: Patient) -> Iterator[Trouble]:
    server = _server(patient)
    why = "the connector logs in as it: it must read the WAL, and nothing more"
    if not server["cdc_reads"]:
        paste = "ALTER ROLE metering_cdc LOGIN REPLICATION"
        what = "role metering_cdc cannot log in and replicate"
        yield Trouble(what, why, Fix("service's database", paste))
    if server["cdc_loses"]:
        paste = f"ALTER ROLE metering_cdc {server['cdc_loses']}"
        what = f"role metering_cdc may do more than read the WAL: {server['cdc_loses'].lower()}"
        yield Trouble(what.replace(" no", " "), why, Fix("service's database", paste))
    if server["cdc_is"]:
        paste = f"REVOKE {server['cdc_is']} FROM metering_cdc"
        what = f"role metering_cdc is a member of {server['cdc_is']}"
        yield Trouble(what, why, Fix("service's database", paste))


def _ops_role(patient: Patient) -> Iterator[Trouble]:
    if not _outbox(patient)["operates"]:
        login = _server(patient)["login"]
        yield Trouble(
            f"the login {login} may not send canaries and read minutes",
            "audits, and proof of flow, need both",
            Fix("service's database", f'GRANT metering_ops TO "{login}"'),
        )


def _writers(patient: Patient) -> Iterator[Trouble]:
    for grant in rows(patient.service, "doctor_writers"):
        yield Trouble(
            f"{grant['grantee']} may write {grant['table']} past its functions",
            "a row without an identity in the registry is counted, and no audit can prove it",
            Fix(
                "service's database",
                f"REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {grant['table']} "
                f"FROM {grant['grantee']}",
            ),
        )


def _settings(patient: Patient) -> Iterator[Trouble]:
    outbox, settings = _outbox(patient), patient.settings
    for name, here, there in (
        ("source", settings.source, outbox["source"]),
        ("partitions", settings.partitions, outbox["partition_count"]),
    ):
        if here != there:
            fix = Fix("settings", f"TAILRACE_{name.upper()}={there}")
            yield Trouble(
                f"TAILRACE_{name.upper()} is {here}, this outbox has {there}",
                "identities and their partitions are made with the outbox's own",
                _grown(patient, there) or fix if name == "partitions" else fix,
            )


def _grown(patient: Patient, before: int) -> Fix | None:
    """How the outbox grows too, where the topics did: their count says which of the two is behind.

    Where they cannot be asked, both are said, for a growth is never taken back.
    """
    wanted = patient.settings.partitions
    if wanted < before or wanted % before:
        return None
    grow = f"tailrace source grow --partitions {wanted}"
    try:
        topics = patient.topics()
    except Exception:  # noqa: BLE001 - why they cannot be asked is said by their own check
        return Fix("settings", f"TAILRACE_PARTITIONS={before}  # if the topics have more: `{grow}`")
    others = any(kind_of(finding.rule) in {"partitions", "missing"} for finding in topics)
    return None if others else Fix("shell", f"{grow} --yes")


def _ahead(patient: Patient) -> Iterator[Trouble]:
    ahead = _outbox(patient)["days_ahead"]
    if ahead is None or ahead < DAYS_AHEAD_MIN:
        yield Trouble(
            f"the outbox has partitions for {ahead or 0} more days",
            "later rows go into a default partition, which retention cannot drop",
            Fix("service's database", "SELECT * FROM metering.maintain()"),
        )


def _metrics(patient: Patient) -> Iterator[Trouble]:
    in_force = patient.in_force()
    known = {r["name"]: r for r in rows(patient.service, "doctor_metrics") if r["valid"]}
    if not in_force:
        message = "the catalogue has no meter yet: `tailrace meters apply`"
        raise NotMadeError(message)
    for meter in in_force:
        if meter.metric not in known:
            yield Trouble(
                f"the service's database was not told of the meter {meter.metric}",
                "it refuses that usage, or takes misspelled metrics as it takes any",
                Fix(
                    "service's database",
                    f"SELECT metering.put_metric('{meter.metric}', {meter.scale})",
                ),
            )


CHECKS: Final[Iterable[Check[Patient]]] = (
    Check("service-database", "the service's database answers", _reached, reaches="source_dsn"),
    Check("primary", "it is the primary", _guarded("primary")),
    Check("wal-level", "wal_level is logical", _wal_level),
    Check("outbox-schema", "the outbox is of this release", _schema),
    Check("source-settings", "settings name this outbox and its partitions", _settings),
    Check("source-registered", "it is the database that was registered", _registered),
    Check("cdc-role", "the connector's role reads the WAL and nothing more", _cdc_role),
    Check("ops-role", "this login may look after the outbox", _ops_role),
    Check("writer-roles", "nobody writes past the outbox's functions", _writers),
    Check("outbox-partitions", "the outbox has partitions for days ahead", _ahead),
    Check("metrics-known", "the service knows every meter in force", _metrics),
    Check("publication", "it sends inserts of the outbox alone", _guarded("publication")),
    Check("slot", "the slot is there", _guarded("slot")),
    Check("slot-lost", "the slot has all its WAL", _guarded("slot-lost")),
    Check("slot-position", "slot and Connect stand where they left off", _guarded("slot-position")),
    Check("slot-lag", "the slot keeps up", _guarded("slot-lag")),
    Check("slot-reader", "the connector, and nobody else, reads the slot", _guarded("slot-reader")),
)
