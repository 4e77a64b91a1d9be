"""What the slot guard says: findings with their repair, and what it compares with."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from connectors.linter import Scope
from connectors.source_registry import SourceIdentity
from connectors.source_settings import SourceSettings

REPAIR = (
    "run the repair (`tailrace connector repair`): it forgets the stored position, makes a new "
    "slot and re-emits the outbox from the first minute without a seal; then audit to zero"
)


class Severity(StrEnum):
    """What a finding asks for."""

    REFUSE = "refuse"
    """Rows could be lost: do not start; stop if running."""
    ALARM = "alarm"
    """Someone should look; rows are safe where they are."""


class Start(StrEnum):
    """Why capture is to run, which decides whether it may do so without a stored position."""

    GO_ON = "go-on"
    """A position must be there."""
    FIRST = "first"
    """The source was just registered and has never delivered a row."""
    REPAIR = "repair"
    """The stored position was deleted on purpose."""


@dataclass(frozen=True, slots=True)
class GuardFinding:
    """One thing the guard saw."""

    rule: str
    """Short name of the broken rule, fit for a metric's label."""
    severity: Severity
    evidence: str
    """What was seen, with numbers."""
    repair: str
    """What to do."""

    def __str__(self) -> str:
        """One line for an operator."""
        return f"{self.rule}: {self.evidence}; {self.repair}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a healthy lag becomes an alarm."""

    behind_bytes_max: int = 1 << 30
    """WAL the slot may hold back."""
    safe_wal_bytes_min: int = 1 << 30
    """WAL that may still be written before the server gives the slot up."""
    canary_age_s_max: float = 120.0
    """Age of the freshest canary that came through."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the observation is compared with."""

    identity: SourceIdentity
    """As registered."""
    settings: SourceSettings
    config: dict[str, str]
    """As rendered from the settings."""
    start: Start = Start.GO_ON
    limits: Limits = field(default_factory=Limits)
    scope: Scope = field(default_factory=Scope)
    canary_age_s: float | None = None
    """Age of the oldest partition's canary at the far end; None when it is not known here."""


def must_stop(findings: Iterable[GuardFinding]) -> list[GuardFinding]:
    """The findings under which no row may flow."""
    return [finding for finding in findings if finding.severity is Severity.REFUSE]


def refuse(rule: str, evidence: str, repair: str = REPAIR) -> GuardFinding:
    """A finding under which no row may flow."""
    return GuardFinding(rule, Severity.REFUSE, evidence, repair)


def alarm(rule: str, evidence: str, repair: str) -> GuardFinding:
    """A finding somebody should look at while rows go on."""
    return GuardFinding(rule, Severity.ALARM, evidence, repair)
