"""Faults that strike where one rule is needed: planted bugs show at once, and right code does not.

They are built of what may happen anyway; only place and time are not left to chance.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import TopicCollection
from msgspec.structs import replace as changed

from streams.core.lane import Claim
from streams.core.observation import NotSent, Observation
from streams.topics import EVENTS
from tests.simulation.ledger.people import RefusedError
from tests.simulation.service import Use
from tests.simulation.stripe import Weather
from tests.simulation.world import HOUR_S, Machine, World

MINUTE_S: Final = 60.0
HOUR_US: Final = 3_600_000_000


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


def reviewed_between(world: World, busy_s: float) -> float:
    """Usage that is dated ahead is decided on while the window it belongs to fills up."""
    service = world.service

    def record(key: str, quantity: int, ahead_s: float) -> None:
        transaction = service.begin()
        occurred_us = service.now_us() + int(ahead_s * 1_000_000)
        service.record(transaction, Use("acme", "calls", str(quantity), key, occurred_us))
        service.end(transaction, commit=True)

    for number in range(6):
        at_s = (number + 0.2) * busy_s / 6
        world.later(at_s, partial(record, f"first{number}", 1, 0.0))
        world.later(at_s + MINUTE_S, partial(record, f"ahead{number}", 4, 6 * MINUTE_S))
        world.later(at_s + 6 * MINUTE_S, world.operator.look)
        world.later(at_s + 10 * MINUTE_S, partial(record, f"last{number}", 16, 0.0))
    return busy_s


def positives_refused(world: World, busy_s: float) -> float:
    """Most requests for positive amounts do not get through, while people take usage back."""
    rng, send = world.rng, world.stripe.send

    async def sent(claim: Claim, key: str) -> Observation:
        if not world.healed and not claim.value.startswith("-") and rng.random() < 0.8:
            return NotSent("ClientConnectorError")
        return await send(claim, key)

    world.stripe.send = sent  # type: ignore[method-assign]  # of this world alone
    for number in range(12):
        world.later(busy_s / 2 + number * 10 * MINUTE_S, world.operator.correct)
    return busy_s + 2 * HOUR_S


def machines_replaced(world: World, busy_s: float) -> float:
    """All state is read from the packed log, once in the middle and once near the end."""

    def lose() -> None:
        world.timeline.note("disks lost")
        for machine in world.machines:
            if machine.worker is not None:
                machine.worker.kill()
            machine.disk.lose()
            world.later(MINUTE_S, partial(world.start, machine))

    world.later(0.5 * busy_s, lose)
    world.later(0.9 * busy_s, lose)
    return busy_s + HOUR_S


def another_log(world: World, busy_s: float) -> float:
    """For half an hour there is another topic under the name of the events topic.

    It has a longer history of its own. Who looks away from a log's id goes on in it.
    """
    broker = world.broker
    describe, logs = broker.describe_topics, broker.logs[EVENTS]

    def described(topics: TopicCollection, **how: Any) -> dict[str, "Future[Any]"]:
        answers = describe(topics, **how)
        if EVENTS in answers:
            answers[EVENTS].result().topic_id = "8Lz0YxKPTZqz4yIYwHZ_Aw"
        return answers

    def stop_all() -> None:
        world.connect.kill()
        for machine in world.machines:
            if machine.worker is not None:
                machine.worker.kill()
            world.later(MINUTE_S, partial(world.start, machine))

    def replace_log() -> None:
        stop_all()
        longer = [2 * log for log in logs]
        broker.logs[EVENTS] = [
            [changed(record, offset=offset) for offset, record in enumerate(log)] for log in longer
        ]
        broker.describe_topics = described  # type: ignore[method-assign]  # while it lasts

    def bring_back() -> None:
        stop_all()
        broker.logs[EVENTS] = logs
        broker.describe_topics = describe  # type: ignore[method-assign]  # as before
        world.later(2 * MINUTE_S, world.connect.start)

    world.later(0.7 * busy_s, replace_log)
    world.later(0.7 * busy_s + HOUR_S / 2, bring_back)
    return busy_s + HOUR_S


def all_emitted_again(world: World, busy_s: float) -> float:
    """Every row goes out once more, at the end."""

    def emit() -> None:
        world.service.emit_again(0, world.service.now_us() + HOUR_US)

    world.later(busy_s + 1_800, emit)
    return busy_s + HOUR_S


def clocks_far_ahead(world: World, busy_s: float) -> float:
    """The clocks of all machines are days ahead for a while, and right again."""

    def set_ahead(ahead_us: int) -> None:
        for machine in world.machines:
            if machine.worker is not None:
                machine.worker.clock.ahead_us = ahead_us

    world.later(0.5 * busy_s, partial(set_ahead, 120 * HOUR_US))
    world.later(busy_s + HOUR_S, partial(set_ahead, 0))
    return busy_s + HOUR_S


def _weathers(*planned: tuple[float, Weather]) -> Callable[[World, float], float]:
    """Weather that changes at the given hours; fine at the last."""

    def fault(world: World, busy_s: float) -> float:
        def becomes(weather: Weather) -> None:
            world.stripe.weather = weather
            world.timeline.note("weather", weather)

        for hour, weather in planned:
            world.later(hour * HOUR_S, partial(becomes, weather))
        return max(busy_s, planned[-1][0] * HOUR_S)

    return fault


def decided_twice(world: World, busy_s: float) -> float:
    """Whoever decides says so twice, and takes something back every half hour."""
    approve, database = world.database.approve, world.database

    def approve_twice(parked_id: int) -> int:
        made = approve(parked_id)
        with suppress(RefusedError):
            approve(parked_id)
        return made

    database.approve = approve_twice  # type: ignore[method-assign]  # of this world alone
    for hours in (0.5, 1.0, 1.5, 2.0, 2.5):
        world.later(hours * HOUR_S, world.operator.correct)
        world.later(hours * HOUR_S, world.operator.look)
    return busy_s + HOUR_S


AIMED: Final[dict[str, Callable[[World, float], float]]] = {
    "killed_after_outputs": killed_at("outputs_produced"),
    "killed_after_batch": killed_at("batch_written"),
    "killed_after_answer": killed_at("answered", 8),
    "killed_after_telling": killed_at("facts_told"),
    "stopped_while_telling": stopped_while_telling,
    "stopped_with_verdicts": stopped_with_verdicts,
    "stopped_with_claims": stopped_with_claims,
    "answers_late": answers_late,
    "machines_replaced": machines_replaced,
    "another_log": another_log,
    "all_emitted_again": all_emitted_again,
    "clocks_far_ahead": clocks_far_ahead,
    "answers_lost": _weathers((0.5, "answer_lost"), (4.0, "fine")),
    "refused_for_a_day": _weathers((0.5, "answer_lost"), (2.0, "refused"), (27.0, "fine")),
    "refused_for_hours": _weathers((0.5, "refused"), (6.0, "fine")),
    "errors_kept": _weathers((0.5, "error_kept"), (3.0, "fine")),
    "decided_twice": decided_twice,
    "positives_refused": positives_refused,
    "reviewed_between": reviewed_between,
}
"""By name, as `FAULTS`."""
