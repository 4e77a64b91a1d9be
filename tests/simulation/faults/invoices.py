"""Billing periods that end, with invoices that close while something is still on its way."""

from functools import partial
from typing import Final

from tests.simulation.faults.deaths import struck_at
from tests.simulation.ledger.rows import Cycle
from tests.simulation.stripe import Weather
from tests.simulation.timeline import T0_US
from tests.simulation.world import HOUR_S, World

HOUR_US: Final = 3_600_000_000
GRACE_H: Final = 4
"""The least that the meters can live with: three hours of skew, and a margin."""
MARGIN_US: Final = HOUR_US // 4
AFTER_S: Final = 2 * HOUR_S


def invoices_close(world: World, busy_s: float) -> float:
    """A period ends while usage is written; in most seeds its last amounts come too late.

    Because Stripe is away when the invoice is closed, or because a person corrects it afterwards.
    """
    rng = world.rng
    # At a half hour one window belongs to two periods.
    end_s = rng.choice((1.0, 1.5, 2.0, 3.5)) * HOUR_S
    closed_s = end_s + GRACE_H * HOUR_S
    anchor_us = T0_US + round(end_s * 1_000_000)
    world.database.tables.cycle = Cycle(anchor_us, 24 * HOUR_US, GRACE_H * HOUR_US, MARGIN_US)

    def becomes(weather: Weather) -> None:
        world.stripe.weather = weather
        world.timeline.note("weather", weather)

    if rng.random() < 0.7:
        kinds: tuple[Weather, ...] = ("refused", "swallowed", "error", "unauthorized")
        begins_s = end_s + (rng.random() - 0.5) * HOUR_S
        if rng.random() < 0.5:
            world.later(begins_s - HOUR_S / 4, partial(becomes, "answer_lost"))
        world.later(begins_s, partial(becomes, rng.choice(kinds)))
        world.later(closed_s + AFTER_S / 2, partial(becomes, "fine"))
    world.later(end_s, partial(struck_at, world, "invoices_closed"))
    for _ in range(2):
        world.later(closed_s + rng.random() * AFTER_S, world.operator.finance.correct)
    return max(busy_s, closed_s + AFTER_S)
