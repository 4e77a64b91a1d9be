"""Registry and ledger, each in one snapshot → whether the units recorded are the units counted.

Both sides come as rows of tenant, metric and window in one order, and meet row by row, so no more
than one tenant's and metric's is held at a time, however large they are.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any, Final

from psycopg.rows import tuple_row

from streams.cli.audit_report import AuditFinding
from streams.cli.database import Connection, ledger_rows, rows, statements
from streams.core.audit import GROUP_OF_KIND, Judgment, Tally
from streams.core.audit_names import Identity
from streams.core.audit_units import (
    Amount,
    Difference,
    Part,
    Series,
    UnitsFound,
    compare_units,
    moving_minutes,
)
from streams.core.catalogue import EARLY_MAX_US, MeterVersion
from streams.core.instant import FIRST_US, LAST_US, from_us, wire_text

ROWS_AT_ONCE: Final = 10_000
_STATEMENTS: Final = ("units_recorded", "units_counted")


@dataclass(frozen=True, slots=True)
class Judged:
    """What the comparison of identities came to, of the same two snapshots."""

    source: str
    from_us: int
    judgments: Sequence[Judgment]
    copies: Sequence[Identity]
    recorded_again: bool


def read_units(source: Connection, ledger: Connection, judged: Judged) -> UnitsFound:
    """Compares every window of the span.

    Args:
        source: in the snapshot of the second reading of the registry.
        ledger: in the snapshot in which the cells were read.
        judged: each minute, as these two snapshots have it.

    Raises:
        psycopg.Error: one of the databases refused or went away.
    """
    others = {r["source"] for r in rows(ledger, "statement_sources")} - {judged.source}
    values = _values(ledger, judged)
    with ExitStack() as stack:
        sides = []
        for connection, name in zip((source, ledger), _STATEMENTS, strict=True):
            cursor = stack.enter_context(connection.cursor(name=name, row_factory=tuple_row))
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(statements("streams.cli")[name].statement, values)
            sides.append(_parts(cursor))
        return compare_units(sides, again=judged.recorded_again, shared=bool(others))


def units_findings(found: UnitsFound, judgments: Iterable[Judgment]) -> list[AuditFinding]:
    """Each difference with what it comes to, and what shows the events behind it.

    Where the identities of a minute differ they are counted as lost or double already; a window
    that differs for it is told with its units, and counts nothing again. A conflict that differs
    explains no other units of usage, nor the other way round.
    """
    groups = {j.group for j in judgments if j.verdict in {"phantom", "mixed"}}
    findings = [
        _finding(each, is_counted=GROUP_OF_KIND[each.series.kind] in groups)
        for each in found.differences
    ]
    if found.unlisted:
        text = f"{found.unlisted} more windows whose units differ"
        lost, double = found.unlisted_lost, found.unlisted_double
        findings.append(
            _counted_once("more windows", text, lost, double, is_counted="usage" in groups)
        )
    return findings


def _finding(difference: Difference, *, is_counted: bool) -> AuditFinding:
    series, recorded, counted = difference.series, difference.recorded, difference.counted
    when = "all windows" if difference.start_us is None else wire_text(difference.start_us)
    subject = f"{series.tenant_id} {series.metric} {when}"
    what = {"correction": "corrections, ", "conflict": "conflicts, "}.get(series.kind, "")
    text = (
        f"{what}{subject}: recorded {recorded.units} units in {_events(recorded)}, the "
        f"ledger has {counted.units} in {_events(counted)}: {difference.more_units:+d} units"
    )
    if difference.verdict == "mixed" or not difference.more_units:
        text += ", of other events"
    if difference.start_us is not None:
        tenant, metric = shlex.quote(series.tenant_id), shlex.quote(series.metric)
        text += (
            f"; see `tailrace statement --tenant {tenant} --metric {metric} --month {when[:7]} "
            "--down-to event`"
        )
    return _counted_once(subject, text, difference.lost, difference.double, is_counted=is_counted)


def _events(amount: Amount) -> str:
    return f"{amount.tally.count} event{'' if amount.tally.count == 1 else 's'}"


def _counted_once(
    subject: str, text: str, lost: int, double: int, *, is_counted: bool
) -> AuditFinding:
    return AuditFinding(
        "units", subject, text, 0 if is_counted else lost, 0 if is_counted else double
    )


def _values(ledger: Connection, judged: Judged) -> dict[str, Any]:
    meters = list(_spans(MeterVersion(*line) for line in ledger_rows(ledger, "meters")))
    without = {int(r["content"]) for r in rows(ledger, "units_unknown", {"source": judged.source})}
    # What only copies were skipped of has a verdict of its own.
    without -= {copy.content for copy in judged.copies}
    return {
        "source": judged.source,
        "from": from_us(judged.from_us),
        # What counts by itself was received no earlier before it occurred.
        "received_from": from_us(max(FIRST_US, judged.from_us - EARLY_MAX_US)),
        "metrics": [meter.metric for meter, _ in meters],
        "from_ats": [from_us(meter.effective_from_us) for meter, _ in meters],
        "until_ats": [from_us(until_us) for _, until_us in meters],
        "lengths": [timedelta(microseconds=meter.window_us) for meter, _ in meters],
        "factors": [Decimal(10**meter.scale) for meter, _ in meters],
        "without": [content.to_bytes(16, "big") for content in without],
        **_moving(judged.judgments),
    }


def _moving(judgments: Sequence[Judgment]) -> Mapping[str, Any]:
    return {
        "moving_usage": [from_us(us) for us in moving_minutes(judgments, "usage")],
        "moving_conflicts": [from_us(us) for us in moving_minutes(judgments, "conflict")],
    }


def _spans(versions: Iterable[MeterVersion]) -> Iterator[tuple[MeterVersion, int]]:
    """Each version with the instant from which on the next one judges."""
    ordered = sorted(versions, key=lambda meter: (meter.metric, meter.version))
    for _, held in groupby(ordered, lambda meter: meter.metric):
        meters = list(held)
        ends = [*(meter.effective_from_us for meter in meters[1:]), LAST_US]
        yield from zip(meters, ends, strict=True)


def _parts(lines: Iterable[tuple[Any, ...]]) -> Iterator[Part]:
    for *names, start_us, side, count, digest, units in lines:
        yield Part(Series(*names), start_us, side, Tally(int(count), int(digest)), int(units))
