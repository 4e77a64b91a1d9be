"""Seals of minutes: what an audit found complete, in both databases, and what changed since."""

import msgspec

from streams.cli.audit_report import AuditFinding, RegistryPart
from streams.cli.audit_span import Span
from streams.cli.database import Connection, ledger_rows, rows
from streams.core.audit import Tally
from streams.core.instant import from_us, wire_text


def seal_findings(source: Connection, span: Span, broken: list[int]) -> list[AuditFinding]:
    """Sealed minutes that hold something else now: those that this audit saw, and the source's."""
    findings = [
        AuditFinding(
            "seal",
            wire_text(minute_us),
            f"sealed minute {wire_text(minute_us)} holds other rows now",
        )
        for minute_us in broken
    ]
    for r in rows(source, "changed_seals", span.of_registry):
        if int(r["minute_us"]) not in broken:
            minute = wire_text(int(r["minute_us"]))
            text = (
                f"sealed minute {minute}, {r['kind']}: sealed with {r['sealed_count']} rows, "
                f"holds {r['count']} now"
            )
            findings.append(AuditFinding("seal", minute, text))
    return findings


def seal(
    source: Connection,
    ledger: Connection,
    span: Span,
    part: RegistryPart,
    minutes: dict[int, Tally],
    before: set[int],
) -> None:
    """Writes the seals, the ledger's first: the source drops rows on the strength of its own."""
    fresh = {minute: tally for minute, tally in minutes.items() if minute not in before}
    part.sealable, part.sealed_now = len(minutes), len(fresh)
    if not minutes:
        return
    written = [
        {"minute_us": minute, "count": tally.count, "digest": str(tally.digest)}
        for minute, tally in fresh.items()
    ]
    text = msgspec.json.encode(written).decode()
    ledger_rows(ledger, "seal", {"source": span.source, "rows": text})
    rows(source, "seal_source_minutes", {"minutes": [from_us(minute) for minute in minutes]})
