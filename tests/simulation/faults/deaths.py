"""Processes that end or stand still, and disks that go with them."""

from collections.abc import Callable
from functools import partial
from typing import Final

from streams.crash_points import STEPS
from tests.simulation.ledger.database import COMMITTED
from tests.simulation.world import HOUR_S, Machine, World

ALL_STEPS: Final = (
    *STEPS,
    *COMMITTED.values(),
    "transaction_begun",
    "sending",
    "answered",
)
"""Of a chunk, of a transaction with the ledger, of a request to Stripe."""


def worker_killed(world: World, busy_s: float) -> float:
    """SIGKILLs at any moment."""
    rng = world.rng
    for _ in range(rng.randrange(1, 5)):
        machine, down_s = rng.choice(world.machines), 2 + rng.random() * 120
        world.later(rng.random() * busy_s, partial(world.kill, machine, down_s))
    return busy_s


def worker_killed_at_a_step(world: World, busy_s: float) -> float:
    """SIGKILLs at the nth passing of a named step, again and again."""
    rng = world.rng
    for _ in range(rng.randrange(1, 6)):
        machine, step = rng.choice(world.machines), rng.choice(ALL_STEPS)
        nth, strike = rng.randrange(1, 4), partial(world.kill, machine, 3.0)
        world.later(rng.random() * busy_s, partial(_arm, world, machine, step, nth, strike))
    return busy_s


def worker_stopped_at_a_step(world: World, busy_s: float) -> float:
    """SIGSTOPs at a named step: between a check and what it was for, for instance.

    Shorter than Stripe remembers an identifier: a request that is sent a day after its check is
    beyond what any check can prevent.
    """
    rng = world.rng
    last_s = busy_s
    for _ in range(rng.randrange(1, 6)):
        machine, step = rng.choice(world.machines), rng.choice(ALL_STEPS)
        stopped_s = rng.choice((8.0, 30.0, 300.0, 3 * HOUR_S, 12 * HOUR_S))
        strike = partial(world.stop, machine, stopped_s)
        at_s = rng.random() * busy_s
        world.later(at_s, partial(_arm, world, machine, step, rng.randrange(1, 4), strike))
        last_s = max(last_s, at_s + stopped_s)
    return last_s


def _arm(world: World, machine: Machine, step: str, nth: int, strike: Callable[[], object]) -> None:
    worker = machine.worker
    if worker is None or not worker.process.alive:
        return
    remaining = nth

    def reached(name: str) -> None:
        nonlocal remaining
        if name == step and not world.healed:
            remaining -= 1
            if remaining == 0:
                world.timeline.note("struck at", step)
                strike()

    worker.process.hook = reached


def worker_stopped(world: World, busy_s: float) -> float:
    """SIGSTOPs of seconds to hours, so that two own one partition when it wakes."""
    rng = world.rng
    last_s = busy_s
    for _ in range(rng.randrange(1, 4)):
        machine, at_s = rng.choice(world.machines), rng.random() * busy_s
        stopped_s = rng.choice((5.0, 30.0, 300.0, 3 * HOUR_S))
        world.later(at_s, partial(world.stop, machine, stopped_s))
        last_s = max(last_s, at_s + stopped_s)
    return last_s


def connect_killed(world: World, busy_s: float) -> float:
    """Connect begins again at its stored offset."""
    rng = world.rng

    def kill() -> None:
        world.connect.kill()
        world.later(1 + rng.random() * HOUR_S / 2, start)

    def start() -> None:
        if world.connect.process is None:
            world.connect.start()

    for _ in range(rng.randrange(1, 4)):
        world.later(rng.random() * busy_s, kill)
    return busy_s + HOUR_S


def disk_lost(world: World, busy_s: float) -> float:
    """A machine is replaced: its state is only in the packed log."""
    rng = world.rng

    def lose(machine: Machine) -> None:
        if machine.worker is not None:
            machine.worker.kill()
        machine.disk.lose()
        world.timeline.note("disk lost", machine.name)
        world.later(60.0, lambda: world.start(machine))

    for _ in range(rng.randrange(1, 3)):
        machine = rng.choice(world.machines)
        world.later(rng.random() * busy_s, partial(lose, machine))
    return busy_s
