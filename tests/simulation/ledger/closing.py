"""Requests that are not sent any more: dead letters, and what their invoice does not wait for."""

from collections.abc import Sequence
from typing import Any

from tests.simulation.ledger.pausing import Pausing
from tests.simulation.ledger.rows import MeterEventRow, Parked


class Closing(Pausing):
    """How a request comes to rest without Stripe."""

    def close_overdue(self, lanes: Sequence[int]) -> int:
        """Requests whose invoice is closing: freed, or left in doubt; how many of the latter."""
        closing = [
            m
            for lane_id in lanes
            for m in self.open_in(lane_id)
            if m.open and self.has_passed(m.deadline_us)
        ]
        doubtful = [m for m in closing if self.may_be_executed(m)]
        self.release(m for m in closing if not self.may_be_executed(m))
        for m in doubtful:
            m.state, m.dead_kind, m.possibly_executed = "dead", "ambiguous", True
            m.next_attempt_us = None
            self.park_dead(m)
        return len(doubtful)

    def may_be_executed(self, m: MeterEventRow) -> bool:
        """Whether Stripe may have it, as far as this ledger knows."""
        return m.state == "ambiguous" or m.possibly_executed or self.unfinished(m)

    def park_dead(self, m: MeterEventRow) -> None:
        """A meter event that is not sent any more waits for a person."""
        self.deaths.append(m.dead_kind or "")
        for p in self.tables.parked:
            if p.meter_event_id == m.meter_event_id:
                p.state, p.reason, p.published = "open", m.dead_kind or "", False
                return
        number = len(self.tables.parked) + 1
        self.tables.parked.append(
            Parked(number, "dead", m.dead_kind or "", {}, meter_event_id=m.meter_event_id)
        )

    def dead_letters(self, limit: int) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for p in self.tables.parked:
            if p.meter_event_id is not None and not p.published and len(found) < limit:
                m = self.meter_event(p.meter_event_id)
                found.append((
                    p.parked_id, p.reason, m.meter_event_id, None, None, str(m.units),
                    m.start_us, m.end_us, self.now_us, "{}",
                ))  # fmt: skip
        return found

    def dead_letters_published(self, items: Sequence[int]) -> None:
        for parked_id in items:
            self.tables.parked[parked_id - 1].published = True

    def withdraw(self, meter_event_id: int) -> None:
        """Nobody has to decide on a meter event any more."""
        for p in self.tables.parked:
            if p.meter_event_id == meter_event_id and p.state == "open":
                p.state = "withdrawn"
