"""What people decided to skip: each decision with what its record says of itself."""

from dataclasses import dataclass
from typing import Any

from streams.cli.database import Connection, ledger_rows
from streams.cli.document import instant_text
from streams.core.skipped import Said, say, state_of


@dataclass(frozen=True, slots=True)
class NamedSkip:
    """Which recorded identity a skipped record was, by a person's word."""

    event_id: str
    tenant_id: str
    event_key: str
    actor: str
    reason: str
    receipt: int


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """One decision to go on without a record, with what the record says of itself."""

    log_id: str
    partition: int
    offset: int
    reason: str
    actor: str
    decided_us: int
    receipt: int
    state: str
    """As `tailrace held list` says it: skipped, done or contradicted."""
    said: Said
    judged: bool
    """Whether its identity could be read, so that the skip is its verdict."""
    named: NamedSkip | None = None
    sent_again: bool = False
    """Whether what it was named as came once more and was read: that is its verdict then."""

    @property
    def event_id(self) -> str | None:
        """Whose record it was: by a person's word, or else by its own."""
        return self.said.event_id if self.named is None else self.named.event_id

    @property
    def unnamed(self) -> bool:
        """Whether an identity may be without a verdict because of it, and nobody has said which."""
        return self.state == "done" and not self.judged and self.named is None

    def document(self) -> dict[str, Any]:
        """As it stands in the JSON report."""
        return {
            "log_id": self.log_id,
            "partition": self.partition,
            "offset": self.offset,
            "state": self.state,
            "tenant_id": self.said.tenant_id,
            "event_key": self.said.event_key,
            "event_id": self.said.event_id,
            "reason": self.reason,
            "actor": self.actor,
            "decided_at": instant_text(self.decided_us),
            "receipt": self.receipt,
            "named": None
            if self.named is None
            else {
                "tenant_id": self.named.tenant_id,
                "event_key": self.named.event_key,
                "event_id": self.named.event_id,
                "actor": self.named.actor,
                "reason": self.named.reason,
                "receipt": self.named.receipt,
            },
        }

    def __str__(self) -> str:
        """One line for an operator."""
        names = [name for name in (self.said.tenant_id, self.said.event_key) if name is not None]
        whose = "/".join(names) or "nothing that names an event"
        text = (
            f"{self.state}: offset {self.offset} of partition {self.partition}, {whose}, by "
            f"{self.actor}: {self.reason} (receipt {self.receipt})"
        )
        if self.named is not None:
            named = self.named
            end = "sent again since, and judged by that" if self.sent_again else "not billed"
            text += (
                f"; it was {named.tenant_id}/{named.event_key}, says {named.actor}: "
                f"{named.reason} (receipt {named.receipt}); {end}"
            )
        return text


def read_skipped(ledger: Connection) -> list[SkippedRecord]:
    """All decisions to skip a record, the oldest first.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    found = []
    for line in ledger_rows(ledger, "skipped_records"):
        log_id, partition, offset, reason, actor, decided_us, receipt = line[:7]
        parked, passed, record, judged = line[7:11]
        named = None if line[11] is None else NamedSkip(*line[11:])
        state = state_of(decided=True, parked=parked, passed=passed)
        found.append(
            SkippedRecord(
                log_id, partition, offset, reason, actor, decided_us, receipt, state, say(record),
                judged, named,
            )
        )  # fmt: skip
    return found
