"""A plan → what is done to a running stack, and all of it undone again at the end."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from signal import SIGKILL, SIGTERM, Signals
from typing import Any, Final

import psycopg
import requests

from tests.drills.soak.crew import WORKERS, Crew
from tests.drills.soak.plan import CALM_S, KILLS, Plan, Strike
from tests.drills.soak.service import Service
from tests.support import witness
from tests.support.books import scattered
from tests.support.live import LiveStack
from tests.support.proxy import Proxy
from tests.support.waiting import until

PARTS: Final[Mapping[str, str]] = {
    "connect killed": "connect",
    "broker killed": "kafka",
    "postgres crashed": "postgres",
    "stripe killed": "stripe",
}
KILL_PAUSE_S: Final = 5.0
"""Between kills that make up for others: whoever was killed is at work again by then."""
LASTING: Final = frozenset({"outage", "401"})
"""These last until they are ended; the others strike so and so often."""
SPREAD: Final[Mapping[str, Mapping[str, Any]]] = {
    "refuse": {"probability": 1.0, "count": 1, "duration_ms": 6_000},
    "429": {"retry_after_s": 1, "count": 30},
    "stall": {"duration_ms": 12_000, "count": 2},
    "slow": {"delay_ms": 1_500, "count": 20},
    "reject": {"code": "archived_meter", "count": 2},
}
"""What a kind of fault is ordered with, where it is not the usual."""


class Storm:
    """Does what a plan says, for as long as it takes."""

    def __init__(self, stack: LiveStack, plan: Plan, service: Service, network: Proxy) -> None:
        """Starts the workers.

        Args:
            stack: without workers so far.
            plan: what to do.
            service: records meanwhile.
            network: between the workers and Stripe.
        """
        self.stack = stack
        self.plan = plan
        self.done: Counter[str] = Counter()
        self._service = service
        self._network = network
        self._began_s = time.monotonic()
        self._endings: list[tuple[float, Callable[[], None]]] = []
        self.crew = Crew(stack, network.url, lambda: self.elapsed_s, Random(plan.seed))
        self._parts_killed = self._held = 0
        self._ways = self._known_ways()
        while len(self.crew.places) < WORKERS:
            self.crew.more()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def kills(self) -> int:
        """Processes that were ended without a warning."""
        return self.crew.kills + self._parts_killed

    def run(self) -> None:
        """From the first strike to the outage in which every storm ends, and which lasts on."""
        for strike in self.plan.strikes:
            self._pass_until(strike.at_s)
            if self._struck(strike):
                self.done[strike.what] += 1
            elif strike.what in KILLS and self.crew.kill(Random(strike.seed)):
                self.done["worker killed"] += 1
        self._kill_the_rest()
        self._pass_until(self.plan.seconds - CALM_S)
        self._end_all()
        until("Stripe to be there for its outage", lambda: self._ordered(kind="outage"), 120)
        self._pass_until(max(self.plan.seconds, self.elapsed_s + CALM_S))
        until("the books to be readable", lambda: self._ready("postgres"), 120)

    def end(self) -> None:
        """Everything is well again, and all parts run; blocks until they do."""
        until("all parts to be back", self._all_back, 180)
        until("Stripe to be well again", self._cleared, 60)
        self.crew.calm()

    def keep(self) -> None:
        """Looks after the workers, as long as the stack has to run; to be called all the time."""
        self.crew.keep()

    def _kill_the_rest(self) -> None:
        """Of the planned kills some found nothing to kill, or a worker that did not come so far."""
        random = Random(self.plan.seed)
        while self.kills < self.plan.kills_min:
            self._pass_until(self.elapsed_s + KILL_PAUSE_S)
            if self.crew.kill(random):
                self.done["worker killed"] += 1

    def _end_all(self) -> None:
        """What lasts ends now."""
        endings, self._endings = self._endings, []
        for _, ending in endings:
            ending()

    def _pass_until(self, at_s: float) -> None:
        def due() -> bool:
            self.crew.keep()
            now_s = self.elapsed_s
            over = [ending for ends_s, ending in self._endings if ends_s <= now_s]
            self._endings = [each for each in self._endings if each[0] > now_s]
            for ending in over:
                ending()
            return now_s >= at_s

        until(f"second {at_s:.0f} of the storm", due, self.plan.seconds + 600)

    def _struck(self, strike: Strike) -> bool:
        """Whether there was something to strike."""
        random = Random(strike.seed)
        if strike.what in PARTS:
            killed = self._signalled(PARTS[strike.what], SIGKILL)
            self._parts_killed += killed
            return killed
        if strike.what.startswith("stripe "):
            return self._order(random, *strike.what.split()[1:])
        return self._ways[strike.what](random)

    def _known_ways(self) -> Mapping[str, Callable[[Random], bool]]:
        """How to do what is neither an order to Stripe nor the death of a part."""
        crew = self.crew
        return {
            "worker killed": crew.kill,
            "worker killed at a step": crew.kill_at_step,
            "worker killed, its disk lost": crew.kill_and_lose_disk,
            "worker stopped": crew.stop,
            "worker asleep": crew.sleep,
            "one worker more": lambda _: crew.more(),
            "one worker less": crew.less,
            "connect restarted": lambda _: self._signalled("connect", SIGTERM),
            "network cut": self._cut,
            "transaction held": self._hold,
            "recorded usage sent again": self._send_again,
        }

    def _signalled(self, part: str, number: Signals) -> bool:
        """Whether it ran, and has the signal."""
        if not self._ready(part):
            return False
        with contextlib.suppress(ProcessLookupError):  # it has just died of something else
            self.stack.parts.kill(part, number)
            return True
        return False

    def _ready(self, part: str) -> bool:
        facts = self.stack.facts
        return bool(facts["pids"][part] and facts["parts"][part]["state"] == "ready")

    def _all_back(self) -> bool:
        self.crew.keep()
        parts = self.stack.facts["parts"]
        return all(part["state"] in {"ready", "done"} for part in parts.values())

    def _order(self, random: Random, kind: str, *recorded: str) -> bool:
        fault: dict[str, Any] = {"kind": kind, "seed": random.randrange(1 << 31)}
        if kind in LASTING:
            self._later(random.uniform(3, 15), self._clear)
        else:
            fault |= {"count": random.randrange(2, 12), "probability": 0.4, **SPREAD.get(kind, {})}
        if recorded:
            fault["recorded"] = True
        return self._ordered(**fault)

    def _ordered(self, **fault: Any) -> bool:
        """Whether Stripe was there to be told."""
        try:
            self.stack.stand_in.arm(**fault)
        except requests.RequestException:
            return False
        return True

    def _cleared(self) -> bool:
        """Whether Stripe was there to be told."""
        try:
            self.stack.stand_in.clear_faults()
        except requests.RequestException:
            return False
        return True

    def _clear(self) -> None:
        if not self._cleared():
            witness.did("Stripe is away, and has forgotten its faults")

    def _cut(self, random: Random) -> bool:
        self._network.cut()
        self._later(random.uniform(2, 15), self._network.mend)
        return True

    def _hold(self, random: Random) -> bool:
        self._held += 1
        story = scattered(f"soak-held-{self._held}", 12, tenants=1, seed=random.randrange(1 << 31))
        uses = [use for use in story if use.fate == "once"]
        try:
            held = self._service.hold(uses)
        except psycopg.OperationalError:
            return False
        commit = random.random() < 0.7
        how = "committed" if commit else "rolled back"
        witness.did(f"a transaction with {len(uses)} uses is held open, to be {how}")
        self._later(random.uniform(3, 30), lambda: self._service.release(held, commit=commit))
        return True

    def _send_again(self, random: Random) -> bool:
        minutes = random.randrange(1, 4)
        text = "SELECT metering.reemit(now() - make_interval(mins => %s), now(), 'drill: soak')"
        try:
            with psycopg.connect(
                self.stack.facts["source_dsn"], autocommit=True, connect_timeout=5
            ) as ops:
                ops.execute(text, (minutes,))
        except psycopg.OperationalError:
            return False
        witness.did(f"what was recorded in the last {minutes} min is sent again")
        return True

    def _later(self, in_s: float, ending: Callable[[], None]) -> None:
        self._endings.append((self.elapsed_s + in_s, ending))
