"""What an audit says of a registry that went back: judged minutes in, verdict and advice out."""

from collections import Counter
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from streams.cli import audit as command
from streams.cli import audit_registry
from streams.cli.audit_open import Floor
from streams.cli.audit_registry import Look, Waiting, compare
from streams.cli.audit_report import AuditReport, LedgerPart
from streams.cli.audit_span import Span
from streams.core.audit import Group, Judgment, Tally, judge
from streams.core.audit_names import Identity
from streams.core.audit_units import Amount, Difference, Series, UnitsFound
from streams.core.instant import MINUTE_US

DOUBLE_UNITS = Difference(
    Series("usage", "acme", "api_calls"), 0, "units", Amount(Tally(1, 5), 3), Amount(Tally(1, 5), 4)
)


def minute(number: int, group: Group, registry: int, cells: int) -> Judgment:
    """So many identities on each side, of which the lesser side has the first ones."""
    place = (number * MINUTE_US, group)
    sides = [Tally(count, (1 << count) - 1) for count in (registry, cells)]
    (judgment,) = judge({place: sides[0]}, {place: sides[1]}, {place: sides[0]})
    return judgment


def audited(*judgments: Judgment, units: UnitsFound | None = None) -> AuditReport:
    found = UnitsFound() if units is None else units
    look = Look(list(judgments), {}, Counter(), (), (), 0, found)

    def identities(_: Any, judgment: Judgment) -> list[Identity]:
        return [
            Identity("id", judgment.group, "acme", f"key-{number}", 1 << number)
            for number in range(judgment.second.count)
        ]

    with (
        patch.object(audit_registry, "look_at", return_value=look),
        patch.object(audit_registry, "read_floor", return_value=Floor(0, ())),
        patch.object(audit_registry, "ledger_rows", return_value=[]),
        patch.object(audit_registry, "seal_findings", return_value=[]),
        patch.object(audit_registry, "identities_of", side_effect=identities),
        patch.object(audit_registry, "seal", side_effect=AssertionError("nothing is sealed")),
    ):
        waiting = Waiting(lambda _: None, lambda: 0.0, 1.0, lambda _: None)
        part = compare(None, None, Span("db", 0, 0), UUID(int=0), waiting)  # type: ignore[arg-type]
    return AuditReport("db", None, 0, part, LedgerPart(Counter(), [], []), None)


def advice(report: AuditReport, capsys: pytest.CaptureFixture[str]) -> str:
    command._show(report, as_json=False)
    return capsys.readouterr().err


def test_a_part_recorded_again_is_not_proven_and_no_repair_is_advised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = audited(minute(1, "usage", 0, 5), minute(9, "usage", 4, 0))
    assert report.verdict == "lost 4 · double 5 · not proven: 4 of the lost may be recorded again"
    assert report.document()["registry"]["perhaps_again"] == 4
    assert report.findings
    told = advice(report, capsys)
    assert "4 recorded without a verdict may be as many verdicts without a record" in told
    assert "--even-if-healthy" not in told


def test_what_is_lost_beyond_it_is_to_be_sent_again(capsys: pytest.CaptureFixture[str]) -> None:
    report = audited(minute(1, "usage", 0, 5), minute(9, "usage", 7, 1))
    assert report.verdict == "lost 6 · double 5 · not proven: 5 of the lost may be recorded again"
    told = advice(report, capsys)
    assert "not proven: 5 recorded" in told
    assert "--even-if-healthy" in told


def test_a_second_verdict_on_what_the_registry_has_explains_nothing_that_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    twice = minute(1, "usage", 3, 3)._replace(verdict="phantom", cells=Tally(4, 7 + 2))
    report = audited(twice, minute(9, "usage", 1, 0))
    assert report.verdict == "lost 1 · double 1"
    told = advice(report, capsys)
    assert "not proven" not in told
    assert "--even-if-healthy" in told


def test_a_forgotten_conflict_is_told_beside_the_verdict_and_usage_stays_double() -> None:
    report = audited(minute(1, "conflict", 0, 3))
    assert report.verdict == "lost 0 · double 0 · conflicts that the registry has forgotten: 3"
    assert report.document()["registry"]["conflicts_forgotten"] == 3
    (finding,) = report.findings
    assert "no unit of these is counted" in finding.text
    both = audited(minute(1, "conflict", 0, 3), minute(1, "usage", 0, 2))
    assert both.verdict == "lost 0 · double 2 · conflicts that the registry has forgotten: 3"


def test_a_forgotten_conflict_hides_no_other_units_of_usage() -> None:
    conflicts = DOUBLE_UNITS._replace(series=DOUBLE_UNITS.series._replace(kind="conflict"))
    units = UnitsFound(differences=[DOUBLE_UNITS, conflicts], unlisted=1, unlisted_double=1)
    report = audited(minute(1, "conflict", 0, 3), units=units)
    assert report.double == 2
    assert [f.double for f in report.findings if f.kind == "units"] == [1, 0, 1]
    assert audited(minute(1, "usage", 0, 3), units=units).double == 3 + 1
