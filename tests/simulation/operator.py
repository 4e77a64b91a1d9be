"""People at work: they decide on what waits, reconcile doubts, and take restored ledgers on.

What they decided stands in their own notes, which the oracle reads; that the ledger refuses a
second time is part of what is tried.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from streams.cli.dead_proof import unproven
from streams.cli.reconcile_plan import Line, rejection, settlement, side_of
from streams.core.instant import HOUR_US
from streams.core.meter_event import Origin
from streams.core.reconcile import Reading, Settle, TakeBack, decide, has_room
from tests.simulation.finance import Finance
from tests.simulation.ledger.agreeing import RefusedError
from tests.simulation.ledger.database import Database
from tests.simulation.ledger.rows import Parked
from tests.simulation.service import Service
from tests.simulation.stripe import Stripe
from tests.simulation.timeline import Timeline

STILL_US = 24 * HOUR_US
Cell = tuple[str, str, int]


APPROVED: Final = frozenset({"late", "early", "correction_limit"})
"""Reasons for which something that waits may be billed after all."""


@dataclass(slots=True)
class Pause:
    """What is not published for a while."""

    scope: str
    subject: str
    from_us: int
    until_us: int | None = None


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
    pauses: list[Pause] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Finance has a desk of its own."""
        self.finance = Finance(self.timeline, self.database, self.rng, self.service)

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
            self.finance.look()
            self.carry()
            if self.corrects and self.rng.random() < 0.2:
                self.finance.correct()
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
            wanted = item.reason in APPROVED and self.rng.random() < 0.5
        try:
            if item.reason == "conflict" or not wanted:
                raise RefusedError
            self.finance.approve(item.parked_id, event_id)
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

    def pause(self, scope: str, subject: str) -> None:
        """Orders it, and once more: that changes nothing."""
        if self.database.pause(scope, subject):
            self.pauses.append(Pause(scope, subject, self.timeline.now_us()))
        assert not self.database.pause(scope, subject)

    def resume(self, scope: str, subject: str) -> None:
        """Ends it, if nobody has."""
        if self.database.resume(scope, subject):
            for pause in self._active():
                if (pause.scope, pause.subject) == (scope, subject):
                    pause.until_us = self.timeline.now_us()

    def resume_all(self) -> None:
        """Nothing is paused any more."""
        for pause in self._active():
            self.resume(pause.scope, pause.subject)

    def say_pauses(self) -> None:
        """To a ledger that is older: what is paused, and what is not any more."""
        for scope, subject in tuple(self.database.tables.pauses):
            self.database.resume(scope, subject)
        for pause in self._active():
            self.database.pause(pause.scope, pause.subject)

    def _active(self) -> list[Pause]:
        return [pause for pause in self.pauses if pause.until_us is None]

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
