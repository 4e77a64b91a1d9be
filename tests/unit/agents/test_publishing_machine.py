"""Two publishers, a Stripe that does its worst, and time: what is settled is what Stripe holds.

The publishers are the product's, the ledger's books and the stand-in's engine are in memory, and
time is told when to move. A publisher may die or sleep at any step: before it sends, or with its
answer on the way.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from streams.agents import publish
from streams.agents.publish import Lent, Publisher
from streams.core import publication
from streams.core.instant import HOUR_US, SECOND_US
from streams.core.lane import Claim
from streams.core.observation import Observation
from streams.core.outcome import Refused
from streams.core.settlement import PublishPolicy
from tests.unit.agents.lane_books import LaneBooks, Row
from tests.unit.agents.lanes import LIMITS
from tests.unit.agents.told_time import ToldTime
from tests.unit.stripe_sandbox import driver
from tests.unit.stripe_sandbox.driver import START_US, Fault, Memory, frozen

EVENTS = 3
GAPS_US = [SECOND_US, 61 * SECOND_US, HOUR_US, 7 * HOUR_US, 23 * HOUR_US, 25 * HOUR_US]
FAULTS: tuple[Fault, ...] = get_args(Fault)


class DiedError(Exception):
    """The publisher's process is gone."""


@dataclass
class Sink:
    """Stripe, with the next fault on order; the answer may be kept on its way."""

    memory: Memory
    books: LaneBooks
    fault: Fault = "none"
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, meter_event: Claim, idempotency_key: str) -> Observation:
        row = self.books.rows[meter_event.lane_id]
        assert idempotency_key == f"{row.event.identifier}.g{meter_event.key_generation}"
        stripe = driver.Publisher(self.memory, row.event, now_us=self.books.now_us)
        seen = stripe._send(meter_event, self.fault)
        if seen is None:
            raise DiedError
        await self.gate.wait()
        return seen


@dataclass
class Flight:
    """A lane being published, its answer on the way."""

    task: "asyncio.Task[None]"
    sink: Sink


@dataclass
class Routed:
    """The sink of the flight that sends: one may wait for its token while others take off."""

    world: "World"

    async def send(self, meter_event: Claim, idempotency_key: str) -> Observation:
        return await self.world.sinks[asyncio.current_task()].send(meter_event, idempotency_key)


class World:
    """What the machine's rules do; directed schedules call the same."""

    def __init__(self) -> None:
        self.loop = ToldTime(self)
        self.memory = Memory()
        self.books = LaneBooks([frozen(n, value=n + 1) for n in range(EVENTS)], START_US)
        self.now_s = 1_000.0
        self.sinks: dict[asyncio.Task[Any] | None, Sink] = {}
        self.publishers = [
            # More in flight than there may ever be: an answer may stay on its way for ever.
            Publisher(self.books, Routed(self), self, replace(LIMITS, lanes=99), lambda: 0.5)
            for _ in "ab"
        ]
        self.tasks: list[asyncio.Task[None]] = []

    def elapsed_s(self) -> float:
        return self.now_s

    def now_us(self) -> int:
        return self.books.now_us

    def claim(self, who: int) -> list[tuple[int, Lent]]:
        lent: list[tuple[int, Lent]] = []

        async def put(one: Lent) -> None:
            lent.append((who, one))

        self.loop.run_until_complete(self.publishers[who].look(put))
        return lent

    def take_off(self, who: int, lent: Lent, fault: Fault) -> Flight:
        """Decides, and sends unless it may not; the answer is on its way."""
        publisher = self.publishers[who]
        sink = Sink(self.memory, self.books, fault)
        flight = Flight(self.loop.create_task(publisher.publish(lent)), sink)
        self.sinks[flight.task] = sink
        self.tasks.append(flight.task)
        self._turn(flight)
        return flight

    def land(self, flight: Flight) -> None:
        """The answer arrives and is settled; or the publisher died of it."""
        flight.sink.gate.set()
        self._turn(flight)
        if not flight.task.done():
            # It waits for a token, which only time brings.
            self.loop.run_until_complete(asyncio.wait([flight.task]))
        if isinstance(flight.task.exception(), DiedError):
            # Its attempt stays without an end; a new process takes its place.
            return
        flight.task.result()

    def _turn(self, flight: Flight) -> None:
        for _ in range(20):
            if flight.task.done():
                return
            self.loop.run_until_complete(asyncio.sleep(0))

    def send(self, who: int, lent: Lent, fault: Fault = "none") -> None:
        self.land(self.take_off(who, lent, fault))

    def advance(self, gap_us: int) -> None:
        self.books.now_us += gap_us
        self.now_s += gap_us / 1_000_000

    def counted(self, row: Row) -> int:
        return self.memory.counted()[row.event.identifier]

    def check(self) -> None:
        """What must hold at any moment."""
        for row in self.books.rows:
            counted = self.counted(row)
            assert counted <= 1, "Stripe counts it twice"
            if row.state == "recorded":
                assert counted == 1, "settled, and Stripe does not have it"
            elif row.dead_kind in {"refused", "exhausted"}:
                assert counted == 0, "given up, and Stripe has it"
            elif row.state == "pending" and not row.unfinished:
                assert counted == 0, "waits to be sent, and Stripe has it"

    def heal(self) -> None:
        """All is well again: each meter event comes to its end, and the two sides agree."""
        for _ in range(40):
            self.advance(61 * SECOND_US)
            for who in (0, 1):
                for _, lent in self.claim(who):
                    self.send(who, lent)
            self.check()
            for row in self.books.rows:
                self.books.redrive(row)
        assert not any(row.open for row in self.books.rows), "never settled"
        settled = Counter(r.event.identifier for r in self.books.rows if r.state == "recorded")
        doubtful = {r.event.identifier for r in self.books.rows if r.state == "dead"}
        extra = self.memory.counted() - settled
        assert not settled - self.memory.counted()
        assert set(extra) <= doubtful, "Stripe holds what is neither settled nor in doubt"

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*self.tasks, return_exceptions=True))
        self.loop.close()


class PublishingMachine(RuleBasedStateMachine):
    """Any order of claims, requests, answers, deaths, sleeps and redrives."""

    lent = Bundle("lent")
    flights = Bundle("flights")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(target=lent, who=st.sampled_from([0, 1]))
    def claim(self, who: int) -> Any:
        return multiple(*self.world.claim(who))

    @rule(one=consumes(lent), fault=st.sampled_from(FAULTS))
    def send(self, one: tuple[int, Lent], fault: Fault) -> None:
        self.world.send(*one, fault)

    @rule(target=flights, one=consumes(lent), fault=st.sampled_from(FAULTS))
    def take_off(self, one: tuple[int, Lent], fault: Fault) -> Flight:
        return self.world.take_off(*one, fault)

    @rule(flight=consumes(flights))
    def land(self, flight: Flight) -> None:
        self.world.land(flight)

    @rule(one=consumes(lent))
    def die(self, one: tuple[int, Lent]) -> None:
        """Nobody hears of this claim again."""

    @rule(gap_us=st.sampled_from(GAPS_US))
    def advance(self, gap_us: int) -> None:
        self.world.advance(gap_us)

    @precondition(lambda self: any(row.state == "dead" for row in self.world.books.rows))
    @rule()
    def redrive(self) -> None:
        for row in self.world.books.rows:
            self.world.books.redrive(row)

    @invariant()
    def what_is_settled_is_what_stripe_holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        try:
            self.world.heal()
        finally:
            self.world.close()


def test_no_sequence_of_answers_makes_the_two_sides_differ() -> None:
    run_state_machine_as_test(
        PublishingMachine,
        settings=settings(max_examples=150, stateful_step_count=30, deadline=None),
    )


# -- directed schedules, each with the bug that it would find --------------------------------------


def asleep_past_its_lease_and_the_fence(world: World) -> None:
    """Claimed by one, who sleeps for 25 hours; the other sends. Then the sleeper wakes."""
    sleeping = world.claim(0)
    world.advance(61 * SECOND_US)
    for who, lent in world.claim(1):
        world.send(who, lent)
    world.advance(25 * HOUR_US)
    for who, lent in sleeping:
        world.send(who, lent)
    world.check()
    assert [world.counted(row) for row in world.books.rows] == [1] * EVENTS


def an_answer_lost_and_an_outage_past_the_fence(world: World) -> None:
    for who, lent in world.claim(0):
        world.send(who, lent, "drop_after")
    for _ in range(4):
        world.advance(7 * HOUR_US)
        for who, lent in world.claim(1):
            world.send(who, lent, "not_sent")
    world.heal()


def refused_after_an_answer_was_lost(world: World) -> None:
    faults: tuple[Fault, ...] = ("http_500_cached_recorded", "none", "validation")
    for fault in faults:
        for who, lent in world.claim(0):
            world.send(who, lent, fault)
        world.advance(HOUR_US)
    world.check()
    world.heal()


def dead_with_its_request_on_the_way(world: World) -> None:
    """The publisher dies after the first byte, and nobody looks for a day."""
    for who, lent in world.claim(0):
        world.take_off(who, lent, "none")
    world.advance(25 * HOUR_US)
    for who, lent in world.claim(1):
        world.send(who, lent)
    world.check()
    assert {row.dead_kind for row in world.books.rows} == {"ambiguous"}


SCHEDULES = [
    asleep_past_its_lease_and_the_fence,
    an_answer_lost_and_an_outage_past_the_fence,
    refused_after_an_answer_was_lost,
    dead_with_its_request_on_the_way,
]


@pytest.fixture
def world() -> Any:
    world = World()
    yield world
    world.close()


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.__name__)
def test_a_schedule_that_broke_others_is_harmless(
    world: World, schedule: Callable[[World], None]
) -> None:
    schedule(world)
    world.heal()


def no_lease_is_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "_unsent", lambda *_: None)


def no_fence_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish, "PublishPolicy", lambda: PublishPolicy(ambiguous_us_max=1 << 60))


def a_refusal_ends_the_doubt(patch: pytest.MonkeyPatch) -> None:
    classify = publication.classify

    def rash(observation: Any, history: Any) -> Any:
        outcome = classify(observation, history)
        if getattr(observation, "status", 0) == 400 and getattr(outcome, "charge", "") == "always":
            return Refused("rash", "data")
        return outcome

    patch.setattr("streams.core.settlement.classify", rash)
    patch.setattr(LaneBooks, "_fail", believing)


def believing(self: LaneBooks, row: Row, settlement: Any, *, executed: bool) -> None:
    """Books that believe the settlement over what they know."""
    del self, executed
    row.state, row.dead_kind = settlement.state, settlement.dead_kind


def an_open_attempt_is_no_doubt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Row, "unfinished", property(lambda _row: False))


@pytest.mark.parametrize(
    ("plant", "schedule"),
    [
        (no_lease_is_checked, asleep_past_its_lease_and_the_fence),
        (no_fence_is_kept, an_answer_lost_and_an_outage_past_the_fence),
        (a_refusal_ends_the_doubt, refused_after_an_answer_was_lost),
        (an_open_attempt_is_no_doubt, dead_with_its_request_on_the_way),
    ],
    ids=lambda f: f.__name__,
)
def test_planted(
    plant: Callable[[pytest.MonkeyPatch], None],
    schedule: Callable[[World], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    world = World()
    try:
        with pytest.raises(AssertionError):
            schedule(world)
    finally:
        world.close()
