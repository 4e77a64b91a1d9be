"""Deaths and suspensions at the places where one rule is needed."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tests.simulation.faults.deaths import replace_all
from tests.simulation.world import HOUR_S, Machine, World

MINUTE_S: Final = 60.0


def _each_machine(world: World, arrange: Callable[[Machine], None]) -> None:
    """Arranges something for every worker before it starts."""
    before = world.prepare

    def prepare(worker: Any) -> None:
        before(worker)
        arrange(next(m for m in world.machines if m.worker is worker))

    world.prepare = prepare  # type: ignore[method-assign]  # what the method is there for


def _telling(machine: Machine, around: Callable[[Callable[[], Any]], Any]) -> None:
    """Puts something around each batch of facts of a worker."""
    assert machine.worker is not None
    ledger: Any = machine.worker.facts._ledger
    apply_facts = ledger.apply_facts

    async def told(batch: Any) -> Any:
        return await around(lambda: apply_facts(batch))

    ledger.apply_facts = told


def _any_stopped(world: World) -> bool:
    return any(m.worker is not None and m.worker.process.state == "stopped" for m in world.machines)


def killed_at(step: str, times: int = 5) -> Callable[[World, float], float]:
    """SIGKILLs at passings of a named step."""

    def fault(world: World, busy_s: float) -> float:
        rng, left = world.rng, times

        def arrange(machine: Machine) -> None:
            assert machine.worker is not None
            passings = rng.randrange(2, 6)

            def reached(name: str) -> None:
                nonlocal passings, left
                if name == step and not world.healed and left:
                    passings -= 1
                    if passings == 0:
                        left -= 1
                        world.timeline.note("struck at", step)
                        world.kill(machine, 3.0)

            machine.worker.process.hook = reached

        _each_machine(world, arrange)
        return busy_s

    return fault


def stopped_while_telling(world: World, busy_s: float) -> float:
    """SIGSTOPs with a batch of facts on its way: others have told more when it arrives."""
    rng = world.rng

    def arrange(machine: Machine) -> None:
        async def around(tell: Callable[[], Any]) -> Any:
            if not _any_stopped(world) and not world.healed and rng.random() < 0.3:
                world.stop(machine, 20 * MINUTE_S)
                await asyncio.sleep(0)
            return await tell()

        _telling(machine, around)

    _each_machine(world, arrange)
    return busy_s + HOUR_S


def answers_late(world: World, busy_s: float) -> float:
    """The ledger's answers to facts take minutes, and workers are killed now and then."""
    rng = world.rng

    def arrange(machine: Machine) -> None:
        async def around(tell: Callable[[], Any]) -> Any:
            answer = await tell()
            if not world.healed:
                await asyncio.sleep(rng.random() * 10 * MINUTE_S)
            return answer

        _telling(machine, around)

    def kill() -> None:
        world.kill(rng.choice(world.machines), 3.0)

    _each_machine(world, arrange)
    for _ in range(4):
        world.later(rng.random() * busy_s, kill)
    return busy_s


def stopped_with_verdicts(world: World, busy_s: float) -> float:
    """SIGSTOPs of workers that have decided: they write it when others own the partition.

    For less than the time in which a chunk has to be settled, or they would end themselves.
    """
    rng = world.rng

    def arrange(machine: Machine) -> None:
        assert machine.worker is not None

        def reached(name: str) -> None:
            striking = name == "decided" and not _any_stopped(world)
            if striking and not world.healed and rng.random() < 0.3:
                world.stop(machine, 45.0)

        machine.worker.process.hook = reached

    _each_machine(world, arrange)
    return busy_s + HOUR_S


def stopped_with_claims(world: World, busy_s: float) -> float:
    """SIGSTOPs of more than a day with lanes lent: Stripe has forgotten their identifiers.

    Never with a request that was checked and is not sent yet: nothing could hold that one back.
    """
    left = 2

    def arrange(machine: Machine) -> None:
        worker = machine.worker
        assert worker is not None
        publisher: Any = worker.publisher
        attempt, under_way = publisher._attempt, 0

        async def attempted(lent: Any) -> Any:
            nonlocal left, under_way
            if left and not under_way and not world.healed and world.rng.random() < 0.5:
                left -= 1
                world.stop(machine, 25 * HOUR_S)
                await asyncio.sleep(0)
            under_way += 1
            try:
                return await attempt(lent)
            finally:
                under_way -= 1

        publisher._attempt = attempted

    _each_machine(world, arrange)
    return busy_s + 30 * HOUR_S


def stopped_in_turn(world: World, busy_s: float) -> float:
    """SIGSTOPs of more than a day while requests wait for their turn to be sent.

    What they were allowed when they came is not allowed any more when they leave.
    """
    left = 2

    def arrange(machine: Machine) -> None:
        worker = machine.worker
        assert worker is not None
        pace: Any = worker.publisher._pace
        turn = pace.turn

        async def its_turn() -> None:
            nonlocal left
            if left and not world.healed and world.rng.random() < 0.5:
                left -= 1
                world.stop(machine, 25 * HOUR_S)
                await asyncio.sleep(0)
            await turn()

        pace.turn = its_turn

    _each_machine(world, arrange)
    return busy_s + 30 * HOUR_S


def machines_replaced(world: World, busy_s: float) -> float:
    """All state is read from the packed log, once in the middle and once near the end."""

    for part in (0.5, 0.9):
        world.later(part * busy_s, partial(replace_all, world))
    return busy_s + HOUR_S
