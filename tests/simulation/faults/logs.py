"""Logs whose beginning is gone: retention, or an operator who deletes records.

Never both logs in one seed: state that neither of them reaches back to is held for a person.
"""

from collections.abc import Callable
from functools import partial

from streams.topics import ADMIT_LOG, EVENTS
from tests.simulation.world import HOUR_S, World

MINUTE_S = 60.0


def log_cut(world: World, busy_s: float) -> float:
    """One of the two logs loses its beginning, and machines with their disks are replaced."""
    cut = world.rng.choice((packed_log_cut, events_cut))
    return cut(world, busy_s)


def packed_log_cut(world: World, busy_s: float) -> float:
    """The packed log loses all but its last records: the source has to be judged again."""

    def cut() -> None:
        for partition, log in enumerate(world.broker.logs[ADMIT_LOG]):
            begin = max(0, len(log) - world.rng.randrange(4))
            world.broker.cut(ADMIT_LOG, partition, begin)
            if begin:
                world.timeline.strike("log_cut: packed")

    return _cut_and_replace(world, busy_s, cut)


def events_cut(world: World, busy_s: float) -> float:
    """The events topic loses what every worker has settled and told: only the packed log has it."""

    def cut() -> None:
        for (_, partition), position in world.database.tables.positions.items():
            world.broker.cut(EVENTS, partition, position + 1)
            world.timeline.strike("log_cut: events")

    return _cut_and_replace(world, busy_s, cut)


def _cut_and_replace(world: World, busy_s: float, cut: Callable[[], None]) -> float:
    at_s = (0.3 + 0.6 * world.rng.random()) * busy_s

    def replace_all() -> None:
        cut()
        for machine in world.machines:
            if machine.worker is not None:
                machine.worker.kill()
            machine.disk.lose()
            world.later(MINUTE_S * world.rng.random(), partial(world.start, machine))

    world.later(at_s, replace_all)
    return busy_s + HOUR_S
