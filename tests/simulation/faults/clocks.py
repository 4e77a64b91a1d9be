"""Clocks that step, and rows that go out twice, also to machines that are new."""

from functools import partial
from typing import Final

from tests.simulation.faults.deaths import replace_all
from tests.simulation.world import HOUR_S, World

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US


def clocks_step(world: World, busy_s: float) -> float:
    """Each machine's clock steps on its own: forward and back, by as much as operators let pass.

    Less than Stripe's five minutes for the ledger's, whose time is what requests are dated by.
    """
    rng = world.rng

    def step() -> None:
        for machine in world.machines:
            if machine.worker is not None:
                machine.worker.clock.ahead_us = rng.randrange(-HOUR_US, HOUR_US)
        if not world.healed:
            world.service.clock_ahead_us = rng.randrange(-20, 20) * MINUTE_US
            world.database.clock_ahead_us = rng.randrange(-3, 4) * MINUTE_US
        world.timeline.strike("clocks_step")
        world.timeline.note("clocks step")

    for _ in range(rng.randrange(1, 5)):
        world.later(rng.random() * busy_s, step)
    return busy_s


def emitted_again(world: World, busy_s: float) -> float:
    """An operator has rows of some hours go out once more, some of them long forgotten."""
    rng = world.rng

    def emit(hours: float) -> None:
        if rng.random() < 0.3:
            replace_all(world)
        now_us = world.service.now_us()
        if world.service.emit_again(now_us - int(hours * HOUR_US), now_us):
            world.timeline.strike("emitted_again")

    last_s = busy_s
    for _ in range(rng.randrange(1, 3)):
        hours, at_s = rng.choice((1.0, 6.0, 24.0)), rng.random() * (busy_s + 12 * HOUR_S)
        world.later(at_s, partial(emit, hours))
        last_s = max(last_s, at_s + HOUR_S / 2)
    return last_s


def replaced_and_emitted_again(world: World, busy_s: float) -> float:
    """New machines read what others settled, as far back as copies have to be known; then copies.

    In the seventh hour the first two are the oldest that anybody remembers.
    """

    def emit() -> None:
        now_us = world.service.now_us()
        world.service.emit_again(now_us - 5 * HOUR_US, now_us)

    # The log's time is that of its last record.
    world.later(6.1 * HOUR_S, partial(world.service.emit_canaries, world.canary_tenants))
    world.later(6.2 * HOUR_S, partial(replace_all, world))
    world.later(6.5 * HOUR_S, emit)
    return max(busy_s, 7 * HOUR_S)
