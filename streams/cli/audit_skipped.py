"""What people decided to skip: each decision with what its record says of itself."""

from dataclasses import dataclass
from typing import Any

from streams.cli.database import Connection, ledger_rows
from streams.cli.document import instant_text
from streams.cli.held_records import state_of
from streams.core.skipped import Said, say


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
        }

    def __str__(self) -> str:
        """One line for an operator."""
        names = [name for name in (self.said.tenant_id, self.said.event_key) if name is not None]
        whose = "/".join(names) or "nothing that names an event"
        return (
            f"{self.state}: offset {self.offset} of partition {self.partition}, {whose}, by "
            f"{self.actor}: {self.reason} (receipt {self.receipt})"
        )


def read_skipped(ledger: Connection) -> list[SkippedRecord]:
    """All decisions to skip a record, the oldest first.

    Raises:
        psycopg.Error: the ledger refused or went away.
    """
    found = []
    for line in ledger_rows(ledger, "skipped_records"):
        log_id, partition, offset, reason, actor, decided_us, receipt, parked, passed, record = line
        state = state_of(decided=True, parked=parked, passed=passed)
        found.append(
            SkippedRecord(
                log_id, partition, offset, reason, actor, decided_us, receipt, state, say(record)
            )
        )
    return found
