"""Faults that strike where one rule is needed: planted bugs show at once, and right code does not.

They are built of what may happen anyway; only place and time are not left to chance.
"""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec
from confluent_kafka import TopicCollection
from msgspec.structs import replace as changed

from streams.core.lane import Claim
from streams.core.observation import NotSent, Observation
from streams.topics import EVENTS
from tests.simulation.faults import struck
from tests.simulation.ledger.agreeing import RefusedError
from tests.simulation.ledger.rows import Tables
from tests.simulation.service import Use
from tests.simulation.stripe import Weather
from tests.simulation.timeline import T0_US
from tests.simulation.world import HOUR_S, World

MINUTE_S: Final = 60.0
HOUR_US: Final = 3_600_000_000


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
        world.later(busy_s / 2 + number * 10 * MINUTE_S, world.operator.finance.correct)
    return busy_s + 2 * HOUR_S


def restored_and_replaced(world: World, busy_s: float) -> float:
    """The ledger and all machines are lost at once: nobody is left who spoke with it.

    Not beside faults that keep canaries from arriving: positions stand still then, and a ledger
    that has only forgotten attempts looks like the one that was lost.
    """

    def keep() -> None:
        world.later(HOUR_S / 2, partial(lose, world.database.backup()))

    def lose(backup: Tables) -> None:
        for machine in world.machines:
            if machine.worker is not None:
                machine.worker.kill()
            machine.disk.lose()
            world.later(MINUTE_S, partial(world.start, machine))
        world.restore(backup)

    world.later(0.6 * busy_s, keep)
    world.canaries(10 * MINUTE_S, busy_s + HOUR_S)
    return busy_s + HOUR_S


def another_log(world: World, busy_s: float) -> float:
    """For half an hour there is another topic under the name of the events topic.

    It has a longer history of its own. Who looks away from a log's id goes on in it. Connect stands
    still meanwhile, so not beside faults that start it: what it wrote there would be gone.
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


def records_altered(world: World, busy_s: float) -> float:
    """A step on the way to the log changes records, and sends the true ones before or after.

    It multiplies an amount, or makes a copy under an identity of its own.
    """
    broker, rng = world.broker, world.rng
    append = broker.append

    def appended(topic: str, partition: int, key: bytes | None, value: bytes) -> int:
        if topic != EVENTS or world.healed or rng.random() > 0.3:
            return append(topic, partition, key, value)
        wire = msgspec.json.decode(value)
        altered = dict(wire)
        if rng.random() < 0.5:
            altered["event_id"] = str(UUID(int=rng.getrandbits(128)))
        else:
            amount = "delta" if "delta" in wire else "quantity"
            altered[amount] = f"{wire[amount]}000"
        pair = [value, msgspec.json.encode(altered)]
        rng.shuffle(pair)
        append(topic, partition, key, pair[0])
        return append(topic, partition, key, pair[1])

    broker.append = appended  # type: ignore[method-assign]  # of this world alone
    return busy_s


def clocks_far_ahead(world: World, busy_s: float) -> float:
    """The clocks of all machines are days ahead for a while, and right again."""

    def set_ahead(ahead_us: int) -> None:
        for machine in world.machines:
            if machine.worker is not None:
                machine.worker.clock.ahead_us = ahead_us

    world.later(0.5 * busy_s, partial(set_ahead, 120 * HOUR_US))
    world.later(busy_s + HOUR_S, partial(set_ahead, 0))
    return busy_s + HOUR_S


def busy_shards(world: World, busy_s: float) -> float:
    """Every hour has usage on all keys of a tenant that is spread over several."""
    service = world.service

    def record(hour: int) -> None:
        transaction = service.begin()
        for number in range(9):
            service.record(transaction, Use("acme", "calls", "1", f"busy {hour} {number}"))
        service.end(transaction, commit=True)

    for hour in range(2):
        world.later((hour + 0.5) * HOUR_S, partial(record, hour))
    return busy_s


def tenants_move(world: World, busy_s: float) -> float:
    """Another customer pays for each tenant from the second hour on."""
    for tenant_id, _, customer in tuple(world.mapped):
        world.map_customer(tenant_id, f"{customer}b", T0_US + HOUR_US)
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

    def approve_twice(parked_id: int, login: str) -> int | None:
        made = approve(parked_id, login)
        with suppress(RefusedError):
            approve(parked_id, login)
        return made

    database.approve = approve_twice  # type: ignore[method-assign]  # of this world alone
    for hours in (0.5, 1.0, 1.5, 2.0, 2.5):
        world.later(hours * HOUR_S, world.operator.finance.correct)
        world.later(hours * HOUR_S, world.operator.look)
    return busy_s + HOUR_S


AIMED: Final[dict[str, Callable[[World, float], float]]] = {
    "killed_after_outputs": struck.killed_at("outputs_produced"),
    "killed_after_batch": struck.killed_at("batch_written"),
    "killed_after_answer": struck.killed_at("answered", 8),
    "killed_after_telling": struck.killed_at("facts_told"),
    "stopped_while_telling": struck.stopped_while_telling,
    "stopped_with_verdicts": struck.stopped_with_verdicts,
    "stopped_with_claims": struck.stopped_with_claims,
    "stopped_in_turn": struck.stopped_in_turn,
    "answers_late": struck.answers_late,
    "machines_replaced": struck.machines_replaced,
    "another_log": another_log,
    "restored_and_replaced": restored_and_replaced,
    "all_emitted_again": all_emitted_again,
    "clocks_far_ahead": clocks_far_ahead,
    "records_altered": records_altered,
    "refused_for_a_day": _weathers((0.5, "answer_lost"), (2.0, "refused"), (27.0, "fine")),
    "refused_for_hours": _weathers((0.5, "refused"), (6.0, "fine")),
    "errors_kept": _weathers((0.5, "error_kept"), (3.0, "fine")),
    "busy_shards": busy_shards,
    "decided_twice": decided_twice,
    "tenants_move": tenants_move,
    "positives_refused": positives_refused,
    "reviewed_between": reviewed_between,
}
"""By name, as `FAULTS`."""
