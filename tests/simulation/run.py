"""One seed after the other: what was found, how long it took, and what replays it."""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

import structlog

from streams.agents import overdue
from tests.simulation import disk
from tests.simulation.checks import violations
from tests.simulation.oracle import Violation
from tests.simulation.rules import verdict_of
from tests.simulation.story import brief, story
from tests.simulation.strikes import missing
from tests.simulation.summary import Summary
from tests.simulation.timeline import StalledError
from tests.simulation.turns import sleep
from tests.simulation.world import World

_CRITICAL: Final = 50
INVOICES_S: Final = 600.0
"""Between two looks at invoices: in vain nearly always, and still far below their margin."""
_COLLECT_EVERY: Final = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """One seed's end."""

    seed: int
    history: str
    hours: float
    faults: tuple[str, ...]
    forced: tuple[str, ...]
    violations: tuple[Violation, ...]
    notes: tuple[str, ...] = ()
    brief: bool = False
    strikes: Mapping[str, int] = field(default_factory=dict)
    """How often each fault has met something, and each kind of usage was recorded."""

    @property
    def command(self) -> str:
        """What replays it."""
        forced = f" --forced {','.join(self.forced)}" if self.forced else ""
        short = " --brief" if self.brief else ""
        return f".venv/bin/python -m tests.simulation --seed {self.seed}{forced}{short}"


@dataclass
class Tally:
    """Many seeds' end."""

    seeds: int = 0
    hours: float = 0.0
    failed: list[Outcome] = field(default_factory=list)
    strikes: Counter[str] = field(default_factory=Counter)
    began_s: float = field(default_factory=time.perf_counter)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.hours += outcome.hours
        self.strikes.update(outcome.strikes)
        if outcome.violations:
            self.failed.append(outcome)

    @property
    def missing(self) -> tuple[str, ...]:
        """What never happened in seeds that were enough for it."""
        return missing(self.strikes, self.seeds)

    @property
    def violations(self) -> int:
        return sum(len(one.violations) for one in self.failed)

    @property
    def seeds_per_s(self) -> float:
        return self.seeds / (time.perf_counter() - self.began_s)

    def line(self) -> str:
        """For people."""
        return (
            f"{self.seeds} seeds, {self.hours:.0f} simulated hours, "
            f"{self.violations} violations, {self.seeds_per_s:.1f} seeds/s"
        )

    def document(self) -> Summary:
        """For the summary."""
        return {
            "seeds": self.seeds,
            "hours": round(self.hours, 1),
            "violations": self.violations,
            "seeds_per_s": round(self.seeds_per_s, 1),
            "strikes": dict(sorted(self.strikes.items())),
        }


def _drop(*_: Any) -> Any:
    raise structlog.DropEvent


@contextmanager
def quiet() -> Iterator[None]:
    """Modelled disks, no log lines, and no collector that runs when it likes."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(_CRITICAL), processors=[_drop]
    )
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with (
            disk.modelled(),
            patch.object(asyncio, "sleep", sleep),
            patch.object(overdue, "PAUSE_S", INVOICES_S),
        ):
            yield
    finally:
        gc.enable()
        gc.unfreeze()
        structlog.configure(**before)


def run_seed(
    seed: int, forced: Sequence[str] = (), *, keep: bool = False, short: bool = False
) -> Outcome:
    """Lives through a seed, or its brief story; call it inside `quiet`."""
    world = World(seed, forced, keep=keep)
    stalled: list[Violation] = []
    try:
        world.run(brief if short else story)
    except StalledError:
        stalled.append(Violation("stuck", "everybody waits for somebody else"))
    outcome = Outcome(
        seed,
        world.timeline.history(),
        world.timeline.now_s / 3_600,
        tuple(world.faults),
        tuple(forced),
        (*stalled, *violations(world)),
        tuple(world.timeline.kept or ()),
        short,
        world.timeline.strikes
        + Counter(f"usage: {verdict_of(row)}" for row in world.service.committed),
    )
    if seed % _COLLECT_EVERY == 0:
        gc.collect()
    return outcome
