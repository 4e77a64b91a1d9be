"""Faults by name: each arranges itself in a world and says until when it may last.

A fault is given the world and the seconds during which usage is written; it plans what it does by
`world.later` and gives the second of the story at which everything may be healed.
"""

from collections.abc import Callable
from typing import Final

from tests.simulation.faults import (
    aimed,
    auditing,
    clocks,
    deaths,
    growth,
    held,
    invoices,
    ledgers,
    logs,
    outages,
    pauses,
)
from tests.simulation.world import World

Fault = Callable[[World, float], float]

FAULTS: Final[dict[str, Fault]] = {
    "worker_killed": deaths.worker_killed,
    "worker_killed_at_a_step": deaths.worker_killed_at_a_step,
    "worker_stopped": deaths.worker_stopped,
    "worker_stopped_at_a_step": deaths.worker_stopped_at_a_step,
    "audited": auditing.audited,
    "clocks_step": clocks.clocks_step,
    "emitted_again": clocks.emitted_again,
    "held_back": held.held_back,
    "connect_killed": deaths.connect_killed,
    "disk_lost": deaths.disk_lost,
    "log_cut": logs.log_cut,
    "stripe_down": outages.stripe_down,
    "stripe_down_past_the_fence": outages.stripe_down_past_the_fence,
    "stripe_sporadic": outages.stripe_sporadic,
    "rejected_afterwards": outages.rejected_afterwards,
    "ledger_away": outages.ledger_away,
    "ledger_answers_lost": outages.ledger_answers_lost,
    "ledger_restored": ledgers.ledger_restored,
    "broker_away": outages.broker_away,
    "partitions_grown": growth.partitions_grown,
    "publishing_paused": pauses.publishing_paused,
    "invoices_close": invoices.invoices_close,
}

APART: Final = frozenset({"ledger_restored", "invoices_close"})
"""Never both in one seed: what a restored ledger waits for takes a day, and an invoice that closes
meanwhile leaves amounts of which a part is at Stripe, on which a person has to decide by hand."""

AIMED: Final[dict[str, Fault]] = {
    **aimed.AIMED,
    "each_paused": pauses.each_paused,
    "grown_and_replaced": growth.grown_and_replaced,
    "packed_log_cut": logs.packed_log_cut,
    "events_cut": logs.events_cut,
    "ledger_away_as_rules_change": outages.ledger_away_as_rules_change,
    "replaced_and_emitted_again": clocks.replaced_and_emitted_again,
    "restored_beside_the_idle": ledgers.restored_beside_the_idle,
    "restored_unsent": ledgers.restored_unsent,
    "restored_while_asleep": ledgers.restored_while_asleep,
}
"""Those that strike where a planted bug shows; no seed draws them by itself."""
