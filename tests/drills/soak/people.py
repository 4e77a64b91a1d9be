"""Who looks after a storm: whatever is dead or in doubt is decided, in the way that fits it.

Asked again and again while the backlog drains, for one decision makes way for the next: what Stripe
took back becomes a dead letter when its report comes, and a sum has to stand still before it is a
proof.
"""

from collections import Counter
from typing import Final

import psycopg
from psycopg import errors

from tests.support.book_reading import ledger_number
from tests.support.live import LiveStack
from tests.support.unread import send_unread_again

DEAD: Final = (
    "SELECT parked_id, ledger.redrive_course(m, NULL) FROM ledger.parked p"
    " JOIN ledger.meter_event m USING (meter_event_id) WHERE p.state = 'open' AND m.state = 'dead'"
)
OPEN_DEAD: Final = "SELECT count(*) FROM ledger.parked WHERE kind = 'dead' AND state = 'open'"
DECIDED: Final = (
    "SELECT reason, count(*) FROM ledger.parked WHERE meter_event_id IS NOT NULL AND kind = 'dead'"
    " GROUP BY 1"
)
TOLD: Final = "SELECT coalesce(sum(error_count), 0) FROM ledger.error_report"
COURSES: Final = frozenset({"resend", "supersede"})


class People:
    """An operator and somebody of finance."""

    def __init__(self, stack: LiveStack) -> None:
        """Begins with what nobody could wait for in a drill: a day in which sums stand still."""
        self._stack = stack
        self.sent_again = 0
        """Records that had been parked unread."""
        with psycopg.connect(stack.facts["ledger_owner_dsn"], autocommit=True) as ledger:
            ledger.execute("UPDATE ledger.setting SET value = '0' WHERE name LIKE 'reconcile_%'")

    def decide(self) -> None:
        """Decides everything that can be decided now."""
        self.sent_again += send_unread_again(self._stack)
        doubtful = False
        with psycopg.connect(self._stack.facts["ledger_owner_dsn"], autocommit=True) as ledger:
            for item, course in ledger.execute(DEAD).fetchall():
                doubtful |= course == "doubtful"
                if course in COURSES:
                    try:
                        ledger.execute(
                            "SELECT ledger.redrive(%s, 'drill: the storm is over')", (item,)
                        )
                    except errors.ObjectNotInPrerequisiteState:
                        continue  # it has just become another: the next look decides
        if doubtful:
            ran = self._stack.tailrace("reconcile", "--yes", "--reason", "drill: the storm is over")
            assert ran.returncode in {0, 1}, ran.stdout + ran.stderr

    @property
    def is_all_told(self) -> bool:
        """Whether the ledger knows of everything that Stripe took back."""
        taken_back = sum(1 for event in self._stack.stand_in.oracle() if event["refused"])
        return ledger_number(self._stack, TOLD) == taken_back

    @property
    def is_done(self) -> bool:
        """Whether nothing waits for them, and nothing is to come."""
        return ledger_number(self._stack, OPEN_DEAD) == 0 and self.is_all_told

    def decided(self) -> Counter[str]:
        """Dead letters that there were, all of them decided by now, by reason."""
        with psycopg.connect(self._stack.facts["ledger_owner_dsn"]) as ledger:
            return Counter(dict(ledger.execute(DECIDED).fetchall()))
