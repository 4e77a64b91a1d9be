"""Two publishers on the real ledger and the stand-in over HTTP: whatever it answers, once each."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.stripe_sandbox.faults import FaultSpec
from sandbox.stripe_sandbox.service import Service, ServiceSettings
from streams.adapters.clock import SystemClock
from streams.adapters.stripe import StripeSettings, StripeSink
from streams.agents.publish import Lent, Publisher
from streams.agents.publish_limits import PublishLimits
from streams.core.settlement import PublishPolicy
from tests.integration.ledger.world import World

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(240)]

LIMITS = PublishLimits(worker="a", lanes=8, lease_s=60, request_s_max=2.0, rate_per_s=2_000)
TENANTS = 24
DEADLINE_S = 60.0


@dataclass
class Stage:
    """The ledger, Stripe, and two publishers with lanes of their own."""

    world: World
    service: Service
    sink: StripeSink
    publishers: Sequence[Publisher]
    seed: random.Random

    def arm(self, kind: str, **how: Any) -> None:
        self.service.api.faults.arm(FaultSpec(kind=kind, **how))  # type: ignore[arg-type]  # by name

    def heal(self) -> None:
        self.service.api.faults.clear()

    async def fill(self, events: int) -> None:
        for n in range(TENANTS):
            await self.world.map(f"t{n}", f"cus_{n}")
        usage = tuple(
            self.world.event(f"e{n}", n % 7 + 1, f"t{n % TENANTS}") for n in range(events)
        )
        await self.world.tell(events=usage)
        await self.world.ledger.cut_entries(1_000)

    async def rounds(self, count: int) -> None:
        """So many looks of each publisher, all at the same time."""
        for _ in range(count):
            await asyncio.gather(*(self._round(one) for one in self.publishers))
            # Only now: this connection waits on the loop for locks that the loop must give back.
            self.world.due_now()

    async def _round(self, publisher: Publisher) -> None:
        lent: list[Lent] = []

        async def put(one: Lent) -> None:
            lent.append(one)

        await publisher.look(put)
        self.seed.shuffle(lent)
        await asyncio.gather(*(publisher.publish(one) for one in lent))

    async def until_settled(self) -> None:
        """Publishers go on until nothing waits."""
        open_rows = (
            "SELECT count(*) FROM ledger.meter_event WHERE state IN ('pending', 'ambiguous')"
        )
        waiting = "SELECT count(*) FROM ledger.uncovered"
        async with asyncio.timeout(DEADLINE_S):
            while self.world.value(open_rows) or self.world.value(waiting):
                await self.rounds(1)

    def at_stripe(self) -> Counter[tuple[str, str]]:
        return Counter((e.identifier, e.value) for e in self.service.engine.state.recorded)

    def in_ledger(self, state: str) -> Counter[tuple[str, str]]:
        query = "SELECT identifier, value FROM ledger.meter_event WHERE state = %s"
        return Counter((identifier, value) for identifier, value in self.world.rows(query, state))


@asynccontextmanager
async def staged(world: World, folder: Path, seed: int) -> AsyncIterator[Stage]:
    clock = SystemClock()
    service = Service(ServiceSettings(folder, seed=seed), clock.now_us)
    service.create_meters(["api_calls", "jobs"])
    service.engine.settings.rate_limit = 100_000
    await service.start()
    reach = StripeSettings("sk_test_race", service.url, read_timeout_s=0.5, deadline_s=1.5)
    chance = random.Random(seed)
    async with StripeSink(reach) as sink:
        publishers = [
            Publisher(world.ledger, sink, clock, replace(LIMITS, worker=name), chance.random)
            for name in ("a", "b")
        ]
        for publisher in publishers:
            # Waits are another test's: here the breaker probes at once and backoff is none.
            publisher.breaker = replace(
                publisher.breaker,
                policy=replace(publisher.breaker.policy, open_ms=2, open_cap_ms=4),
            )
        try:
            yield Stage(world, service, sink, publishers, chance)
        finally:
            await service.stop()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_answers_lost_doubled_truncated_cached_and_throttled_change_no_amount(
    world: World, tmp_path: Path, seed: int
) -> None:
    async with staged(world, tmp_path, seed) as stage:
        await stage.fill(72)
        for kind, how in (
            ("drop_after", {}),
            ("truncate", {}),
            ("drop_before", {}),
            ("http_500_cached", {"recorded": True}),
            ("http_500_cached", {}),
            ("http_502_html", {"recorded": True}),
            ("lock_timeout", {}),
            ("429", {}),
        ):
            stage.arm(kind, probability=0.12, seed=seed, **how)
        await stage.rounds(6)
        stage.heal()
        await stage.until_settled()
        assert stage.at_stripe() == stage.in_ledger("recorded")
        assert sum(int(value) for _, value in stage.at_stripe().elements()) == sum(
            n % 7 + 1 for n in range(72)
        )
        assert stage.in_ledger("dead") == Counter()


async def test_a_refused_key_uses_up_nothing_and_nothing_dies(world: World, tmp_path: Path) -> None:
    async with staged(world, tmp_path, 4) as stage:
        await stage.fill(48)
        stage.arm("401")
        await stage.rounds(3 * PublishPolicy().attempts_max)
        used = "SELECT coalesce(sum(attempts_used), 0) FROM ledger.meter_event"
        assert world.value(used) == 0
        assert stage.at_stripe() == Counter()
        assert {p.breaker.state for p in stage.publishers} <= {"open", "half_open"}
        stage.heal()
        await stage.until_settled()
        assert stage.at_stripe() == stage.in_ledger("recorded")
        assert world.value("SELECT count(*) FROM ledger.parked") == 0


async def test_a_storm_of_errors_dead_letters_no_healthy_meter_event(
    world: World, tmp_path: Path
) -> None:
    """Half of all requests fail, for longer than a meter event's own attempts would last."""
    async with staged(world, tmp_path, 5) as stage:
        await stage.fill(48)
        stage.arm("http_500", probability=0.5, seed=5)
        await stage.rounds(2 * PublishPolicy().attempts_max)
        stage.heal()
        await stage.until_settled()
        assert stage.at_stripe() == stage.in_ledger("recorded")
        assert world.value("SELECT count(*) FROM ledger.parked") == 0


async def test_a_pause_in_the_middle_loses_and_doubles_nothing(
    world: World, tmp_path: Path
) -> None:
    async with staged(world, tmp_path, 6) as stage:
        await stage.fill(72)
        stage.arm("drop_after", probability=0.3, seed=6)
        await stage.rounds(1)
        world.rows("SELECT * FROM ledger.pause_v1('all', '', 'a test', 'ann')")
        before = stage.at_stripe()
        await stage.rounds(3)
        assert stage.at_stripe() == before, "something was sent while it was paused"
        world.rows("SELECT * FROM ledger.resume_v1('all', '', 'over', 'ann')")
        stage.heal()
        await stage.until_settled()
        assert stage.at_stripe() == stage.in_ledger("recorded")
