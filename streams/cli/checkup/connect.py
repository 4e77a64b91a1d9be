"""Kafka Connect: reachable, safe plugins, the connector as applied, and running."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from connectors.config_diff import diff
from connectors.linter import Finding, lint, lint_plugins
from streams.cli.checkup.check import Check, Fix, Trouble, answers
from streams.cli.checkup.patient import Patient
from streams.cli.database import rows
from streams.masking import masked

APPLY: Final = Fix("shell", "tailrace connector apply")
FIRST: Final = Fix("shell", "tailrace source register && tailrace connector apply --first")
_CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")


def _reached(patient: Patient) -> Iterator[Trouble]:
    return answers(patient.connect)


def _plugins(patient: Patient) -> Iterator[Trouble]:
    for finding in lint_plugins(patient.connect.plugins()):
        yield Trouble(
            f"{finding.option.rsplit('.', 1)[-1]}: {finding.rule}",
            "a connector of another version loses rows that were committed",
            Fix("shell", f"# in Connect's plugin folder: {finding.fix}; then restart Connect"),
        )


def _there(patient: Patient) -> Iterator[Trouble]:
    if patient.connect.config(patient.connector) is None:
        yield Trouble(
            f"Connect has no connector {patient.connector}",
            "what is recorded stays in the service's database",
            # A source that has delivered rows goes on from its position, or is repaired.
            APPLY if rows(patient.ledger, "status_positions") else FIRST,
        )


def is_converter(finding: Finding) -> bool:
    """Whether it is about how records become bytes."""
    return finding.option.startswith(_CONVERTERS)


def _lint(*, converters: bool) -> Callable[[Patient], Iterator[Trouble]]:
    why = (
        "records would be other bytes than workers read: every one a dead letter"
        if converters
        else "rows could be lost, or arrive in a form that nobody reads"
    )

    def look(patient: Patient) -> Iterator[Trouble]:
        for finding in lint(patient.held):
            if is_converter(finding) == converters:
                yield Trouble(f"{finding.option} {finding.rule}", why, APPLY)

    return look


def _drift(patient: Patient) -> Iterator[Trouble]:
    changes = [str(change) for change in diff(patient.held, patient.wanted)]
    if changes:
        yield Trouble(
            f"Connect holds another config: {'; '.join(changes[:3])}"
            + (f"; and {len(changes) - 3} more" if len(changes) > 3 else ""),
            "somebody changed it past the linter and the guard",
            APPLY,
        )


def _running(patient: Patient) -> Iterator[Trouble]:
    answers(patient.held)
    seen = patient.connect.status(patient.connector)
    if seen.all_running:
        return
    yield Trouble(
        f"{patient.connector}: {seen}"
        + (f": {masked(seen.cause)}" if seen.cause else "")
        + (", by a person or by the slot guard, and nothing starts it" if seen.stopped else ""),
        "what is recorded stays in the service's database, and its WAL grows",
        APPLY if seen.stopped else Fix("shell", "tailrace connector heal"),
    )


CHECKS: Final[Iterable[Check[Patient]]] = (
    Check("connect", "Kafka Connect answers", _reached, reaches="connect_url"),
    Check("connector-plugin", "Debezium is of a version that loses nothing", _plugins),
    Check("connector", "the connector is there", _there),
    Check("connector-options", "its options are safe", _lint(converters=False)),
    Check("converter", "records are written as they are", _lint(converters=True)),
    Check("connector-drift", "its config is the one that was applied", _drift),
    Check("connector-running", "connector and task run", _running),
)
