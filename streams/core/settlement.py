"""Hop 8: an outcome → what the ledger writes about the meter event, and when to try again.

In: the claim, what was seen, and how the sink is doing for everybody else. Out: one `Settlement`.
Also the question before the first byte: may this claim be sent at all (`may_send`)?
"""

from dataclasses import dataclass, field, replace
from typing import Final, Literal, assert_never

from streams.core.lane import Claim, DeadKind, Evidence, Settlement
from streams.core.observation import Answer, History, MaybeSent, NotSent, Observation
from streams.core.outcome import (
    AlreadyRecorded,
    Ambiguous,
    Charge,
    Collision,
    Hold,
    Outcome,
    Recorded,
    Refused,
    Retry,
    Systemic,
)
from streams.core.publication import classify
from streams.core.retry import Backoff

HOUR_US: Final = 3_600 * 1_000_000
DAY_US: Final = 24 * HOUR_US
MESSAGE_CHARS_MAX: Final = 500
"""Stripe's own words are evidence, but a page of them is not."""


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """The fences. Stripe's own bounds are wider; the difference is for clocks and slow requests."""

    ambiguous_us_max: int = 23 * HOUR_US
    """Stripe remembers an identifier for at least 24 hours; doubt is never re-sent after this."""
    past_us_max: int = 34 * DAY_US
    """Stripe takes dates up to 35 days back."""
    future_us_max: int = 4 * 60 * 1_000_000
    """Stripe takes dates up to 5 minutes ahead."""
    attempts_max: int = 12
    """Failures of a meter event's own after which it is dead-lettered."""
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True, slots=True)
class Send:
    """It may be sent."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It is dated in the future: wait."""

    until_us: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """In doubt for too long: only the summaries can tell now."""


@dataclass(frozen=True, slots=True)
class TooOld:
    """Dated so far back that Stripe would refuse it: the meter's carry policy decides."""


Permission = Send | Wait | Fenced | TooOld


def history_of(claim: Claim) -> History:
    """What `classify` needs to know of the claim."""
    return History(
        claim.identifier, claim.timestamp_s, claim.key_generation, claim.possibly_executed
    )


def may_send(claim: Claim, policy: PublishPolicy, now_us: int) -> Permission:
    """Asked right before the first byte, with the ledger's time.

    The fence counts from the first attempt, the earliest instant at which Stripe can have met the
    identifier, and only binds while there is doubt: what was provably never sent has no fence.
    """
    fence_us = claim.first_attempt_at_us + policy.ambiguous_us_max
    if claim.possibly_executed and now_us >= fence_us:
        return Fenced()
    timestamp_us = claim.timestamp_s * 1_000_000
    if timestamp_us < now_us - policy.past_us_max:
        return TooOld()
    if timestamp_us > now_us + policy.future_us_max:
        return Wait(timestamp_us)
    return Send()


def settle_unsent(
    claim: Claim, permission: Wait | Fenced | TooOld, policy: PublishPolicy
) -> Settlement:
    """The settlement of a claim that was not sent because `may_send` said so."""
    match permission:
        case Wait(until_us):
            evidence = Evidence("held", cause="dated in the future")
            delay_ms = max(1, (until_us - claim.now_us) // 1_000)
            return _waiting(claim, evidence, delay_ms, claim.key_generation)
        case Fenced():
            hours = policy.ambiguous_us_max // HOUR_US
            evidence = Evidence("fenced", cause=f"in doubt for more than {hours} hours")
            return _dead(claim, "ambiguous", evidence, claim.key_generation)
        case TooOld():
            days = policy.past_us_max // DAY_US
            evidence = Evidence("too_old", cause=f"dated more than {days} days ago")
            kind: DeadKind = "ambiguous" if claim.possibly_executed else "refused"
            return _dead(claim, kind, evidence, claim.key_generation)
        case _:
            assert_never(permission)


def settle(
    claim: Claim, observation: Observation, policy: PublishPolicy, uniform: float, *, sink_up: bool
) -> Settlement:
    """What one attempt did.

    Args:
        claim: The claim that was sent.
        observation: What was seen.
        policy: Fences and backoff.
        uniform: A random number in [0, 1).
        sink_up: Whether the sink answers others: a timeout while it is down for all is not this
            meter event's own failure and uses up nothing.
    """
    outcome = classify(observation, history_of(claim))
    evidence = _evidence(observation, outcome)
    match outcome:
        case Recorded() | AlreadyRecorded():
            return _settled(claim, evidence)
        case Refused():
            return _dead(claim, "refused", evidence, claim.key_generation + 1)
        case Collision():
            return _dead(claim, "ambiguous", evidence, claim.key_generation)
        case Retry():
            return _retried(claim, outcome, policy, evidence, uniform, sink_up=sink_up)
        case Systemic():
            delay_ms = policy.backoff.delay_ms(
                claim.previous_attempts + 1, uniform, outcome.retry_after_ms
            )
            return _waiting(claim, evidence, delay_ms, claim.key_generation)
        case Hold(until_us):
            # Stripe's clock said "future": even if ours disagrees, never ask again at once.
            waited_ms = policy.backoff.delay_ms(claim.previous_attempts + 1, uniform)
            delay_ms = max((until_us - claim.now_us) // 1_000, waited_ms)
            return _waiting(claim, evidence, delay_ms, claim.key_generation + 1)
        case Ambiguous():
            delay_ms = policy.backoff.delay_ms(
                claim.previous_attempts + 1, uniform, outcome.after_ms
            )
            return _ambiguous(claim, outcome, policy, evidence, delay_ms, sink_up=sink_up)
        case _:
            assert_never(outcome)


def health(observation: Observation) -> Literal["up", "down", "neutral"]:
    """What an attempt says about the sink for everybody: feeds the breaker.

    Only an answer of Stripe's own below 500 proves that it works; a limiter's or a lock's refusal
    proves neither.
    """
    match observation:
        case NotSent() | MaybeSent():
            return "down"
        case Answer(status=status, parsed=parsed):
            if status in {401, 403, 409, 429}:
                return "neutral"
            return "up" if parsed and status < 500 else "down"
        case _:
            assert_never(observation)


def _charged(charge: Charge, *, sink_up: bool) -> bool:
    return charge == "always" or (charge == "if_sink_up" and sink_up)


def _retried(
    claim: Claim,
    outcome: Retry,
    policy: PublishPolicy,
    evidence: Evidence,
    uniform: float,
    *,
    sink_up: bool,
) -> Settlement:
    """Nothing was recorded by this attempt; a failure of its own lane uses up an attempt."""
    key = outcome.next_key_generation
    delay_ms = policy.backoff.delay_ms(claim.previous_attempts + 1, uniform, outcome.after_ms)
    if not _charged(outcome.charge, sink_up=sink_up):
        return _waiting(claim, evidence, delay_ms, key)
    if claim.attempts_used + 1 < policy.attempts_max:
        return replace(_waiting(claim, evidence, delay_ms, key), attempt_used=True)
    kind: DeadKind = "ambiguous" if claim.possibly_executed else "exhausted"
    return replace(_dead(claim, kind, evidence, key), attempt_used=True)


def _ambiguous(
    claim: Claim,
    outcome: Ambiguous,
    policy: PublishPolicy,
    evidence: Evidence,
    delay_ms: int,
    *,
    sink_up: bool,
) -> Settlement:
    used = _charged(outcome.charge, sink_up=sink_up)
    exhausted = used and claim.attempts_used + 1 >= policy.attempts_max
    return Settlement(
        claim=claim,
        state="dead" if exhausted else "ambiguous",
        dead_kind="ambiguous" if exhausted else None,
        key_generation=outcome.next_key_generation,
        possibly_executed=True,
        attempt_used=used,
        retry_delay_ms=None if exhausted else delay_ms,
        evidence=evidence,
    )


def _settled(claim: Claim, evidence: Evidence) -> Settlement:
    return Settlement(
        claim=claim,
        state="recorded",
        dead_kind=None,
        key_generation=claim.key_generation,
        possibly_executed=True,
        attempt_used=False,
        retry_delay_ms=None,
        evidence=evidence,
    )


def _dead(claim: Claim, kind: DeadKind, evidence: Evidence, key_generation: int) -> Settlement:
    return Settlement(
        claim=claim,
        state="dead",
        dead_kind=kind,
        key_generation=key_generation,
        possibly_executed=kind == "ambiguous",
        attempt_used=kind == "refused",
        retry_delay_ms=None,
        evidence=evidence,
    )


def _waiting(claim: Claim, evidence: Evidence, delay_ms: int, key_generation: int) -> Settlement:
    """Nothing was recorded by this attempt; an older doubt stays."""
    return Settlement(
        claim=claim,
        state="ambiguous" if claim.possibly_executed else "pending",
        dead_kind=None,
        key_generation=key_generation,
        possibly_executed=claim.possibly_executed,
        attempt_used=False,
        retry_delay_ms=delay_ms,
        evidence=evidence,
    )


def _evidence(observation: Observation, outcome: Outcome) -> Evidence:
    name = type(outcome).__name__
    match observation:
        case NotSent(cause) | MaybeSent(cause):
            return Evidence(name, cause=cause)
        case Answer():
            message = observation.error_message
            return Evidence(
                outcome=name,
                http_status=observation.status,
                code=_code(observation, outcome),
                message=None if message is None else message[:MESSAGE_CHARS_MAX],
                request_id=observation.request_id,
            )
        case _:
            assert_never(observation)


def _code(answer: Answer, outcome: Outcome) -> str | None:
    match outcome:
        case Refused(code) | Collision(code):
            return code
        case _:
            return answer.error_code or answer.rate_limited_reason
