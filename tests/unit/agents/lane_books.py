"""The ledger's books on lanes, in memory and by its own rules: lend, settle, redrive."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from streams.core.lane import Claim, DeadKind, MeterEventState, Settlement
from streams.core.meter_event import MeterEvent


@dataclass
class Attempt:
    """Written before the first byte; finished once."""

    number: int
    finished: bool = False


@dataclass
class Row:
    """A meter event, alone in its lane."""

    event: MeterEvent
    lane_id: int
    state: MeterEventState = "pending"
    dead_kind: DeadKind | None = None
    key_generation: int = 1
    attempts_used: int = 0
    first_attempt_at_us: int | None = None
    possibly_executed: bool = False
    next_attempt_at_us: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    claimed_until_us: int | None = None
    claimed_for: int | None = None

    @property
    def open(self) -> bool:
        return self.state in {"pending", "ambiguous"}

    @property
    def unfinished(self) -> bool:
        """An attempt that nobody has told the end of."""
        return any(not attempt.finished for attempt in self.attempts)


class LaneBooks:
    """A `LaneLedger`; `now_us` is its clock, moved by the test."""

    def __init__(self, events: Sequence[MeterEvent], now_us: int) -> None:
        self.now_us = now_us
        self.rows = [Row(event, number) for number, event in enumerate(events)]
        self._attempts = 0

    async def cut_entries(self, limit: int) -> int:
        del limit
        return 0

    async def claim(self, worker: str, limit: int, lease_s: int) -> Sequence[Claim]:
        del worker
        free = (row for row in self.rows if (row.claimed_until_us or 0) <= self.now_us)
        due = [row for row in free if row.open and row.next_attempt_at_us <= self.now_us]
        return [self._lend(row, lease_s * 1_000_000) for row in due[:limit]]

    def _lend(self, row: Row, lease_us: int) -> Claim:
        doubted = row.possibly_executed or row.unfinished
        if not doubted or row.first_attempt_at_us is None:
            row.first_attempt_at_us = self.now_us
        row.possibly_executed = doubted
        until_us = row.next_attempt_at_us = row.claimed_until_us = self.now_us + lease_us
        self._attempts += 1
        row.claimed_for = self._attempts
        row.attempts.append(Attempt(self._attempts))
        event = row.event
        return Claim(
            lane_id=row.lane_id, meter_event_id=row.lane_id, attempt_id=self._attempts,
            customer=event.customer, event_name=event.event_name, value=str(event.value),
            timestamp_s=event.timestamp_s, identifier=event.identifier,
            payload_hash=event.payload_hash, key_generation=row.key_generation,
            attempts_used=row.attempts_used, previous_attempts=len(row.attempts) - 1,
            first_attempt_at_us=row.first_attempt_at_us, possibly_executed=row.possibly_executed,
            now_us=self.now_us, lease_until_us=until_us,
        )  # fmt: skip

    async def settle(self, settlement: Settlement) -> None:
        row = self.rows[settlement.claim.lane_id]
        number = settlement.claim.attempt_id
        attempt = next(a for a in row.attempts if a.number == number)
        if attempt.finished:
            return
        attempt.finished = True
        executed = row.possibly_executed or settlement.possibly_executed
        if settlement.state == "recorded" and row.state in {"pending", "ambiguous", "dead"}:
            row.state, row.dead_kind = "recorded", None
        elif row.open and row.attempts[-1].number == number:
            self._fail(row, settlement, executed=executed)
        if row.state != "recorded":
            row.possibly_executed = executed
        row.key_generation = max(row.key_generation, settlement.key_generation)
        if row.claimed_for == number:
            row.claimed_for = row.claimed_until_us = None

    def _fail(self, row: Row, settlement: Settlement, *, executed: bool) -> None:
        row.attempts_used += settlement.attempt_used
        if settlement.state == "dead":
            row.state = "dead"
            row.dead_kind = "ambiguous" if executed else settlement.dead_kind
            return
        row.state = "ambiguous" if executed else "pending"
        row.next_attempt_at_us = self.now_us + (settlement.retry_delay_ms or 0) * 1_000

    def redrive(self, row: Row) -> bool:
        """A person sends a dead meter event again; refused while Stripe may hold it."""
        if row.state != "dead" or row.possibly_executed:
            return False
        row.state, row.dead_kind, row.attempts_used = "pending", None, 0
        row.key_generation += 1
        row.next_attempt_at_us = self.now_us
        return True
