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

    def kill(down_s: float) -> None:
        if living := _living(world):
            world.kill(rng.choice(living), down_s, "worker_killed")

    for _ in range(rng.randrange(1, 5)):
        world.later(rng.random() * busy_s, partial(kill, 2 + rng.random() * 120))
    return busy_s


def worker_killed_at_a_step(world: World, busy_s: float) -> float:
    """SIGKILLs at the nth passing of a named step, again and again."""
    rng = world.rng
    for _ in range(rng.randrange(2, 9)):
        step = rng.choice(ALL_STEPS)
        strike = partial(world.kill, down_s=3.0, fault=f"worker_killed_at_a_step: {step}")
        world.later(rng.random() * busy_s, partial(arm, world, step, rng.randrange(1, 4), strike))
    return busy_s


def worker_stopped_at_a_step(world: World, busy_s: float) -> float:
    """SIGSTOPs at a named step: between a check and what it was for, for instance.

    Shorter than Stripe remembers an identifier: a request that is sent a day after its check is
    beyond what any check can prevent.
    """
    rng = world.rng
    last_s = busy_s
    for _ in range(rng.randrange(1, 6)):
        step = rng.choice(ALL_STEPS)
        stopped_s = rng.choice((8.0, 30.0, 300.0, 3 * HOUR_S, 12 * HOUR_S))
        fault = f"worker_stopped_at_a_step: {step}"
        strike = partial(world.stop, stopped_s=stopped_s, fault=fault)
        at_s = rng.random() * busy_s
        world.later(at_s, partial(arm, world, step, rng.randrange(1, 4), strike))
        last_s = max(last_s, at_s + stopped_s)
    return last_s


def arm(world: World, step: str, nth: int, strike: Callable[[Machine], object]) -> None:
    """Strikes whichever machine is the nth to reach a step from now on."""
    remaining = nth

    def trap(machine: Machine, name: str) -> None:
        nonlocal remaining
        if name == step and not world.healed:
            remaining -= 1
            if remaining == 0:
                world.traps.remove(trap)
                world.timeline.note("struck at", step)
                strike(machine)

    world.traps.append(trap)


def struck_at(world: World, step: str) -> None:
    """Has a worker die or fall asleep at a step that is passed in few seeds."""
    rng = world.rng
    if rng.random() < 0.5:
        strike = partial(world.kill, down_s=3.0, fault=f"worker_killed_at_a_step: {step}")
    else:
        stopped_s, fault = rng.choice((30.0, 3 * HOUR_S)), f"worker_stopped_at_a_step: {step}"
        strike = partial(world.stop, stopped_s=stopped_s, fault=fault)
    arm(world, step, rng.randrange(1, 4), strike)


def _living(world: World) -> list[Machine]:
    return [m for m in world.machines if m.worker is not None and m.worker.process.alive]


def worker_stopped(world: World, busy_s: float) -> float:
    """SIGSTOPs of seconds to hours, so that two own one partition when it wakes."""
    rng = world.rng
    last_s = busy_s

    def stop(stopped_s: float) -> None:
        if living := _living(world):
            world.stop(rng.choice(living), stopped_s, "worker_stopped")

    for _ in range(rng.randrange(1, 4)):
        at_s, stopped_s = rng.random() * busy_s, rng.choice((5.0, 30.0, 300.0, 3 * HOUR_S))
        world.later(at_s, partial(stop, stopped_s))
        last_s = max(last_s, at_s + stopped_s)
    return last_s


def connect_killed(world: World, busy_s: float) -> float:
    """Connect begins again at its stored offset."""
    rng = world.rng

    def kill() -> None:
        if world.connect.process is not None:
            world.timeline.strike("connect_killed")
        world.connect.kill()
        world.later(1 + rng.random() * HOUR_S / 2, start)

    def start() -> None:
        if world.connect.process is None:
            world.connect.start()

    for _ in range(rng.randrange(1, 4)):
        world.later(rng.random() * busy_s, kill)
    return busy_s + HOUR_S


def replace_all(world: World) -> None:
    """Every machine is new a minute later: whatever was settled is only in the packed log."""
    world.timeline.note("disks lost")
    for machine in world.machines:
        if machine.worker is not None:
            machine.worker.kill()
        machine.disk.lose()
        world.later(60.0, partial(world.start, machine))


def disk_lost(world: World, busy_s: float) -> float:
    """A machine is replaced: its state is only in the packed log."""
    rng = world.rng

    def lose(machine: Machine) -> None:
        if machine.worker is not None:
            machine.worker.kill()
        if machine.disk.stores:
            world.timeline.strike("disk_lost")
        machine.disk.lose()
        world.timeline.note("disk lost", machine.name)
        world.later(60.0, lambda: world.start(machine))

    for _ in range(rng.randrange(1, 3)):
        machine = rng.choice(world.machines)
        world.later(rng.random() * busy_s, partial(lose, machine))
    return busy_s
