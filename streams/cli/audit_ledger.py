"""The ledger against itself: verdicts = amounts + parked items, and every window foots."""

from typing import Any

from streams.cli.audit_report import AuditFinding, LedgerPart
from streams.cli.database import Connection, ledger_rows, row, rows
from streams.core.instant import wire_text

FINDINGS_READ = 100


def check_ledger(ledger: Connection, audited: str) -> LedgerPart:
    """Reads the ledger's equations; each difference is a finding.

    Args:
        ledger: read only.
        audited: the source whose registry this audit compares; what others recorded is judged by
            their own audits, what nobody registered by none.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    totals = row(ledger, "balance_totals")
    unbalanced = int(totals.pop("unbalanced"))
    balance = {name: int(value) for name, value in totals.items()}
    findings = []
    if unbalanced:
        findings.append(
            AuditFinding("balance", "ledger.balance", f"{unbalanced} windows do not foot")
        )
    equations = rows(ledger, "identity_equations")
    findings += [_unequal(equation) for equation in equations if not _equal(equation)]
    findings += [_overdrawn(level) for level in rows(ledger, "overdrawn_levels")]
    findings += _misplaced(ledger)
    findings += [_unfooted_request(request) for request in rows(ledger, "unfooted_requests")]
    findings += [_unfooted_approval(approved) for approved in rows(ledger, "unfooted_approvals")]
    findings += [_unregistered(s) for s in rows(ledger, "unregistered", {"audited": audited})]
    findings += [
        AuditFinding("ledger", str(subject), f"ledger finding {finding_id} {kind}: {subject}")
        for finding_id, kind, subject, *_ in ledger_rows(
            ledger, "findings", {"limit": FINDINGS_READ}
        )
    ]
    return LedgerPart(balance, equations, findings)


def _equal(equation: dict[str, Any]) -> bool:
    return bool(equation["judged"] == equation["placed"] and equation["same_content"])


def _unequal(equation: dict[str, Any]) -> AuditFinding:
    name, judged, placed = equation["verdict_class"], equation["judged"], equation["placed"]
    same = judged == placed
    text = f"{name}: {judged} first verdicts, {placed} in {equation['place']}"
    return AuditFinding(
        "equation",
        name,
        text + (", with other contents" if same else ""),
        lost=1 if same else max(0, judged - placed),
        double=1 if same else max(0, placed - judged),
    )


def _overdrawn(level: dict[str, Any]) -> AuditFinding:
    window = wire_text(int(level["window_start_us"]))
    subject = f"{level['tenant_id']} {level['metric']} {window}"
    return AuditFinding(
        "overdrawn", subject, f"{subject}: entries count more than the level ever held", double=1
    )


def _unregistered(source: dict[str, Any]) -> AuditFinding:
    name, count = source["source"], int(source["count"])
    return AuditFinding(
        "source",
        name,
        f"source {name}: {count} identities were judged that no registered database recorded; "
        "`tailrace source register` if it is one of yours, else find out who writes to the topic",
        double=count,
    )


def _unfooted_request(request: dict[str, Any]) -> AuditFinding:
    units, entries = int(request["units"]), int(request["entries"])
    subject = f"request {request['meter_event_id']} {request['customer']} {request['event_name']}"
    text = (
        f"{subject}: {units} units, value {request['value']}, and its entries come to {entries}; "
        "see `tailrace statement` of its tenant"
    )
    return _other_amount("request", subject, text, entries, units)


def _unfooted_approval(approved: dict[str, Any]) -> AuditFinding:
    item, units, delta = approved["parked_id"], int(approved["units"]), int(approved["delta"])
    subject = f"item {item} {approved['tenant_id']} {approved['metric']}"
    text = (
        f"{subject}: approved with {units} units, its entry has {delta}; "
        f"see `tailrace review show {item}`"
    )
    return _other_amount("approval", subject, text, units, delta)


def _other_amount(kind: str, subject: str, text: str, owed: int, has: int) -> AuditFinding:
    return AuditFinding(kind, subject, text, lost=int(has < owed), double=int(has >= owed))


def _misplaced(ledger: Connection) -> list[AuditFinding]:
    entries, levels = ledger_rows(ledger, "misplaced")[0]
    found = []
    if entries:
        found.append(
            AuditFinding(
                "misplaced",
                "entries",
                f"{entries} entries are neither covered by a request nor waiting, or both",
                lost=int(entries),
            )
        )
    if levels:
        found.append(
            AuditFinding(
                "misplaced",
                "levels",
                f"{levels} levels differ from their entries though nothing is due",
                lost=int(levels),
            )
        )
    return found
