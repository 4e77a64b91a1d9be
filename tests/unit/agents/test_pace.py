"""Tokens on told time: first come, first served, at the whole rate, and one wakes for each."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.agents.pace import WAIT_S_MIN, Pace
from streams.core.retry import MICRO, Bucket
from tests.unit.agents.told_time import ToldTime

SLACK_US = int(WAIT_S_MIN * MICRO) + 1


@dataclass(frozen=True)
class Asker:
    """Asks `gap_us` after the one before, and gives up after `patience_us`, if ever."""

    gap_us: int
    patience_us: int | None = None


@dataclass
class Queue:
    """A line in front of one pace, on time of its own."""

    rate_per_s: int
    now_s: float = 1_000.0
    asked_us: list[int] = field(default_factory=list)
    served: list[tuple[int, int]] = field(default_factory=list)
    """(who, when)."""
    left: set[int] = field(default_factory=set)
    timers: int = 0

    def elapsed_s(self) -> float:
        return self.now_s

    def now_us(self) -> int:
        return round(self.now_s * MICRO)

    def advance(self, gap_us: int) -> None:
        self.now_s += gap_us / MICRO

    def run(self, askers: Sequence[Asker], complaints_us: Sequence[int] = ()) -> None:
        loop = ToldTime(self)
        try:
            loop.run_until_complete(self._all(askers, complaints_us))
            # Neither the arrivals nor those who lose patience count: only who waits for a token.
            patient = sum(one.patience_us is not None for one in askers)
            arrivals = sum(one.gap_us > 0 for one in askers)
            self.timers = loop.timers - patient - arrivals - len(complaints_us)
        finally:
            loop.close()

    async def _all(self, askers: Sequence[Asker], complaints_us: Sequence[int]) -> None:
        pace = Pace(self, self.rate_per_s)
        loop = asyncio.get_running_loop()
        for gap_us in complaints_us:
            loop.call_later(gap_us / MICRO, pace.slower)
        tasks = []
        for number, one in enumerate(askers):
            if one.gap_us:
                await asyncio.sleep(one.gap_us / MICRO)
            self.asked_us.append(self.now_us())
            tasks.append(asyncio.create_task(self._one(pace, number)))
            await asyncio.sleep(0)
            if one.patience_us is not None:
                loop.call_later(one.patience_us / MICRO, tasks[-1].cancel)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, pace: Pace, number: int) -> None:
        try:
            await pace.turn()
        except asyncio.CancelledError:
            self.left.add(number)
            raise
        self.served.append((number, self.now_us()))


def best_us(rate_per_s: int, asked_us: Sequence[int]) -> list[int]:
    """When each could be served at the earliest, by the bucket alone."""
    now_us = 1_000 * MICRO
    bucket = Bucket.full(rate_per_s, max(1, rate_per_s // 4), now_us)
    served = []
    for at_us in asked_us:
        now_us = max(now_us, at_us)
        bucket, wait_us = bucket.take(now_us)
        while wait_us:
            now_us += wait_us
            bucket, wait_us = bucket.take(now_us)
        served.append(now_us)
    return served


RATES = st.sampled_from([1, 3, 7, 100, 500, 999, 5_000])
GAPS_US = st.sampled_from([0, 0, 0, 100, 1_700, 40_000, 2 * MICRO])
PATIENCE_US = st.none() | st.sampled_from([0, 900, 30_000, 3 * MICRO])
CROWD = [Asker(0)] * 300


@settings(deadline=None)
@given(rate_per_s=RATES, askers=st.lists(st.builds(Asker, GAPS_US), max_size=80))
@example(rate_per_s=500, askers=CROWD)
@example(rate_per_s=5_000, askers=CROWD * 5)
def test_tokens_are_served_in_order_and_as_soon_as_they_are_there(
    rate_per_s: int, askers: list[Asker]
) -> None:
    queue = Queue(rate_per_s)
    queue.run(askers)
    assert [who for who, _ in queue.served] == list(range(len(askers)))
    best = best_us(rate_per_s, queue.asked_us)
    for (who, at_us), soonest_us in zip(queue.served, best, strict=True):
        # A bucket of one token loses the microseconds that its taker is late; others catch up.
        assert -2 <= at_us - soonest_us <= SLACK_US + 2 * who


@settings(deadline=None)
@given(rate_per_s=RATES, askers=st.lists(st.builds(Asker, GAPS_US), max_size=80))
@example(rate_per_s=500, askers=CROWD)
def test_a_token_wakes_one_however_many_wait(rate_per_s: int, askers: list[Asker]) -> None:
    queue = Queue(rate_per_s)
    queue.run(askers)
    # Now and then a clock of floats is a microsecond early, and the first in line looks again.
    assert queue.timers <= 2 * len(askers)


@settings(deadline=None)
@given(
    rate_per_s=RATES,
    askers=st.lists(st.builds(Asker, GAPS_US, PATIENCE_US), max_size=60),
    complaints_us=st.lists(st.integers(0, 3 * MICRO), max_size=3),
)
def test_whoever_gives_up_holds_up_nobody_and_nobody_is_passed(
    rate_per_s: int, askers: list[Asker], complaints_us: list[int]
) -> None:
    queue = Queue(rate_per_s)
    queue.run(askers, complaints_us)
    served = [who for who, _ in queue.served]
    assert served == sorted(served)
    assert set(served) | queue.left == set(range(len(askers)))
    assert all(askers[who].patience_us is not None for who in queue.left)
    burst = max(1, rate_per_s // 4)
    for count, (_, at_us) in enumerate(queue.served, 1):
        assert count <= burst + (at_us - 1_000 * MICRO) * rate_per_s / MICRO + 0.01


def test_a_complaint_slows_those_who_wait_already() -> None:
    queue = Queue(100)
    queue.run([Asker(0)] * 75, complaints_us=[10_000])
    # 25 at once; one more before the complaint; then 50 a second in place of 100.
    assert queue.served[-1][1] - 1_000 * MICRO > 900_000
