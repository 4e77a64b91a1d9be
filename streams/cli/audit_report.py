"""An audit's result: findings and figures → the verdict line, the JSON document, the exit code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streams.cli.audit_open import OpenMinute, OpenTransaction
from streams.cli.audit_skipped import SkippedRecord
from streams.cli.audit_units_document import units_document
from streams.cli.document import instant_text
from streams.core.audit import Judgment
from streams.core.audit_names import Identity, Named
from streams.core.audit_units import UnitsFound
from streams.core.instant import wire_text
from streams.core.skipped import explained


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One thing that is not equal.

    `lost` and `double` count identities, or cells of Stripe's; both 0 where neither can be said.
    """

    kind: str
    subject: str
    text: str
    lost: int = 0
    double: int = 0
    named: Named | None = None
    skipped: int = 0
    """So many of the lost a person decided to skip."""
    is_forgotten: bool = False
    """Whether these are verdicts that no row of the registry stands out for."""

    def document(self) -> dict[str, Any]:
        """As it stands in the JSON report."""
        named = self.named or Named((), exact=False)
        return {
            "kind": self.kind,
            "subject": self.subject,
            "text": self.text,
            "lost": self.lost,
            "double": self.double,
            "skipped": self.skipped,
            "exact": named.exact,
            "identities": [
                {
                    "event_id": identity.event_id,
                    "kind": identity.kind,
                    "tenant_id": identity.tenant_id,
                    "event_key": identity.event_key,
                }
                for identity in named.identities
            ],
        }


def with_skipped(finding: AuditFinding, records: Sequence[SkippedRecord]) -> AuditFinding:
    """A finding of something lost, with how much of it a person decided to skip."""
    if not finding.lost or finding.named is None:
        return finding
    names = explained(finding.named.identities, [record.said for record in records])
    count = min(len(names), finding.lost)
    if not count:
        return finding
    text = f"{finding.text}; {count} of {finding.lost} skipped by decision"
    return replace(finding, skipped=count, text=text)


@dataclass
class RegistryPart:
    """Registry against cells."""

    judgments: list[Judgment]
    classes: Mapping[str, int]
    open_minutes: list[OpenMinute]
    findings: list[AuditFinding]
    units: UnitsFound
    sealable: int = 0
    sealed_now: int = 0
    sealed_before: int = 0
    unsealed: Sequence[int] = ()
    """Minutes that are equal and over, and could not be sealed because of `holders`."""
    holders: Sequence[OpenTransaction] = ()
    """Transactions that have been open for too long."""
    copies: Sequence[Identity] = ()
    """Whose copies were skipped: each has its own verdict, and the skip is none."""
    recorded_again: int = 0
    """So many identities the registry forgot and got again; their verdicts are the first ones."""
    perhaps_again: int = 0
    """So many of the lost may be so many of the double, recorded again by now: not proven."""
    conflicts_forgotten: int = 0
    """So many have a verdict and no record; a conflict adds to no amount, so none is double."""
    skipped: Sequence[SkippedRecord] = ()
    """What people decided to go on without."""

    def identities(self, group: str) -> int:
        """What the registry holds of a group."""
        return sum(j.second.count for j in self.judgments if j.group == group)

    def minutes(self, verdict: str) -> int:
        """Minutes whose usage or conflicts got this verdict."""
        return len(
            {j.minute_us for j in self.judgments if j.verdict == verdict and j.group != "canary"}
        )


@dataclass
class LedgerPart:
    """The ledger against itself."""

    balance: Mapping[str, int]
    equations: list[dict[str, Any]]
    findings: list[AuditFinding]


@dataclass
class StripePart:
    """Settled amounts against Stripe's own sums, in cells of customer, meter and UTC hour."""

    equal: int = 0
    open: int = 0
    skipped: int = 0
    findings: list[AuditFinding] = field(default_factory=list)


@dataclass
class AuditReport:
    """Everything an audit found."""

    source: str
    since_us: int | None
    at_us: int
    registry: RegistryPart
    ledger: LedgerPart
    stripe: StripePart | None
    skipped_records: Sequence[SkippedRecord] = ()
    """What people decided to go on without."""

    @property
    def findings(self) -> list[AuditFinding]:
        """All of them, in the order of the journey."""
        stripe = self.stripe.findings if self.stripe else []
        records = self.skipped_records
        return [
            *(with_skipped(finding, records) for finding in self.registry.findings),
            *self.ledger.findings,
            *stripe,
        ]

    @property
    def lost(self) -> int:
        """Identities and cells that are short."""
        return sum(finding.lost for finding in self.findings)

    @property
    def double(self) -> int:
        """Identities and cells that are above what was recorded."""
        return sum(finding.double for finding in self.findings)

    @property
    def skipped(self) -> int:
        """How many of the lost identities people decided to skip."""
        return sum(finding.skipped for finding in self.findings)

    @property
    def named(self) -> int:
        """Skipped records of which people said what they were: neither billed nor lost."""
        classes = self.registry.classes
        return classes.get("skipped", 0) + classes.get("skipped conflict", 0)

    @property
    def nameable(self) -> Sequence[SkippedRecord]:
        """Records because of which something may be lost, and of which nobody has said what."""
        lost = any(finding.lost for finding in self.registry.findings)
        return [record for record in self.skipped_records if lost and record.unnamed]

    @property
    def complete(self) -> bool:
        """Whether everything was judged that is over, and sealed that is equal."""
        return not self.registry.unsealed and not self._held

    @property
    def _held(self) -> int:
        return sum(finding.kind == "held" for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The one line; a proof that is not complete does not look like one."""
        said = [f"lost {self.lost}", f"double {self.double}"]
        if perhaps := self.registry.perhaps_again:
            said.append(f"not proven: {perhaps} of the lost may be recorded again")
        if forgotten := self.registry.conflicts_forgotten:
            said.append(f"conflicts that the registry has forgotten: {forgotten}")
        if self.skipped:
            said.append(f"{self.skipped} of the lost skipped by decision")
        if self.named:
            said.append(f"{self.named} skipped by decision, not billed")
        if self._held:
            said.append(f"held {self._held}: what waits there is not judged yet")
        if unsealed := len(self.registry.unsealed):
            minutes = "minute" if unsealed == 1 else "minutes"
            said.append(f"{unsealed} {minutes} could not be sealed yet")
        return " · ".join(said)

    def document(self) -> dict[str, Any]:
        """The JSON report."""
        registry, stripe = self.registry, self.stripe
        return {
            "source": self.source,
            "since": instant_text(self.since_us),
            "at": wire_text(self.at_us),
            "registry": {
                "identities": registry.identities("usage"),
                "conflicts": registry.identities("conflict"),
                "canaries": registry.identities("canary"),
                "minutes_equal": registry.minutes("equal"),
                "minutes_open": registry.minutes("open"),
                "sealed_now": registry.sealed_now,
                "sealed_before": registry.sealed_before,
                "copies_skipped": len(registry.copies),
                "recorded_again": registry.recorded_again,
                "perhaps_again": registry.perhaps_again,
                "conflicts_forgotten": registry.conflicts_forgotten,
            },
            "verdicts": dict(registry.classes),
            "units": units_document(registry.units),
            "open": [
                {"minute": wire_text(minute.minute_us), "holders": list(minute.holders)}
                for minute in registry.open_minutes
            ],
            "unsealed": {
                "minutes": len(registry.unsealed),
                "transactions": [holder.document() for holder in registry.holders],
            },
            "ledger": {name: str(value) for name, value in self.ledger.balance.items()},
            "equations": self.ledger.equations,
            "stripe": None
            if stripe is None
            else {"equal": stripe.equal, "open": stripe.open, "skipped": stripe.skipped},
            "findings": [finding.document() for finding in self.findings],
            "skipped": [record.document() for record in self.skipped_records],
            "lost": self.lost,
            "double": self.double,
            "ok": not self.findings,
            "complete": self.complete,
        }

    def rows(self) -> list[tuple[str, object, str]]:
        """The table of counts: what, how many, of what."""
        registry, balance, stripe = self.registry, self.ledger.balance, self.stripe
        verdicts, units = registry.classes, registry.units
        rows: list[tuple[str, object, str]] = [
            ("recorded", registry.identities("usage"), "identities in the registry"),
            *(
                (f"  {name}", verdicts.get(name, 0), "by first verdict")
                for name in ("accepted", "review", "dead", "correction")
            ),
            *([("  skipped", self.named, "by decision: not billed")] if self.named else []),
            ("conflicts", registry.identities("conflict"), "other contents of known identities"),
            *(
                [("copies skipped", len(registry.copies), "of identities with their own verdict")]
                if registry.copies
                else []
            ),
            *(
                [("recorded again", registry.recorded_again, "after a restore; counted once")]
                if registry.recorded_again
                else []
            ),
            ("minutes equal", registry.minutes("equal"), f"{registry.sealed_now} sealed now"),
            ("minutes open", registry.minutes("open"), "moved while being looked at"),
            ("units equal", units.equal, "windows of a tenant and metric, recorded = counted"),
            *([("units open", units.open, "windows under way")] if units.open else []),
            *([("units shared", units.shared, "with other sources")] if units.shared else []),
            ("settled", balance["settled"], "units"),
            *(
                (name, balance[name], "units")
                for name in ("pending", "held", "dead", "ambiguous")
                if balance[name]
            ),
        ]
        if stripe is not None:
            rows.append(("Stripe cells equal", stripe.equal, "customer × meter × hour"))
            if stripe.open or stripe.skipped:
                rows.append(("Stripe cells open", stripe.open, f"{stripe.skipped} pairs not asked"))
        return rows
