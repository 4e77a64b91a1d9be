"""Others that are away, slow or wrong for a while."""

from functools import partial
from typing import Final

from tests.simulation.faults.deaths import struck_at
from tests.simulation.stripe import Weather
from tests.simulation.world import HOUR_S, World

SPELLS: Final[tuple[Weather, ...]] = (
    "refused", "swallowed", "answer_lost", "error", "error_kept", "error_after", "throttled",
    "unauthorized", "proxy",
)  # fmt: skip


def stripe_down(world: World, busy_s: float) -> float:
    """Spells of bad weather, each of one kind and for minutes to hours."""
    rng = world.rng
    last_s = busy_s

    def becomes(weather: Weather) -> None:
        world.stripe.weather = weather
        world.timeline.note("weather", weather)

    for _ in range(rng.randrange(1, 3)):
        at_s, lasts_s = rng.random() * busy_s, rng.choice((300.0, HOUR_S, 4 * HOUR_S))
        world.later(at_s, partial(becomes, rng.choice(SPELLS)))
        world.later(at_s + lasts_s, partial(becomes, "fine"))
        last_s = max(last_s, at_s + lasts_s)
    return last_s


def stripe_down_past_the_fence(world: World, busy_s: float) -> float:
    """Answers are lost, then Stripe is away for longer than it remembers an identifier."""
    rng = world.rng
    at_s = rng.random() * busy_s
    lost_s, lasts_s = rng.choice((300.0, HOUR_S)), rng.choice((22.0, 25.0, 30.0)) * HOUR_S
    kinds: tuple[Weather, ...] = ("refused", "swallowed", "error")
    weather = rng.choice(kinds)

    def becomes(weather: Weather) -> None:
        world.stripe.weather = weather
        world.timeline.note("weather", weather)

    world.later(at_s, partial(becomes, "answer_lost"))
    world.later(at_s + lost_s, partial(becomes, weather))
    world.later(at_s + lost_s + lasts_s, partial(becomes, "fine"))
    return at_s + lost_s + lasts_s


def stripe_sporadic(world: World, busy_s: float) -> float:
    """Single requests meet every kind of trouble."""
    world.stripe.was_sporadic = True
    world.stripe.sporadic = world.rng.choice((0.1, 0.3, 0.6))
    return busy_s + 2 * HOUR_S


def rejected_afterwards(world: World, busy_s: float) -> float:
    """Some of what Stripe accepts it refuses afterwards, and says so in reports."""
    world.stripe.rejecting = world.rng.choice((0.1, 0.3))
    struck_at(world, "report_noted")
    return busy_s


def ledger_away(world: World, busy_s: float) -> float:
    """The ledger does not answer for a while."""
    rng = world.rng
    for _ in range(rng.randrange(1, 3)):
        at_s, lasts_s = rng.random() * busy_s, rng.choice((20.0, 300.0, 2 * HOUR_S))
        world.later(at_s, lambda: setattr(world.database, "away", True))
        world.later(at_s + lasts_s, lambda: setattr(world.database, "away", False))
    return busy_s + 2 * HOUR_S


def ledger_away_as_rules_change(world: World, busy_s: float) -> float:
    """Nobody hears of a new rule before usage comes that it judges."""

    def becomes(away: bool) -> None:
        world.database.away = away

    world.later(10.0, partial(becomes, True))
    world.later(2.3 * HOUR_S, partial(becomes, False))
    return busy_s + HOUR_S


def ledger_answers_lost(world: World, busy_s: float) -> float:
    """Transactions commit, and nobody here hears of it."""
    world.answers_lost = world.rng.choice((0.02, 0.1, 0.3))
    return busy_s


def broker_away(world: World, busy_s: float) -> float:
    """No broker takes a record for a while."""
    rng = world.rng
    at_s, lasts_s = rng.random() * busy_s, rng.choice((5.0, 30.0, 600.0))
    world.later(at_s, lambda: setattr(world.broker, "away", True))
    world.later(at_s + lasts_s, lambda: setattr(world.broker, "away", False))
    return max(busy_s, at_s + lasts_s)
