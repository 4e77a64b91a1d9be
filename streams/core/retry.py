"""When to try again, and whether to try at all: backoff, breaker and pace.

In: how often something failed, what was answered, a time and a random number, all given by the
caller. Out: a delay, or the next state of a breaker or a token bucket. Nothing here reads a clock.
"""

from dataclasses import dataclass, replace
from typing import Literal

RETRY_AFTER_MS_MAX = 3_600_000
"""A `Retry-After` beyond an hour is taken as an hour: the fence of 23 hours must stay reachable."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential with full jitter: failures that began together do not return together."""

    base_ms: int = 500
    """Ceiling of the first delay."""
    cap_ms: int = 60_000
    """Ceiling of every delay."""

    def delay_ms(self, failures: int, uniform: float, retry_after_ms: int | None = None) -> int:
        """Milliseconds to wait after the given number of failures (1 or more).

        Args:
            failures: Failures so far, this one included.
            uniform: A random number in [0, 1).
            retry_after_ms: The other side's wish: it wins, spread by one base so that all those
                who were told the same do not return in the same instant.
        """
        if retry_after_ms is not None:
            return min(retry_after_ms, RETRY_AFTER_MS_MAX) + int(uniform * self.base_ms)
        # The exponent is bounded: 2**100000 is a number, but not one worth computing.
        ceiling = min(self.cap_ms, self.base_ms * 2 ** min(max(failures - 1, 0), 30))
        return int(uniform * ceiling)


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When the sink counts as down for all."""

    failures_max: int = 5
    """Failures in a row, over all lanes, that open the breaker."""
    open_ms: int = 1_000
    """How long the first opening lasts."""
    open_cap_ms: int = 30_000
    """How long an opening lasts at most."""
    probe_ms: int = 30_000
    """After this long without a result a probe counts as lost and another may be sent."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """Closed: all may send. Open: nobody. Half-open: one probe decides for all.

    A pure state machine; every method returns the next state. Times are milliseconds of one clock
    of the caller's choice.
    """

    policy: BreakerPolicy = BreakerPolicy()
    state: Literal["closed", "open", "half_open"] = "closed"
    failures: int = 0
    """Failures in a row."""
    openings: int = 0
    """Openings in a row without a success between them."""
    until_ms: int = 0
    """While open: when a probe may go. While half-open: when the probe counts as lost."""
    reason: str | None = None
    """Why it is not closed, for the operator."""

    def ask(self, now_ms: int) -> tuple["Breaker", bool]:
        """Whether one request may go now. A yes while not closed makes it the probe."""
        if self.state == "closed":
            return self, True
        if now_ms < self.until_ms:
            return self, False
        return replace(self, state="half_open", until_ms=now_ms + self.policy.probe_ms), True

    def unspent(self, now_ms: int) -> "Breaker":
        """The probe told nothing, or may not be sent: another may go at once."""
        if self.state != "half_open":
            return self
        return replace(self, state="open", until_ms=now_ms)

    def succeeded(self) -> "Breaker":
        """Some request was answered by the sink itself: it is up for all."""
        return Breaker(self.policy)

    def failed(self, now_ms: int, reason: str, uniform: float) -> "Breaker":
        """Some request failed in a way that may concern all; a probe's failure opens again."""
        failures = self.failures + 1
        if self.state == "closed" and failures < self.policy.failures_max:
            return replace(self, failures=failures)
        if self.state == "open":
            # Requests that were in flight when it opened say nothing new.
            return replace(self, failures=failures)
        return self.tripped(now_ms, reason, uniform)

    def tripped(
        self, now_ms: int, reason: str, uniform: float, retry_after_ms: int | None = None
    ) -> "Breaker":
        """Opens at once, for a failure that certainly concerns all (credentials)."""
        ceiling = min(self.policy.open_cap_ms, self.policy.open_ms * 2 ** min(self.openings, 30))
        # Half fixed, half random: an opening never ends at once, and workers do not probe together.
        wait_ms = ceiling // 2 + int(uniform * (ceiling // 2))
        if retry_after_ms is not None:
            wait_ms = max(wait_ms, min(retry_after_ms, RETRY_AFTER_MS_MAX))
        return replace(
            self,
            state="open",
            failures=self.failures + 1,
            openings=self.openings + 1,
            until_ms=now_ms + wait_ms,
            reason=reason,
        )


@dataclass(frozen=True, slots=True)
class Weather:
    """The last answers over all lanes: is a failure this lane's own, or does it rain on everybody?

    The breaker sees failures in a row. A sink that fails every other request never opens it, and
    in a backlog of thousands some meter event would fail again and again by chance alone.
    """

    answers: tuple[tuple[int, bool], ...] = ()
    """(lane, whether it failed), the oldest first."""
    answers_max: int = 64
    """So many are remembered."""

    def seen(self, lane: int, *, failed: bool) -> "Weather":
        """One more answer."""
        return replace(self, answers=(*self.answers, (lane, failed))[-self.answers_max :])

    def fair_beside(self, lane: int) -> bool:
        """Whether at most a tenth of what other lanes saw were failures; nothing seen is fair."""
        others = [failed for other, failed in self.answers if other != lane]
        return sum(others) * 10 <= len(others)


MICRO = 1_000_000
"""Millionths of a token in a token: a bucket counts in these, so that no float drifts."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket whose rate halves when the other side asks, and creeps back up.

    A pure state machine; times are microseconds of one clock of the caller's choice.
    """

    rate_per_s_max: int
    """Tokens per second when nobody complains."""
    burst: int
    """Most tokens that can be saved up."""
    rate_per_s: int
    """Tokens per second now."""
    micro_tokens: int
    """What is in the bucket, in millionths of a token."""
    updated_us: int
    """When it was last filled."""
    slowed_us: int
    """When the rate was last changed."""

    @classmethod
    def full(cls, rate_per_s: int, burst: int, now_us: int) -> "Bucket":
        """A full bucket.

        Raises:
            ValueError: The rate or the burst is below 1.
        """
        if rate_per_s < 1 or burst < 1:
            message = f"rate_per_s and burst must be at least 1, not {rate_per_s} and {burst}"
            raise ValueError(message)
        return cls(rate_per_s, burst, rate_per_s, burst * MICRO, now_us, now_us)

    def take(self, now_us: int) -> tuple["Bucket", int]:
        """Takes a token. Returns microseconds to wait: 0 means taken, else nothing was taken."""
        filled = self._filled(now_us)
        if filled.micro_tokens >= MICRO:
            return replace(filled, micro_tokens=filled.micro_tokens - MICRO), 0
        missing = MICRO - filled.micro_tokens
        return filled, -(-missing // filled.rate_per_s)

    def slower(self, now_us: int) -> "Bucket":
        """Halves the rate, at most once a second: one burst of refusals is one complaint."""
        filled = self._filled(now_us)
        if self.rate_per_s < self.rate_per_s_max and now_us - self.slowed_us < MICRO:
            return filled
        return replace(
            filled, rate_per_s=max(1, filled.rate_per_s // 2), micro_tokens=0, slowed_us=now_us
        )

    def _filled(self, now_us: int) -> "Bucket":
        # A clock that goes backwards adds nothing and takes nothing away.
        elapsed_us = max(0, now_us - self.updated_us)
        tokens = min(self.burst * MICRO, self.micro_tokens + elapsed_us * self.rate_per_s)
        # One twentieth of the full rate is won back each second without a complaint.
        seconds = max(0, now_us - self.slowed_us) // MICRO
        gained = seconds * max(1, self.rate_per_s_max // 20)
        return replace(
            self,
            micro_tokens=tokens,
            updated_us=max(self.updated_us, now_us),
            rate_per_s=min(self.rate_per_s_max, self.rate_per_s + gained),
            slowed_us=self.slowed_us + seconds * MICRO,
        )
