"""The workers of a soak: there is always one, one that died comes back, whatever it died of."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Final

from streams.crash_points import PUBLISH_STEPS, STEPS
from tests.support.live import LiveStack, LiveWorker

WORKERS: Final = 2
WORKERS_MAX: Final = 3
BACK_S: Final = (0.2, 4.0)
"""How long whoever starts workers takes to notice that one is dead."""


@dataclass(slots=True)
class Place:
    """A worker's name and data directory, and the process that has it now."""

    name: str
    worker: LiveWorker | None = None
    back_at_s: float = 0.0
    awake_at_s: float | None = None
    """It is suspended until then."""

    @property
    def works(self) -> bool:
        return self.worker is not None and self.worker.alive and self.awake_at_s is None


@dataclass(slots=True)
class Crew:
    """All of them."""

    stack: LiveStack
    stripe_url: str
    elapsed_s: Callable[[], float]
    random: Random
    places: list[Place] = field(default_factory=list)
    kills: int = 0
    ended_themselves: int = 0

    def keep(self) -> None:
        """Starts who is due, wakes who is due; to be called all the time."""
        now_s = self.elapsed_s()
        for place in self.places:
            if place.awake_at_s is not None and place.awake_at_s <= now_s:
                self._wake(place)
            if place.worker is not None and not place.worker.alive:
                self._bury(place)
            if place.worker is None and place.back_at_s <= now_s:
                place.worker = self._start(place.name)

    def more(self) -> bool:
        """One more, if there is room."""
        if len(self.places) >= WORKERS_MAX:
            return False
        taken = {place.name for place in self.places}
        name = next(n for i in range(WORKERS_MAX) if (n := f"soak-{i}") not in taken)
        self.places.append(Place(name))
        self.keep()
        return True

    def less(self, random: Random) -> bool:
        """One less, in order, if others are there."""
        place = self._one(random)
        if place is None or len(self.places) == 1:
            return False
        self.places.remove(place)
        assert place.worker is not None
        place.worker.signal(SIGTERM)
        return True

    def kill(self, random: Random) -> bool:
        """SIGKILL to one of them."""
        return self._killed(random) is not None

    def kill_and_lose_disk(self, random: Random) -> bool:
        """SIGKILL to one of them, and its data directory is gone."""
        worker = self._killed(random)
        if worker is not None:
            shutil.rmtree(worker.data_dir)
        return worker is not None

    def kill_at_step(self, random: Random) -> bool:
        """Has one come back so that it kills itself at a step; it counts when it has."""
        place = self._one(random)
        if place is None:
            return False
        assert place.worker is not None
        place.worker.signal(SIGTERM)
        if not place.worker.ends_within(20):
            place.worker.kill()
        place.worker = self._start(
            place.name,
            crash_at=f"{random.choice(STEPS + PUBLISH_STEPS)}:{random.randrange(1, 4)}",
        )
        return True

    def stop(self, random: Random) -> bool:
        """SIGTERM to one of them; it comes back."""
        place = self._one(random)
        if place is None:
            return False
        assert place.worker is not None
        place.worker.signal(SIGTERM)
        return True

    def sleep(self, random: Random) -> bool:
        """Suspends one of them: shorter than the group's patience, or much longer."""
        place = self._one(random)
        if place is None:
            return False
        assert place.worker is not None
        place.worker.signal(SIGSTOP)
        place.awake_at_s = self.elapsed_s() + random.uniform(1, 20)
        return True

    def calm(self) -> None:
        """All are awake, and so many are left as there were at the beginning."""
        for place in self.places:
            if place.awake_at_s is not None:
                self._wake(place)
        while len(self.places) < WORKERS:
            self.more()
        self.keep()

    def _killed(self, random: Random) -> LiveWorker | None:
        place = self._one(random)
        if place is None:
            return None
        worker = place.worker
        assert worker is not None
        worker.kill()
        self._bury(place)
        return worker

    def _one(self, random: Random) -> Place | None:
        working = [place for place in self.places if place.works]
        return random.choice(working) if working else None

    def _start(self, name: str, crash_at: str = "") -> LiveWorker:
        return self.stack.start_worker(name, crash_at=crash_at, stripe_api_base=self.stripe_url)

    def _wake(self, place: Place) -> None:
        assert place.worker is not None
        place.worker.signal(SIGCONT)
        place.awake_at_s = None

    def _bury(self, place: Place) -> None:
        assert place.worker is not None
        code = place.worker.process.returncode
        if code == -SIGKILL:
            self.kills += 1
        elif code != 0:
            self.ended_themselves += 1
        place.worker, place.awake_at_s = None, None
        place.back_at_s = self.elapsed_s() + self.random.uniform(*BACK_S)
