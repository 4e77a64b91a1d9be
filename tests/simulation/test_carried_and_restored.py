"""A ledger comes back from before it carried: what it had carried and sent is not sent again."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from tests.simulation.ledger.carrying import Carrying
from tests.simulation.ledger.rows import Cycle
from tests.simulation.operator import Operator
from tests.simulation.oracle import Truth, billed
from tests.simulation.run import quiet
from tests.simulation.story import TENANTS, write
from tests.simulation.stripe import Weather
from tests.simulation.timeline import T0_US
from tests.simulation.world import HOUR_S, World

HOUR_US = 3_600_000_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def _carried_and_restored(world: World) -> float:
    """Stripe is away until an invoice has closed; the backup is from just before that."""
    world.database.tables.cycle = Cycle(T0_US + HOUR_US, 24 * HOUR_US, 4 * HOUR_US, HOUR_US // 4)
    for number, tenant_id in enumerate(TENANTS):
        world.map_customer(tenant_id, f"cus_{number}", 0)
    world.writing = world.timeline.create_task(write(world, 1.0, 40))

    def becomes(weather: Weather) -> None:
        world.stripe.weather = weather

    def keep() -> None:
        world.later(1.9 * HOUR_S, partial(world.restore, world.database.backup()))

    world.later(0.2 * HOUR_S, partial(becomes, "refused"))
    world.later(4.6 * HOUR_S, keep)
    world.later(5.2 * HOUR_S, partial(becomes, "fine"))
    world.canaries(600.0, 9 * HOUR_S)
    return 10 * HOUR_S


def _too_much(seed: int) -> dict[tuple[str, str], int]:
    """Units by customer and meter that Stripe has beyond what was used, where nobody decides."""
    world = World(seed)
    world.run(_carried_and_restored)
    assert world.timeline.strikes["invoices_close: carried"], "nothing was carried before"
    beyond: Counter[tuple[str, str]] = Counter()
    for (customer, name, _), units in billed(world).items():
        beyond[customer, name] += units
    for (customer, name, _), units in Truth(world).amounts().items():
        beyond[customer, name] -= units
    return {of: units for of, units in beyond.items() if units > 0}


def test_what_a_lost_ledger_carried_waits_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operator, "carry_one", lambda *_given, **_named: None)
    assert not _too_much(3)


def test_that_is_what_the_look_at_adoptions_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operator, "carry_one", lambda *_given, **_named: None)
    monkeypatch.setattr(Carrying, "_may_be_carried", lambda *_: False)
    assert _too_much(3)
