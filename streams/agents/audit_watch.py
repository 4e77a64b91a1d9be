"""The last audits as the ledger noted them → how old they are and what they found, for metrics.

An audit that stopped running proves nothing, so its age is what somebody is paged for.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from streams.adapters.clock import Clock
from streams.adapters.metrics import Sample
from streams.ports import AuditLedger, AuditNote, LedgerUnavailableError

PAUSE_S: Final = 30.0
log = structlog.get_logger("audits")


class AuditWatch:
    """What is known of the last audit of each source."""

    def __init__(self, ledger: AuditLedger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._notes: Sequence[AuditNote] = ()
        self._read_at_s = 0.0

    async def refresh(self) -> None:
        """Reads once; while the ledger is away the ages known grow."""
        asked_at_s = self._clock.elapsed_s()
        try:
            self._notes = await self._ledger.last_audits()
        except LedgerUnavailableError as error:
            log.warning("ledger_unavailable", doing="audits", error=str(error))
        else:
            self._read_at_s = asked_at_s

    async def keep_fresh(self) -> None:
        """Reads again and again."""
        while True:
            await self.refresh()
            await asyncio.sleep(PAUSE_S)

    def samples(self) -> Iterator[Sample]:
        """Age and verdict by source; a source that was never audited has none."""
        passed_s = self._clock.elapsed_s() - self._read_at_s
        for note in self._notes:
            yield "usage_audit_age_seconds", note.source, note.age_us / 1_000_000 + passed_s
            yield "usage_audit_lost", note.source, note.lost
            yield "usage_audit_double", note.source, note.double
            yield "usage_audit_findings", note.source, note.findings
