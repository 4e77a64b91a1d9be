"""What has to have happened in many seeds: a fault that meets nothing proves nothing.

Counted is what was met: a kill where a worker lived, bad weather on a request, a doubt that nobody
may ask about any more. What was only planned counts nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tests.simulation.faults.deaths import ALL_STEPS
from tests.simulation.faults.outages import SPELLS
from tests.simulation.stripe import SPORADIC

SEEDS_ENOUGH: Final = 500
"""Of so many seeds each has to be in one at least."""
EXPECTED: Final = (
    "audited", "broker_away", "clocks_step", "connect_killed", "disk_lost", "emitted_again",
    "held_back", "invoices_close: billed elsewhere", "invoices_close: carried", "ledger adopted",
    "ledger_answers_lost", "ledger_away", "ledger_restored", "log_cut: events", "log_cut: packed",
    "partition taken from a sleeper", "partitions_grown", "person: agreed", "person: approved",
    "person: corrected",
    "person: disagreed", "person: redriven", "person: rejected", "person: settled by sums",
    "publishing_paused", "rejected_afterwards", "request dead: ambiguous",
    "request dead: refused", "rows sent twice by a lagging offset", "transaction open for minutes",
    "transaction rolled back", "usage recorded twice", "usage: above_limit", "usage: accepted",
    "usage: conflict", "usage: correction", "usage: early", "usage: late", "usage: uncountable",
    "usage: unknown", "worker_killed", "worker_stopped",
    *(f"worker_killed_at_a_step: {step}" for step in ALL_STEPS),
    *(f"worker_stopped_at_a_step: {step}" for step in ALL_STEPS),
    *(f"stripe_down: {weather}" for weather in SPELLS),
    *(f"stripe_sporadic: {weather}" for weather in SPORADIC),
)  # fmt: skip


def missing(strikes: Mapping[str, int], seeds: int) -> tuple[str, ...]:
    """What never happened although the seeds were enough for all of it."""
    if seeds < SEEDS_ENOUGH:
        return ()
    return tuple(name for name in EXPECTED if not strikes.get(name))


def lines(strikes: Mapping[str, int]) -> Iterator[str]:
    """How often each was met, for people."""
    for name in sorted(strikes.keys() | set(EXPECTED)):
        yield f"{strikes.get(name, 0):8} {name}"
