"""What a seed tells: tenants, usage, and the faults that strike.

Quantities are powers of four within a cell of Stripe's, so a sum shows which use is missing in it
and which is there twice.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from tests.simulation.faults import AIMED, APART, FAULTS
from tests.simulation.rules import COUNTED, RULES, SCALE, rule_of, verdict_of
from tests.simulation.service import Service, Use, other_content
from tests.simulation.timeline import T0_US
from tests.simulation.world import HOUR_S, World

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3_600 * SECOND_US
POWERS_MAX: Final = 22
TENANTS: Final = ("acme", "blue", "coda", "dune", "echo")
KINDS: Final = ("calls", "calls", "calls", "storage", "storage", "jobs", "logins")


class Usage:
    """Makes uses up, each with an amount that tells it from the others of its cell."""

    def __init__(self, service: Service, rng: Random) -> None:
        self._service, self._rng = service, rng
        self._in_cell: Counter[tuple[str, str, int]] = Counter()
        self._made: list[Use] = []

    def next(self) -> Use:
        """A new use, or one that was recorded before: the same, or with other content."""
        rng = self._rng
        if self._made and rng.random() < 0.12:
            again = rng.choice(self._made)
            return other_content(again, "7") if rng.random() < 0.3 else again
        if rng.random() < 0.05 and (fix := self._correction()) is not None:
            return fix
        metric = rng.choice(KINDS)
        now_us = self._service.now_us()
        occurred_us = None if rng.random() < 0.4 else now_us - self._ago_us(metric)
        tenant_id = rng.choice(TENANTS)
        quantity = self._quantity(tenant_id, metric, occurred_us or now_us)
        use = Use(tenant_id, metric, quantity, f"k{len(self._made)}", occurred_us)
        if rng.random() < 0.02:
            use = replace(use, metric="no_such_meter")
        self._made.append(use)
        return use

    def _correction(self) -> Use | None:
        """The service takes back what it recorded."""
        rows = [row for row in self._service.committed if verdict_of(row) == "accepted"]
        if not rows:
            return None
        row = self._rng.choice(rows)
        delta, key = f"-{row.use.quantity}", f"c{len(self._made)}"
        use = row.use
        return Use(
            use.tenant_id, use.metric, delta, key, row.occurred_us, "correction", row.event_id
        )

    def _ago_us(self, metric: str) -> int:
        kind, late_us = self._rng.random(), rule_of(metric, self._service.now_us()).late_us
        if kind < 0.06:  # late, by whatever rule
            return max(rule.late_us for rule in RULES[metric]) + HOUR_US
        if kind < 0.09:  # early
            return -11 * 60 * SECOND_US
        return int(self._rng.random() * 0.9 * late_us)

    def _quantity(self, tenant_id: str, metric: str, at_us: int) -> str:
        if metric in COUNTED:
            return "2" if self._rng.random() < 0.1 else "1"
        cell = tenant_id, metric, at_us // HOUR_US
        power = min(self._in_cell[cell], POWERS_MAX)
        self._in_cell[cell] += 1
        units = int(4**power)
        if SCALE[metric]:
            return f"{units // 100}.{units % 100:02}".rstrip("0").rstrip(".")
        return str(units)


async def write(world: World, hours: float, uses: int) -> None:
    """Transactions of a service for some hours, one after the other and some beside each other."""
    rng, usage = world.rng, Usage(world.service, world.rng)
    for _ in range(uses):
        await asyncio.sleep(rng.random() * 2 * hours * HOUR_S / uses)
        transaction = world.service.begin()
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            world.service.record(transaction, usage.next())
        long = rng.random() < 0.05
        open_s = rng.random() * (2 * HOUR_S if long else 0.2)
        commit = rng.random() >= 0.1
        world.later(open_s, partial(world.service.end, transaction, commit=commit))


def story(world: World) -> float:
    """Arranges a seed; gives the seconds until all is healed."""
    rng = world.rng
    for number, tenant_id in enumerate(TENANTS):
        customer = f"cus_{number}"
        if rng.random() < 0.15:
            mapping_s = rng.random() * 10 * HOUR_S
            world.later(mapping_s, partial(world.map_customer, tenant_id, customer, 0))
            continue
        world.map_customer(tenant_id, customer, 0)
        if rng.random() < 0.25:
            moved_us = T0_US + rng.randrange(1, 12) * HOUR_US
            world.map_customer(tenant_id, f"{customer}b", moved_us)
    if rng.random() < 0.3:  # those that are known stay where they are
        world.later(rng.random() * 4 * HOUR_S, partial(world.service.shards.update, dune=2))
    hours = rng.choice((2.0, 4.0, 8.0))
    world.writing = world.timeline.create_task(write(world, hours, rng.randrange(20, 60)))
    lasts_s = hours * HOUR_S + 2 * HOUR_S
    others = sorted(FAULTS.keys() - set(world.forced))
    return _strike(
        world, _together(world.forced, rng.sample(others, rng.randrange(6))), hours, lasts_s
    )


def _together(forced: Sequence[str], chosen: Sequence[str]) -> Sequence[str]:
    """Those that are forced and of the others all that may be in one seed with them."""
    names = [*forced]
    for name in chosen:
        if not {*names, name} >= APART:
            names.append(name)
    return names


def brief(world: World) -> float:
    """Two hours of usage and the forced faults alone: for planted bugs, which need no variety."""
    for number, tenant_id in enumerate(TENANTS):
        world.map_customer(tenant_id, f"cus_{number}", 0)
    world.writing = world.timeline.create_task(write(world, 2.0, 40))
    return _strike(world, world.forced, 2.0, 4 * HOUR_S)


def _strike(world: World, names: Sequence[str], hours: float, lasts_s: float) -> float:
    for name in names:
        world.faults.append(name)
        lasts_s = max(lasts_s, (FAULTS | AIMED)[name](world, hours * HOUR_S))
    return lasts_s
