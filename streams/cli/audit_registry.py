"""Registry against cells: S1, canaries on every partition, cells, S2 → judgments, names, seals.

Nothing here waits by a clock for rows to arrive: a canary per partition, committed after S1, has
settled only when everything before it has.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from connectors.names import USAGE_TOPIC
from streams.cli.audit_copies import identities_of, sent_again, told_as, without_copies
from streams.cli.audit_open import open_minutes, read_floor
from streams.cli.audit_report import AuditFinding, RegistryPart
from streams.cli.audit_seals import seal, seal_findings
from streams.cli.audit_skipped import SkippedRecord, read_skipped
from streams.cli.audit_span import Span
from streams.cli.audit_units import Judged, read_units, units_findings
from streams.cli.database import Connection, ledger_rows, row, rows, snapshot
from streams.cli.errors import ConfigurationError, TryAgainError
from streams.cli.held import REMEDY, Held
from streams.core.audit import (
    Group,
    Judgment,
    Readings,
    Row,
    Tally,
    broken_seals,
    cell_readings,
    judge,
    registry_readings,
    sealable,
    without_swept_canaries,
)
from streams.core.audit_names import Identity, Named, name_missing, name_repeated
from streams.core.audit_units import UnitsFound
from streams.core.instant import FIRST_US, wire_text
from streams.core.recorded_again import perhaps_again, without_recorded_again
from streams.core.skipped import Missing

POLL_S = 0.1
IDENTITIES_SHOWN = 20
RESTORED: Final = "; no rows here stand out for them. If the service's database was restored, "
ANEW: Final = f"{RESTORED}record again what it has lost, under the same keys"
FORGOTTEN: Final[Mapping[Group, str]] = {
    "usage": ANEW,
    "conflict": f"{ANEW}; no unit of these is counted",
    "canary": f"{RESTORED}it has forgotten these; they are no usage",
}
"""What may be behind verdicts that nobody recorded, and what to do."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Where the time of waiting comes from."""

    sleep: Callable[[float], None]
    elapsed_s: Callable[[], float]
    deadline_s: float
    show: Callable[[str], None]
    """Progress, one short text."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at registry and cells showed."""

    judgments: list[Judgment]
    second: Readings
    """The registry, read last."""
    classes: Counter[str]
    """Identities by verdict class."""
    skipped: Sequence[SkippedRecord]
    copies: Sequence[Identity]
    recorded_again: int
    units: UnitsFound

    def missing(self, source: Connection) -> Iterator[Missing]:
        """Identities that have no verdict, where their minute's digest singles them out."""
        for judgment in self.judgments:
            named = (
                name_missing(identities_of(source, judgment), judgment.cells)
                if judgment.lost
                else Named((), exact=False)
            )
            if named.exact:
                yield from (Missing(judgment.minute_us, each) for each in named.identities)


def compare(
    source: Connection,
    ledger: Connection,
    span: Span,
    token: UUID,
    waiting: Waiting,
    held: Sequence[Held] = (),
) -> RegistryPart:
    """Judges every minute of the span, and seals those that are equal and over.

    A held partition lets no canary through, so what has no verdict may wait there: such minutes
    are open, not lost, and the partition is a finding.

    Raises:
        TryAgainError: canaries did not arrive in time; nothing can be judged.
        UnknownClassError: the workers or the database are newer than this command.
        psycopg.Error: one of the databases refused or went away.
    """
    floor = read_floor(source)
    look = look_at(source, ledger, span, token, waiting, held)
    judgments = look.judgments
    sealed = {
        minute_us: Tally(count, int(digest))
        for minute_us, count, digest in ledger_rows(ledger, "sealed", span.of_ledger)
    }
    findings = [AuditFinding("held", f"partition {h.partition}", f"{h}; {REMEDY}") for h in held]
    explained = [(each, _explained(source, each)) for each in judgments if _differs(each)]
    findings += [finding for _, finding in explained]
    findings += seal_findings(source, span, broken_seals(sealed, look.second))
    findings += units_findings(look.units, judgments)
    part = RegistryPart(
        judgments,
        look.classes,
        open_minutes(source, judgments),
        findings,
        sealed_before=len(sealed),
        copies=look.copies,
        recorded_again=look.recorded_again,
        perhaps_again=perhaps_again(
            each for each, finding in explained if each.lost or finding.is_forgotten
        ),
        conflicts_forgotten=sum(
            each.phantom
            for each, finding in explained
            if finding.is_forgotten and each.group == "conflict"
        ),
        skipped=look.skipped,
        units=look.units,
    )
    old = floor.old(span.open_us_max)
    part.unsealed = floor.held_back(judgments, old, sealed)
    part.holders = old if part.unsealed else ()
    if not findings:
        seal(source, ledger, span, part, sealable(judgments, floor.us), set(sealed))
    return part


def look_at(
    source: Connection,
    ledger: Connection,
    span: Span,
    token: UUID,
    waiting: Waiting,
    held: Sequence[Held],
) -> Look:
    """Both sides of every minute of the span, after a canary on each partition has settled.

    Raises:
        ConfigurationError: canaries do not go to every partition; nothing can be judged.
        TryAgainError: canaries did not arrive in time; nothing can be judged.
        UnknownClassError: the workers or the database are newer than this command.
        psycopg.Error: one of the databases refused or went away.
    """
    first = _registry(source, span)
    emitted = row(source, "emit_canaries", {"token": token})["emitted"]
    _refuse_gaps(ledger, span.source, int(emitted))
    awaited = set(range(int(emitted))) - {each.partition for each in held}
    _await_canaries(ledger, span.source, token, awaited, waiting)
    # Each side in one snapshot, the ledger's first: what it holds, the registry has then.
    with snapshot(ledger), snapshot(source):
        return _both_sides(source, ledger, span, first, may_wait=bool(held))


def _both_sides(
    source: Connection, ledger: Connection, span: Span, first: Readings, *, may_wait: bool
) -> Look:
    cell_rows = [
        Row(minute_us, name, Tally(count, int(digest)))
        for minute_us, name, count, digest in ledger_rows(ledger, "cells", span.of_ledger)
    ]
    second = _registry(source, span)
    kept_from_us = row(source, "canary_kept_from")["kept_from_us"] or FIRST_US
    judgments = judge(
        without_swept_canaries(first, kept_from_us),
        without_swept_canaries(cell_readings(cell_rows), kept_from_us),
        without_swept_canaries(second, kept_from_us),
    )
    skipped = read_skipped(ledger)
    judgments, copies = without_copies(source, skipped, judgments)
    judgments, again = without_recorded_again(judgments)
    if may_wait:
        judgments = [_may_wait(judgment) for judgment in judgments]
    classes: Counter[str] = Counter()
    for cell in cell_rows:
        classes[cell.name] += cell.tally.count
    classes.subtract(told_as(copy, skipped) for copy in copies)
    units = read_units(
        source, ledger, Judged(span.source, span.from_us, judgments, copies, again > 0)
    )
    return Look(judgments, second, classes, sent_again(skipped, copies), copies, again, units)


def _registry(source: Connection, span: Span) -> Readings:
    return registry_readings(
        Row(r["minute_us"], r["kind"], Tally(r["count"], int(r["digest"])))
        for r in rows(source, "registry_minutes", span.of_registry)
    )


def _refuse_gaps(ledger: Connection, source: str, emitted: int) -> None:
    """What waits in a partition without a canary would look lost."""
    ((followed,),) = ledger_rows(ledger, "partitions_followed", {"topic": USAGE_TOPIC})
    if followed is not None and emitted < followed:
        raise ConfigurationError(
            f"{source} sends canaries to {emitted} of the {followed} partitions of "
            f"{USAGE_TOPIC}, so nothing can be judged",
            fix=f"`tailrace source grow --partitions {followed}`, then audit again",
        )


def _await_canaries(
    ledger: Connection, source: str, token: UUID, awaited: set[int], waiting: Waiting
) -> None:
    ends_s = waiting.elapsed_s() + waiting.deadline_s
    values = {"source": source, "token": str(token)}
    while True:
        arrived = {partition for (partition,) in ledger_rows(ledger, "canaries_arrived", values)}
        waiting.show(f"canaries settled: {len(arrived)} of {len(awaited)} partitions")
        late = sorted(awaited - arrived)
        if not late:
            return
        if waiting.elapsed_s() >= ends_s:
            raise TryAgainError(
                f"canaries of partitions {', '.join(map(str, late))} did not settle within "
                f"{waiting.deadline_s:.0f} s, so nothing can be judged yet",
                fix="see `tailrace connector status` and `tailrace status`, then audit again",
            )
        waiting.sleep(POLL_S)


def _may_wait(judgment: Judgment) -> Judgment:
    return judgment._replace(verdict="open") if judgment.lost else judgment


def _differs(judgment: Judgment) -> bool:
    return judgment.verdict in ("lost", "phantom", "mixed")


def _explained(source: Connection, judgment: Judgment) -> AuditFinding:
    """A difference with the identities behind it, exactly where their contents single them out."""
    identities = identities_of(source, judgment)
    named = (
        name_repeated(identities, judgment.cells)
        if judgment.verdict == "phantom"
        else name_missing(identities, judgment.cells)
    )
    minute = wire_text(judgment.minute_us)
    is_forgotten = judgment.verdict == "phantom" and not named.identities
    text = (
        f"minute {minute}, {judgment.group}: registry {judgment.second.count}, "
        f"verdicts {judgment.cells.count}{_names(named)}"
        f"{FORGOTTEN[judgment.group] if is_forgotten else ''}"
    )
    # Of these nothing is ever counted: forgotten, they tell of the registry and of no amount.
    double = 0 if is_forgotten and judgment.group != "usage" else judgment.phantom
    return AuditFinding(
        judgment.verdict, minute, text, judgment.lost, double, named, is_forgotten=is_forgotten
    )


def _names(named: Named) -> str:
    if not named.identities:
        return ""
    shown = ", ".join(f"{i.tenant_id}/{i.event_key}" for i in named.identities[:IDENTITIES_SHOWN])
    more = len(named.identities) - IDENTITIES_SHOWN
    rest = f" and {more} more, see --json" if more > 0 else ""
    return f": {'' if named.exact else 'among '}{shown}{rest}"
