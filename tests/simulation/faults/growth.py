"""A topic that gets more partitions, as an operator does it, with whatever is in flight."""

from functools import partial

from tests.simulation.growing import canary_tenants, tell_growth
from tests.simulation.world import HOUR_S, PARTITIONS, World

MINUTE_S = 60.0


def partitions_grown(world: World, busy_s: float) -> float:
    """Twice as many: the connector stopped, the ledger told, each worker started anew in its turn.

    Nothing is waited for: partitions have a backlog, workers of before go on for a while.
    """
    at_s = (0.2 + 0.6 * world.rng.random()) * busy_s
    world.later(at_s, partial(_stop, world))
    return at_s + 2 * HOUR_S


def grown_and_replaced(world: World, busy_s: float) -> float:
    """The same while all machines are away, so that there is a backlog; they are lost later, too.

    In the end every row goes out once more.
    """

    def replace_all() -> None:
        for machine in world.machines:
            world.kill(machine, MINUTE_S * world.rng.random())
            machine.disk.lose()

    def leave() -> None:
        for machine in world.machines:
            world.kill(machine, 20 * MINUTE_S)

    at_s = 0.5 * busy_s
    lasts_s = at_s + 2 * HOUR_S
    world.later(at_s - 10 * MINUTE_S, leave)
    world.later(at_s, partial(_stop, world))
    for share in (0.8, 0.9):
        world.later(share * lasts_s, replace_all)
    world.canaries(10 * MINUTE_S, lasts_s)
    world.later(0.95 * lasts_s, partial(world.service.emit_again, 0, 1 << 62))
    return lasts_s


def _stop(world: World) -> None:
    if world.broker.grew_at or world.connect.stopped:
        return
    world.connect.kill()
    world.connect.stopped = True
    world.later(MINUTE_S * world.rng.random(), partial(_grow, world))


def _grow(world: World) -> None:
    world.broker.grow(2 * PARTITIONS)
    world.timeline.strike("partitions_grown")
    world.canary_tenants = canary_tenants(2 * PARTITIONS)
    # Now and then whoever does it is interrupted before the ledger is told.
    world.later(world.rng.choice((0.0, 20 * MINUTE_S)), partial(tell_growth, world))
    world.later(HOUR_S * world.rng.random(), partial(_go_on, world))


def _go_on(world: World) -> None:
    world.connect.stopped = False
    world.connect.start()
