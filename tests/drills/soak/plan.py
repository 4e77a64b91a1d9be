"""A seed and a length → what is done to the stack, and when.

Pure: the same seed gives the same plan. What comes of it is up to the machine as well, so a plan
that failed once need not fail again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

USES_PER_MINUTE: Final = 1_800
KILLS_PER_MINUTE: Final = 5
OTHERS_PER_MINUTE: Final = 6
EVENTS_MIN_PER_MINUTE: Final = 50_000 / 30
"""Some of the uses are rolled back, and are no events."""
KILLS_MIN_PER_MINUTE: Final = 100 / 30
"""Of the planned ones some find nothing that they could kill."""
CALM_S: Final = 8.0
"""At both ends: for the first usage, and for the outage that the end of every storm is."""

KILLS: Final[Mapping[str, int]] = {
    "worker killed": 16,
    "worker killed at a step": 8,
    "worker killed, its disk lost": 5,
    "connect killed": 4,
    "broker killed": 3,
    "stripe killed": 3,
    "postgres crashed": 2,
}
"""What ends a process without a warning, and how often it is chosen beside the others."""

OTHERS: Final[Mapping[str, int]] = {
    "worker stopped": 6,
    "worker asleep": 6,
    "one worker more": 5,
    "one worker less": 3,
    "connect restarted": 2,
    "network cut": 5,
    "transaction held": 6,
    "recorded usage sent again": 3,
    "stripe outage": 4,
    "stripe refuse": 3,
    "stripe http_500": 3,
    "stripe http_500 recorded": 3,
    "stripe http_500_cached": 2,
    "stripe http_500_cached recorded": 2,
    "stripe http_502_html": 2,
    "stripe 429": 3,
    "stripe lock_timeout": 2,
    "stripe 401": 2,
    "stripe drop_before": 3,
    "stripe drop_after": 4,
    "stripe truncate": 3,
    "stripe stall": 2,
    "stripe slow": 3,
    "stripe reject": 2,
}


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault."""

    at_s: float
    what: str
    seed: int
    """Of whatever the fault itself chooses."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole soak."""

    seed: int
    minutes: float
    strikes: tuple[Strike, ...]

    @property
    def seconds(self) -> float:
        return self.minutes * 60

    @property
    def uses(self) -> int:
        return math.ceil(USES_PER_MINUTE * self.minutes)

    @property
    def events_min(self) -> int:
        """Fewer would be no such soak."""
        return math.ceil(EVENTS_MIN_PER_MINUTE * self.minutes)

    @property
    def kills_min(self) -> int:
        """Fewer would be no such soak."""
        return math.ceil(KILLS_MIN_PER_MINUTE * self.minutes)

    @property
    def replay(self) -> str:
        """The command that runs it again."""
        return f"tailrace drill run soak --minutes {self.minutes:g} --seed {self.seed}"


def planned(seed: int, minutes: float) -> Plan:
    """The plan of a seed."""
    random = Random(seed)
    strikes: list[Strike] = []
    for table, per_minute in ((KILLS, KILLS_PER_MINUTE), (OTHERS, OTHERS_PER_MINUTE)):
        chosen = random.choices(
            list(table), weights=list(table.values()), k=math.ceil(per_minute * minutes)
        )
        for what in chosen:
            at_s = random.uniform(CALM_S, minutes * 60 - CALM_S)
            strikes.append(Strike(at_s, what, random.randrange(1 << 32)))
    strikes.sort(key=lambda strike: strike.at_s)
    return Plan(seed, minutes, tuple(strikes))
