"""Publishing that is paused and resumed: no fault, but amounts have to wait, and none be lost."""

from functools import partial
from typing import Final

from tests.simulation.rules import RULES
from tests.simulation.world import HOUR_S, World

LASTS_H: Final = (0.5, 2.0, 5.0)


def publishing_paused(world: World, busy_s: float) -> float:
    """Some pauses, of everything, a meter or a tenant, that may overlap."""
    rng, last_s = world.rng, busy_s
    for _ in range(rng.randrange(1, 4)):
        scope = rng.choice(("all", "meter", "tenant"))
        at_s, lasts_s = rng.random() * busy_s, rng.choice(LASTS_H) * HOUR_S
        world.later(at_s, partial(_pause, world, scope, lasts_s))
        last_s = max(last_s, at_s + lasts_s)
    return last_s


def _pause(world: World, scope: str, lasts_s: float) -> None:
    known = {"all": [""], "meter": list(RULES), "tenant": sorted({t for t, *_ in world.mapped})}
    if known[scope]:
        subject = world.rng.choice(known[scope])
        world.operator.pause(scope, subject)
        world.later(lasts_s, partial(world.operator.resume, scope, subject))


def each_paused(world: World, busy_s: float) -> float:
    """Each tenant is paused for a while, and each meter, after both have got other names."""

    def order(scope: str, begin: bool) -> None:
        subjects = RULES if scope == "meter" else sorted({t for t, *_ in world.mapped})
        for subject in subjects:
            (world.operator.pause if begin else world.operator.resume)(scope, subject)

    for scope, from_h, until_h in (("tenant", 1.2, 1.6), ("meter", 1.7, 2.5)):
        world.later(from_h * HOUR_S, partial(order, scope, begin=True))
        world.later(until_h * HOUR_S, partial(order, scope, begin=False))
    return busy_s + HOUR_S
