"""Bugs about invoices that close."""

from typing import Any, Final

from tests.simulation.ledger.lanes import Lanes
from tests.simulation.ledger.rows import Cycle, Entry
from tests.simulation.ledger.work_list import WorkList
from tests.simulation.mutants import Mutant, Patch

_insert_entry = WorkList.insert_entry


def _knows_no_deadline(patch: Patch) -> None:
    patch.setattr(WorkList, "has_passed", lambda *_: False)


def _carries_what_is_in_doubt(patch: Patch) -> None:
    patch.setattr(Lanes, "may_be_executed", lambda *_: False)


def _forgets_the_grace(patch: Patch) -> None:
    def deadline_us(self: Cycle, at_us: int) -> int:
        return self.end_us(at_us) - self.margin_us

    patch.setattr(Cycle, "deadline_us", deadline_us)


def _takes_nothing_out(patch: Patch) -> None:
    def insert_entry(self: Any, entry: Entry) -> int:
        if entry.kind == "carry" and str(entry.event_id).startswith("out:"):
            entry.delta = 0
        return int(_insert_entry(self, entry))

    patch.setattr(WorkList, "insert_entry", insert_entry)


MUTANTS: Final = (
    Mutant(
        "sent_past_its_deadline",
        "nothing is sent for an invoice that is closed: Stripe would bill it nowhere",
        _knows_no_deadline,
        ("unbilled",),
        ("invoices_close",),
    ),
    Mutant(
        "doubt_carried",
        "what may be on a closed invoice is carried when Stripe's sums lack it, not before",
        _carries_what_is_in_doubt,
        ("double", "phantom", "settled"),
        ("invoices_close",),
    ),
    Mutant(
        "grace_forgotten",
        "what still reaches its invoice is not carried away from it",
        _forgets_the_grace,
        ("carried",),
        ("invoices_close",),
    ),
    Mutant(
        "carried_without_trace",
        "what is carried is taken out of its own period, so that both periods foot",
        _takes_nothing_out,
        ("carried",),
        ("invoices_close",),
    ),
)
