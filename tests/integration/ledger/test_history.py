"""Random histories: whatever happens in whatever order, the books balance after every step, and
when all is healed Stripe has each amount once."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field, replace

import psycopg
import pytest

from streams.core.fact import FactBatch, Series
from streams.core.lane import Claim
from tests.integration.ledger.world import World

pytestmark = pytest.mark.postgres

TENANTS = ("a", "b", "c", "d")
STEPS = 60
DECIDED = (
    "SELECT state, decided_by, why, (SELECT count(*) FROM ledger.decision), parked_id"
    " FROM ledger.parked ORDER BY parked_id"
)


@dataclass
class Stripe:
    """What really was executed: each identifier once, however often it is sent."""

    recorded: dict[str, Claim] = field(default_factory=dict)

    def execute(self, claim: Claim) -> None:
        known = self.recorded.setdefault(claim.identifier, claim)
        assert (known.value, known.timestamp_s) == (claim.value, claim.timestamp_s)

    def total(self, event_name: str) -> int:
        return sum(int(c.value) for c in self.recorded.values() if c.event_name == event_name)


@dataclass
class History:
    world: World
    random: random.Random
    stripe: Stripe = field(default_factory=Stripe)
    counts: dict[Series, tuple[int, int]] = field(default_factory=dict)
    told: list[FactBatch] = field(default_factory=list)
    lost: list[Claim] = field(default_factory=list)
    mapped: set[str] = field(default_factory=set)
    names: int = 0

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def tenant(self) -> str:
        return self.random.choice(TENANTS)

    async def tell(self, batch: FactBatch) -> None:
        self.told.append(batch)
        await self.world.ledger.apply_facts(batch)

    async def levels(self) -> None:
        changed = []
        for _ in range(self.random.randint(1, 4)):
            series = self.world.series(self.tenant(), back=self.random.randint(2, 5))
            count, total = self.counts.get(series, (0, 0))
            self.counts[series] = (count + 1, total + self.random.randint(0, 9))
            changed.append(series)
        await self.tell(
            self.world.batch(
                levels=tuple(self.world.level(s, *self.counts[s]) for s in set(changed))
            )
        )

    async def events(self) -> None:
        event = self.world.event(self.name(), self.random.randint(0, 9), self.tenant())
        await self.tell(self.world.batch(events=(event,)))

    async def corrections(self) -> None:
        metric = self.random.choice(("api_calls", "jobs"))
        series = self.world.series(self.tenant(), back=self.random.randint(2, 5), metric=metric)
        units = self.random.randint(-12, 5)
        fact = self.world.correction(self.name(), units, series)
        await self.tell(self.world.batch(corrections=(fact,)))

    async def again(self) -> None:
        if self.told:
            await self.world.ledger.apply_facts(self.random.choice(self.told))

    async def review(self) -> None:
        series = self.world.series(self.tenant())
        item = self.world.parked(self.name(), tenant_id=series.tenant_id, series=series)
        await self.tell(self.world.batch(parked=(item,)))
        (parked_id,) = self.world.rows("SELECT max(parked_id) FROM ledger.parked")[0]
        decision = self.random.choice(("approve", "reject"))
        self.world.admin.execute(f"SELECT ledger.{decision}(%s, 'why')".encode(), (parked_id,))

    async def finance(self) -> None:
        series = self.world.series(self.tenant(), back=self.random.randint(2, 5))
        call = b"SELECT ledger.correct(%s, 'api_calls', ledger.at(%s), %s, %s, 'why')"
        units = self.random.randint(-12, 5) or 1
        which = (series.tenant_id, series.window_start_us, units, self.name())
        # Said twice: the second is the first. What is refused would be below zero.
        for _ in range(2):
            with contextlib.suppress(psycopg.errors.InvalidParameterValue):
                self.world.admin.execute(call, which)

    async def replay(self) -> None:
        """Everything that was ever told, from the first record on, to a ledger that has decided."""
        for batch in self.told:
            await self.world.ledger.apply_facts(replace(batch, acknowledged=-1))

    async def customer(self) -> None:
        tenant = self.tenant()
        if tenant not in self.mapped:
            self.mapped.add(tenant)
            # Two tenants of one customer share lanes.
            await self.world.map(tenant, "cus_ab" if tenant in "ab" else f"cus_{tenant}")

    async def cut(self) -> None:
        await self.world.ledger.cut_entries(self.random.randint(1, 5))

    async def publish(self) -> None:
        for claim in await self.world.claim(self.random.randint(1, 3)):
            await self.outcome(claim)

    async def outcome(self, claim: Claim) -> None:
        happened = self.random.choice(
            ("recorded", "recorded", "answer lost", "not sent", "refused", "publisher died")
        )
        executed = claim.possibly_executed
        if happened == "recorded":
            self.stripe.execute(claim)
            await self.world.settle(claim)
        elif happened == "answer lost":
            if self.random.random() < 0.5:
                self.stripe.execute(claim)
            await self.world.settle(claim, "ambiguous", delay_ms=0, executed=True)
        elif happened == "publisher died":
            if self.random.random() < 0.5:
                self.stripe.execute(claim)
                self.lost.append(claim)
        elif happened == "refused" and not executed:
            await self.world.settle(claim, "dead", dead="refused")
        else:
            await self.world.settle(claim, "pending", delay_ms=0)

    async def leases(self) -> None:
        self.world.expire_leases()

    async def late_answer(self) -> None:
        if self.lost:
            await self.world.settle(self.lost.pop())

    async def redrive(self) -> None:
        for (item,) in self.world.rows(
            "SELECT parked_id FROM ledger.parked WHERE meter_event_id IS NOT NULL"
            " AND state = 'open'"
        ):
            self.world.admin.execute(b"SELECT ledger.redrive(%s, 'why')", (item,))

    async def heal(self) -> None:
        for tenant in set(TENANTS) - self.mapped:
            await self.world.map(tenant, f"cus_{tenant}")
        await self.redrive()
        self.world.expire_leases()
        while await self.world.ledger.cut_entries(100):
            pass
        while claims := await self.world.claim():
            for claim in claims:
                self.stripe.execute(claim)
                await self.world.settle(claim)


@pytest.mark.parametrize("seed", range(25))
async def test_the_books_balance_after_every_step_and_stripe_has_each_amount_once(
    world: World, seed: int
) -> None:
    history = History(world, random.Random(seed))
    steps = [
        history.levels, history.levels, history.events, history.corrections, history.again,
        history.review, history.customer, history.cut, history.publish, history.publish,
        history.leases, history.late_answer, history.redrive, history.finance,
    ]  # fmt: skip

    for _ in range(STEPS):
        await history.random.choice(steps)()
        world.check()

    await history.heal()
    amounts = await world.ledger.audit.amounts()
    misplaced = await world.ledger.audit.misplaced()

    assert (amounts.pending, amounts.held, amounts.dead, amounts.ambiguous) == (0, 0, 0, 0)
    assert amounts.settled == amounts.total + amounts.decided
    assert (misplaced.entries, misplaced.levels) == (0, 0)
    for metric in ("api_calls", "jobs"):
        settled = world.value(
            "SELECT coalesce(sum(settled), 0) FROM ledger.balance WHERE metric = %s", metric
        )
        assert history.stripe.total(metric) == settled
    assert amounts.total == sum(total for _, total in history.counts.values()) + world.value(
        "SELECT coalesce(sum(delta), 0) FROM ledger.meter_log WHERE kind = 'event'"
    )
    assert world.value("SELECT count(*) FROM ledger.finding") == 0
    decided = world.rows(DECIDED)
    await history.replay()
    await world.ledger.cut_entries(10_000)
    assert await world.ledger.audit.amounts() == amounts
    assert world.rows(DECIDED) == decided


async def test_a_reading_of_the_past_changes_nothing(world: World) -> None:
    series = world.series()
    first = world.batch(levels=(world.level(series, 1, 10),))
    second = world.batch(levels=(world.level(series, 2, 12),))
    await world.ledger.apply_facts(second)

    await world.ledger.apply_facts(replace(first, acknowledged=-1))

    assert world.balance("total") == 12
