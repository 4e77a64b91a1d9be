"""Transactions that stay open for longer than identities are remembered."""

from functools import partial
from typing import Final

from tests.simulation.rules import MINUTE_US
from tests.simulation.service import Transaction, Use
from tests.simulation.timeline import T0_US
from tests.simulation.world import HOUR_S, World

EARLIER_S: Final = 1.95 * HOUR_S
RECORDED_S: Final = 2.75 * HOUR_S
FORGOTTEN_S: Final = 8.05 * HOUR_S
"""From the eighth hour on nobody remembers what the log took in its first two."""
COMMITTED_S: Final = 8.4 * HOUR_S
AFTER_MIDNIGHT: Final = {"calls": 30, "storage": 48}
"""Minutes: just inside the cutoff when it is recorded."""


def held_back(world: World, busy_s: float) -> float:
    """Usage that was recorded in time reaches the log when only its instants tell that it was.

    Its window is over for hours, but not closed: what was received after the last identity that is
    forgotten counts by itself. Others have used the same windows before, and the ledger was told.
    """
    service = world.service

    def record(round_: str, quantity: str) -> Transaction:
        transaction = service.begin()
        for tenant_id in ("acme", "dune"):
            for metric, minute in AFTER_MIDNIGHT.items():
                at_us = T0_US + minute * MINUTE_US
                use = Use(tenant_id, metric, quantity, f"{round_} {metric}", at_us)
                service.record(transaction, use)
        return transaction

    def commit(held: Transaction) -> None:
        service.end(held, commit=True)
        world.timeline.strike("held_back")

    def begin() -> None:
        service.end(record("told", "1"), commit=True)
        world.later(COMMITTED_S - RECORDED_S, partial(commit, record("held", "4")))

    for at_s in (EARLIER_S, FORGOTTEN_S):
        world.later(at_s, partial(service.emit_canaries, world.canary_tenants))
    world.later(RECORDED_S, begin)
    return max(busy_s, COMMITTED_S + HOUR_S / 2)
