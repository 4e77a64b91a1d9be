"""People at work: they decide on what waits, reconcile doubts, and take restored ledgers on.

What they decided stands in their own notes, which the oracle reads; that the ledger refuses a
second time is part of what is tried.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from streams.cli.dead_proof import unproven
from streams.cli.reconcile_plan import Line, rejection, settlement, side_of
from streams.core.instant import HOUR_US
from streams.core.meter_event import Origin
from streams.core.reconcile import Reading, Settle, TakeBack, decide, has_room
from tests.simulation.ledger.database import Database
from tests.simulation.ledger.people import RefusedError
from tests.simulation.ledger.rows import Parked
from tests.simulation.rules import COUNTED, units_of, verdict_of
from tests.simulation.service import Service
from tests.simulation.stripe import Stripe
from tests.simulation.timeline import Timeline

STILL_US = 24 * HOUR_US
Cell = tuple[str, str, int]


@dataclass
class Operator:
    """Whoever is on duty."""

    timeline: Timeline
    database: Database
    stripe: Stripe
    rng: Random
    service: Service
    approved: list[str] = field(default_factory=list)
    """Event ids of reviewed items that are billed."""
    corrects: bool = True
    """Whether anything is still found to be wrong with what was recorded."""
    rejected: list[str] = field(default_factory=list)
    """Event ids of those that are not."""
    corrections: list[tuple[str, str, int, int]] = field(default_factory=list)
    """tenant, metric, instant, units."""

    @property
    def waits_for_sums(self) -> bool:
        """Whether nothing moves but Stripe's sums, which have to stand still for a day."""
        tables = self.database.tables
        busy = any(m.open for m in tables.meter_events) or tables.halts
        return not busy and any(
            row["doubtful"] or row["reasons"] for row in self.database.cells().values()
        )

    def look(self) -> None:
        """One round over everything that waits for people, if the ledger answers."""
        if self.database.away:
            return
        if self.database.adopt() is None:
            for item in self.database.open_items():
                self.decide(item)
            self.carry()
            if self.corrects and self.rng.random() < 0.2:
                self.correct()
        self.reconcile()

    def decide(self, item: Parked) -> None:
        """Decides on an item, and once more: the ledger takes the first decision only."""
        if item.meter_event_id is not None:
            with suppress(RefusedError):
                proven = self.is_absent(item.meter_event_id)
                self.database.redrive(item.parked_id, proven=proven)
                self.timeline.strike("person: redriven")
                self.database.redrive(item.parked_id, proven=proven)
                raise AssertionError("redriven twice")
            return
        if item.entry_id is not None:
            self.carry_one(item.entry_id, elsewhere=self.rng.random() < 0.3)
            return
        event_id = item.row["event_id"]
        wanted = event_id in self.approved
        if not wanted and event_id not in self.rejected:
            wanted = item.reason in {"late", "early"} and self.rng.random() < 0.5
        try:
            if item.reason == "conflict" or not wanted:
                raise RefusedError
            self.database.approve(item.parked_id)
        except RefusedError:
            self.database.reject(item.parked_id)
            self.timeline.strike("person: rejected")
            if item.reason != "conflict":
                self.rejected.append(event_id)
        else:
            self.approved.append(event_id)
            self.timeline.strike("person: approved")

    def carry(self) -> None:
        """What the meters leave to people past its invoice."""
        for u in list(self.database.overdue()):
            entry = self.database.entry(u.entry_id)
            if u.delta and self.database.meters[entry.metric, entry.version].carry == "manual":
                self.carry_one(u.entry_id, elsewhere=self.rng.random() < 0.3)

    def carry_one(self, entry_id: int, *, elsewhere: bool) -> None:
        """Into the open period, or billed elsewhere where that is refused; said twice."""
        for _ in range(2):
            try:
                self.database.carry_entry(entry_id, elsewhere=elsewhere)
            except RefusedError:
                with suppress(RefusedError):  # a lost ledger may have sent it: sums tell first
                    self.database.carry_entry(entry_id, elsewhere=True)

    def is_absent(self, meter_event_id: int) -> bool:
        """Whether a request is in doubt and Stripe's sum passes as proof that it lacks it."""
        m = self.database.meter_event(meter_event_id)
        if self.database.redrive_course(m, proven=False) != "doubtful":
            return False
        at_us = (m.timestamp_s or 0) * 1_000_000
        key = m.customer, m.event_name, at_us - at_us % HOUR_US
        line, _ = self._compared(key, self.database.cells()[key])
        doubtful = {event.meter_event_id for event in line.side.figures.doubtful}
        return (
            meter_event_id in doubtful
            and not unproven(line, self.database.now_us, STILL_US)
            and not has_room(line.side.figures, line.observed, meter_event_id)
        )

    def _compared(self, key: Cell, row: dict[str, Any]) -> tuple[Line, list[int]]:
        """A cell as it is now, and the readings of it."""
        observed = self.stripe.sum(key)
        self.database.note_reading(key, observed)
        cell, side = side_of(row)
        readings = self.database.readings(key)
        decision = decide(side.figures, [Reading(r.at_us, r.value) for r in readings], STILL_US)
        self.timeline.note("reconciled", *key, observed, type(decision).__name__)
        return Line(cell, side, observed, decision), [r.reading_id for r in readings]

    def correct(self) -> None:
        """Takes something back of a use that was billed, or adds to it; said twice, done once."""
        rows = [row for row in self.service.committed if verdict_of(row) == "accepted"]
        if rows:
            row = self.rng.choice(rows)
            if row.use.metric in COUNTED:
                return  # nothing can be taken back
            units = self.rng.choice((-units_of(row), -1, 3))
            self.corrections.append((row.use.tenant_id, row.use.metric, row.occurred_us, units))
            self.timeline.strike("person: corrected")
            self.say_corrections()

    def say_corrections(self) -> None:
        """Every correction so far, by its key; the ledger knows which it has."""
        for number, correction in enumerate(self.corrections):
            self.database.correct(*correction, key=f"fix-{number}")

    def reconcile(self) -> None:
        """Stripe's sums of every cell in doubt, and whatever they prove."""
        rows = self.database.cells()
        needed = [key for key, row in rows.items() if row["doubtful"] or row["reasons"]]
        origin = Origin("acct_sandbox", livemode=False, ledger_id=self.database.ledger_id)
        for key in needed:
            line, ids = self._compared(key, rows[key])
            decision = line.decision
            if isinstance(decision, TakeBack):
                told = self.database.take_back_unnamed(rejection(line, decision, ids))
                self.timeline.strike(f"person: {told} by sums, unnamed")
            elif isinstance(decision, Settle):
                dated = [self.database.meter_event(n).timestamp_s or 0 for n in decision.absent]
                proof = settlement(line, decision, origin, ids, max(dated, default=None))
                self.timeline.strike(f"person: {self.database.settle_cell(proof)} by sums")
