"""Ledgers that are restored from an older backup."""

from functools import partial
from typing import Final

from tests.simulation.ledger.rows import Tables
from tests.simulation.stripe import Weather
from tests.simulation.world import HOUR_S, World

CANARY_S: Final = 600.0


def ledger_restored(world: World, busy_s: float) -> float:
    """The database is lost; what comes back is minutes to hours old, machines new at times."""
    rng = world.rng
    at_s = rng.random() * busy_s
    lag_s = rng.choice((0.5, 1.0, 3.0)) * HOUR_S
    new_machines = rng.random() < 0.3

    def restore(backup: Tables) -> None:
        if new_machines:
            for machine in world.machines:
                world.kill(machine, 60.0)
                machine.disk.lose()
        world.restore(backup)

    def keep() -> None:
        world.later(lag_s, partial(restore, world.database.backup()))

    world.later(at_s, keep)
    # Without usage nobody would notice: this is what canaries are for.
    world.canaries(CANARY_S, at_s + lag_s + HOUR_S)
    return at_s + lag_s + HOUR_S


def restored_beside_the_idle(world: World, busy_s: float) -> float:
    """The same while there are more machines than partitions: some remember nothing."""
    while len(world.machines) <= world.broker.partitions:
        world.add_machine()
    return ledger_restored(world, busy_s)


def restored_while_asleep(world: World, busy_s: float) -> float:
    """One machine sleeps while the others send, are lost, and the ledger goes back behind that."""
    if len(world.machines) == 1:
        world.add_machine()
    sleeper, *others = world.machines

    def sleep() -> None:
        world.stop(sleeper, HOUR_S)
        world.later(HOUR_S / 12, keep)

    def keep() -> None:
        world.later(HOUR_S / 2, partial(lose, world.database.backup()))

    def lose(backup: Tables) -> None:
        for machine in others:
            world.kill(machine, 3 * HOUR_S)
            machine.disk.lose()
        world.restore(backup)

    at_s = 0.3 * busy_s
    world.later(at_s, sleep)
    return max(busy_s, at_s + 4 * HOUR_S)


def restored_unsent(world: World, busy_s: float) -> float:
    """The backup has requests that were tried in vain; the ledger that is lost sent more of them.

    Nothing reaches Stripe while it is taken, so that what has grown since is merged and sent under
    other identifiers before the ledger goes back.
    """

    def becomes(weather: Weather) -> None:
        world.stripe.weather = weather
        world.timeline.note("weather", weather)

    def keep() -> None:
        world.later(HOUR_S, partial(world.restore, world.database.backup()))

    at_s = (0.3 + 0.5 * world.rng.random()) * busy_s
    world.later(at_s - HOUR_S / 2, partial(becomes, "refused"))
    world.later(at_s, keep)
    world.later(at_s + HOUR_S / 2, partial(becomes, "fine"))
    world.canaries(CANARY_S, at_s + 2 * HOUR_S)
    return at_s + 2 * HOUR_S
