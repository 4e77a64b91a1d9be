"""Finance at work: corrections, and the second login that large ones need.

What they decided stands in their notes, which the oracle reads: a ledger that comes back from a
backup is told it once more.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from tests.simulation.ledger.agreeing import RefusedError
from tests.simulation.ledger.database import Database
from tests.simulation.ledger.rows import Proposal, Wanted
from tests.simulation.rules import COUNTED, units_of, verdict_of
from tests.simulation.service import Service
from tests.simulation.timeline import Timeline

ANN: Final = "ann"
BEN: Final = "ben"


@dataclass(slots=True)
class Fix:
    """A correction, and what became of it."""

    wanted: Wanted
    state: Literal["proposed", "booked", "rejected"] = "proposed"


@dataclass
class Finance:
    """Ann, who corrects, and Ben, who looks at what she may not do alone."""

    timeline: Timeline
    database: Database
    rng: Random
    service: Service
    fixes: list[Fix] = field(default_factory=list)
    logins: dict[str, frozenset[str]] = field(default_factory=dict)
    """By whom each correction was let through that somebody had to look at; by its identity."""

    def correct(self) -> None:
        """Takes something back of a use that was billed, or adds to it; said twice, done once."""
        rows = [row for row in self.service.committed if verdict_of(row) == "accepted"]
        if not rows:
            return
        row = self.rng.choice(rows)
        use = row.use
        key, units = f"fix-{len(self.fixes)}", self.rng.choice((-units_of(row), -1, 3))
        fix = Fix(Wanted(use.tenant_id, use.metric, row.occurred_us, units, key))
        if use.metric in COUNTED:
            with suppress(RefusedError):
                self._say(fix)
                raise AssertionError("a count was corrected")
            return
        self.fixes.append(fix)
        self.timeline.strike("person: corrected")
        self.say_corrections()

    def say_corrections(self) -> None:
        """Every correction so far, by its key; the ledger knows which it has."""
        for fix in self.fixes:
            if fix.state != "rejected":
                self._say(fix)

    def _say(self, fix: Fix) -> None:
        wanted, database = fix.wanted, self.database
        booked = len(database.tables.entries)
        try:
            database.correct(
                wanted.tenant_id, wanted.metric, wanted.at_us, wanted.units, key=wanted.key
            )
        except RefusedError:
            number = database.propose(wanted, ANN)
            with suppress(RefusedError):
                database.approve_proposal(number, ANN)
                self._booked(fix, ANN)
            if fix.state == "booked":  # by a ledger that was lost
                with suppress(RefusedError):
                    database.approve_proposal(number, BEN)
                    self._booked(fix, ANN, BEN)
        else:
            fix.state = "booked"
            if len(database.tables.entries) > booked:
                self._booked(fix, ANN)

    def _booked(self, fix: Fix, *logins: str) -> None:
        fix.state = "booked"
        self.logins[fix.wanted.identity] = frozenset(logins)

    def look(self) -> None:
        """Ben decides on what Ann has proposed; once."""
        for proposal in self.database.open_proposals():
            fix = next(fix for fix in self.fixes if fix.wanted == proposal.wanted)
            if fix.state == "rejected" or self.rng.random() < 0.2:
                fix.state = "rejected"
                self.database.reject_proposal(proposal.number)
                self.timeline.strike("person: disagreed")
            else:
                self.database.approve_proposal(proposal.number, BEN)
                self._booked(fix, ANN, BEN)
                self.timeline.strike("person: agreed")
            self._decide_again(proposal)

    def _decide_again(self, proposal: Proposal) -> None:
        with suppress(RefusedError):
            self.database.approve_proposal(proposal.number, BEN)
            raise AssertionError("decided twice")

    def approve(self, parked_id: int, identity: str) -> None:
        """Lets an item through that was reviewed: Ann, Ann once more, and Ben where that counts.

        Raises:
            RefusedError: the ledger takes no approval of it.
        """
        for logins in ((ANN,), (ANN,), (ANN, BEN)):
            if self.database.approve(parked_id, logins[-1]) is not None:
                self.logins[identity] = frozenset(logins)
                return
        raise AssertionError("two logins are not enough")
