"""Ledgers that are restored from an older backup."""

from functools import partial
from typing import Final

from streams.engine.table import PartitionTable
from tests.simulation.ledger.rows import Tables
from tests.simulation.world import HOUR_S, World

CANARY_S: Final = 600.0
AGAIN_S: Final = 300.0
CALM_S: Final = 1_800.0
"""Until every worker has compared what it remembers."""


def ledger_restored(world: World, busy_s: float) -> float:
    """The database is lost; what comes back is minutes to hours old, and workers remember more.

    That they do is arranged: a ledger that comes back while every partition changes hands, or
    loses its disk, is known to be taken as it is.
    """
    rng = world.rng
    at_s = rng.random() * busy_s
    lag_s = rng.choice((0.5, 1.0, 3.0)) * HOUR_S

    def restore(backup: Tables) -> None:
        if world.healed:
            return
        if not _remembered(world, backup):
            world.later(AGAIN_S, partial(restore, backup))
            return
        world.calm_until_s = world.timeline.now_s + CALM_S
        world.restore(backup)

    def keep() -> None:
        world.later(lag_s, partial(restore, world.database.backup()))

    world.later(at_s, keep)
    # Without usage nobody would notice: this is what canaries are for.
    world.canaries(CANARY_S, at_s + lag_s + HOUR_S)
    return at_s + lag_s + HOUR_S


def _remembered(world: World, backup: Tables) -> bool:
    """Whether somebody at work has had more confirmed than the backup holds, and all are well."""
    held: dict[int, PartitionTable] = {}
    for machine in world.machines:
        worker = machine.worker
        if worker is None or worker.process.state != "running":
            return False
        held |= worker.feeder.tables
    stored = {partition: position for (_, partition), position in backup.positions.items()}
    return (
        not world.database.away
        and len(held) == world.broker.partitions
        and any(table.acknowledged > stored.get(p, -1) for p, table in held.items())
    )
