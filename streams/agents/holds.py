"""Records that hold partitions of this worker → rows in the ledger, where people decide on them.

A decision comes back with the orders that are read beside the catalogue; the partition is then read
again, and admission dead-letters exactly that record.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

import structlog

from streams.adapters.clock import Clock
from streams.core.identity import log_uuid
from streams.core.orders import HeldRecord, Orders, fingerprint
from streams.engine.log import LogId, Record
from streams.ports import HoldLedger, LedgerUnavailableError

REPORT_EVERY_S: Final = 15.0
log = structlog.get_logger("holds")


@dataclass(slots=True)
class _Reported:
    held: HeldRecord
    at_s: float | None = None
    """When it was last reported, by the elapsed clock."""


def record_held(log_id: LogId, record: Record, reason: str) -> HeldRecord:
    """A record that its partition waits at, for the ledger."""
    return HeldRecord(
        log_id=log_uuid(log_id.topic_id),
        partition=log_id.partition,
        offset=record.offset,
        fingerprint=fingerprint(record.key, record.value),
        reason=reason,
        record_bytes=len(record.value or b""),
    )


class Holds:
    """What this worker is held at."""

    def __init__(self, ledger: HoldLedger, clock: Clock, worker: str) -> None:
        self._ledger = ledger
        self._clock = clock
        self._worker = worker
        self._by_partition: dict[int, _Reported] = {}

    def note(self, held: HeldRecord) -> None:
        """A partition stopped before this record."""
        known = self._by_partition.get(held.partition)
        if known is None or known.held != held:
            self._by_partition[held.partition] = _Reported(held)
            log.error(
                "record_held", partition=held.partition, offset=held.offset, reason=held.reason
            )

    async def report(self, partitions: Container[int]) -> None:
        """Tells the ledger of what still holds; a ledger that is away is told later.

        Args:
            partitions: those that the engine holds now. What was reported of others is over; what
                was not is about to be held, since a chunk says so before the engine does it.
        """
        self._by_partition = {
            p: r for p, r in self._by_partition.items() if p in partitions or r.at_s is None
        }
        for partition, reported in list(self._by_partition.items()):
            now_s = self._clock.elapsed_s()
            if partition not in partitions:
                continue
            if reported.at_s is not None and now_s - reported.at_s < REPORT_EVERY_S:
                continue
            try:
                await self._ledger.report_held(reported.held, self._worker)
            except LedgerUnavailableError as error:
                log.warning("ledger_unavailable", doing="held records", error=str(error))
                return
            reported.at_s = now_s

    def skipped(self, orders: Orders) -> list[int]:
        """Partitions that may go on, because it was decided to skip the record they are held at."""
        return [p for p, r in self._by_partition.items() if orders.skips_record(r.held)]
