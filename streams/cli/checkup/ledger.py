"""The ledger: reachable, of this release, safe from its own logins, with a payer for all usage."""

import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.request import urlopen

from streams.cli.checkup.check import Check, Fix, NotMadeError, Trouble, answers
from streams.cli.checkup.patient import Patient
from streams.cli.cycles import read_payers
from streams.cli.database import row, rows
from streams.cli.stack import listed_workers
from streams.cli.status import look
from streams.core.billing import unpunctual
from streams.core.instant import SECOND_US

SKEW_US_MAX: Final = SECOND_US
_CLOCK_WHY: Final = "usage looks late or early, and deadlines are kept at the wrong time"
_TIMEOUT_S: Final = 2.0


def _reached(patient: Patient) -> Iterator[Trouble]:
    return answers(patient.ledger)


def _schema(patient: Patient) -> Iterator[Trouble]:
    return patient.lacking("ledger", patient.ledger_dsn)


def _login(patient: Patient) -> dict[str, Any]:
    return patient.once("login", lambda: row(patient.ledger, "doctor_ledger"))


def _role(patient: Patient) -> Iterator[Trouble]:
    seen = _login(patient)
    login = seen["login"]
    if not seen["serves"]:
        yield Trouble(
            f"the login {login} has neither the role ledger_service nor ledger_finance",
            "workers cannot tell facts, people cannot decide",
            Fix("ledger", f'GRANT ledger_service TO "{login}"'),
        )
    if seen["owns"] and not seen["is_super"]:
        yield Trouble(
            f"the login {login} owns the ledger's tables",
            "who owns them can change amounts past every rule",
            Fix("ledger", f'REVOKE ledger_owner FROM "{login}"'),
        )
    if seen["is_super"]:
        yield Trouble(
            f"the login {login} is a superuser",
            "it can change amounts past every rule, and decides in nobody's name",
            # Not its superuser's rights: it may be the only one that this server has.
            Fix("settings", "TAILRACE_LEDGER_DSN=postgresql://…  # a login with ledger_service"),
        )


def _rewriters(patient: Patient) -> Iterator[Trouble]:
    for grant in rows(patient.ledger, "doctor_rewriters"):
        privilege, grantee = grant["privilege"], grant["grantee"]
        yield Trouble(
            f"{grantee} may {privilege} entries",
            "the ledger is append-only: what was recorded is never changed",
            Fix("ledger", f"REVOKE {privilege} ON ledger.meter_log FROM {grantee}"),
        )


def _customers(patient: Patient) -> Iterator[Trouble]:
    for held in rows(patient.ledger, "doctor_unmapped"):
        yield Trouble(
            f"{held['entries']} entries of tenant {held['tenant_id']} have no customer",
            "they are held, and on no invoice, until somebody says who pays",
            Fix("shell", f"tailrace customers map {shlex.quote(held['tenant_id'])} cus_…"),
        )


def _punctual(patient: Patient) -> Iterator[Trouble]:
    for late in unpunctual(patient.in_force(), read_payers(patient.ledger)):
        yield Trouble(
            f"meter {late.metric}: {late.rule}",
            "usage that is on time for its meter would miss its invoice: no worker starts by it",
            Fix("settings", f"meters.toml: a lower skew_max or close_delay of {late.metric}"),
        )


def _money(patient: Patient) -> Iterator[Trouble]:
    patient.set("ledger_dsn")
    _, found, _ = look(patient.stack)
    for remark in found:
        if remark.severity == "critical":
            why = "money is lost, doubled or on no invoice, or will be soon"
            yield Trouble(remark.text, why, Fix("shell", remark.command))
        elif remark.name == "untold":
            why = "what the ledger has not been told is on no invoice"
            yield Trouble(remark.text, why, Fix("shell", "tailrace source guard"))


def _workers(patient: Patient) -> Iterator[Trouble]:
    workers = listed_workers(patient.stack.facts)
    if not workers:
        message = "no sandbox lists its workers here: ask each for /ready"
        raise NotMadeError(message)
    for worker in workers:
        said = _ready(str(worker.get("metrics_url")))
        if said is not None:
            yield Trouble(
                f"worker {worker.get('pid')} is not ready: {said}",
                "what it is to admit and to publish waits, or another worker has it",
                Fix("shell", "tailrace sandbox status"),
            )


def _ready(address: str) -> str | None:
    """What a worker waits for; None when it serves."""
    try:
        with urlopen(f"{address}/ready", timeout=_TIMEOUT_S):  # noqa: S310 - a sandbox's own address
            return None
    except OSError as error:
        answer = getattr(error, "read", None)
        told = answer().decode(errors="replace").strip() if callable(answer) else ""
        return told or str(error)


def _clock_ledger(patient: Patient) -> Iterator[Trouble]:
    yield from skew(patient, "the ledger's", patient.ledger, "doctor_ledger")


def _clock_service(patient: Patient) -> Iterator[Trouble]:
    yield from skew(patient, "the service's", patient.service, "doctor_service")


def skew(patient: Patient, whose: str, database: Any, statement: str) -> Iterator[Trouble]:
    """How far a database's clock is from this computer's, beyond what the way there explains."""
    before_us = patient.now_us()
    there_us = int(row(database, statement)["now_us"])
    after_us = patient.now_us()
    off_us = max(before_us - there_us, there_us - after_us)
    if off_us > SKEW_US_MAX:
        fix = "sudo chronyc makestep  # on whichever of the two is wrong"
        if patient.stack.has_own_clock:
            fix = "tailrace sandbox clock 0  # this sandbox runs on a clock that it shifts"
        yield Trouble(
            f"{whose} database's clock and this computer's differ by {off_us / SECOND_US:.1f} s",
            _CLOCK_WHY,
            Fix("shell", fix),
        )


CHECKS: Final[Iterable[Check[Patient]]] = (
    Check("ledger", "the ledger answers", _reached, reaches="ledger_dsn"),
    Check("ledger-schema", "the ledger is of this release", _schema),
    Check("ledger-role", "this login may do its work and no more", _role),
    Check("ledger-append-only", "nobody can change or remove entries", _rewriters),
    Check("clock-ledger", "its clock agrees with this computer's", _clock_ledger),
    Check("clock-service", "so does the service's database's", _clock_service),
    Check("customers", "every tenant with usage has a customer", _customers),
    Check("punctual", "meters make the invoices of their customers", _punctual),
    Check("workers", "every worker serves", _workers),
    Check("money", "the ledger has every amount in time, and none twice", _money),
)
