"""What was seen of one attempt to reach Stripe: an answer, or proof or doubt that it was sent.

In: what the adapter saw on the wire. Out: one `Observation`, which `publication` judges. The three
kinds differ in what they prove: `NotSent` that Stripe never saw the request, `MaybeSent` nothing.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer that arrived whole."""

    status: int
    """HTTP status."""
    parsed: bool
    """Whether the body is an object of Stripe's: a meter event, or an error. A proxy's is not."""
    identifier: str | None = None
    """The identifier that a success echoes."""
    error_type: str | None = None
    """Stripe's `error.type`."""
    error_code: str | None = None
    """Stripe's `error.code`; a duplicate identifier has none."""
    error_message: str | None = None
    """Stripe's `error.message`."""
    should_retry: bool | None = None
    """Header `Stripe-Should-Retry`, kept as evidence."""
    replayed: bool = False
    """Header `Idempotent-Replayed`: this is the stored answer of an earlier attempt's key."""
    rate_limited_reason: str | None = None
    """Header `Stripe-Rate-Limited-Reason`: only the limiter, which stands before execution."""
    retry_after_ms: int | None = None
    """Header `Retry-After`, milliseconds."""
    request_id: str | None = None
    """Header `Request-Id`, for Stripe's support."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """Provably never sent: no connection was made, so not one byte left."""

    cause: str
    """Name of the exception that proves it."""


class KeptBack(StrEnum):
    """Causes of our own for not sending: they say nothing of whether Stripe answers."""

    LEASE = "the lease of the lane would not outlast a request"
    STOPPING = "this worker stops"
    SINK_DOWN = "the sink is down for all"


@dataclass(frozen=True, slots=True)
class MaybeSent:
    """No whole answer: Stripe may or may not have recorded the meter event."""

    cause: str
    """Name of the exception, or the rule, that ended the attempt."""


Observation = Answer | NotSent | MaybeSent


def cause_of(observation: Observation) -> str:
    """Why it is no success, in a word or two."""
    return f"HTTP {observation.status}" if isinstance(observation, Answer) else observation.cause


def is_refusal(observation: Observation) -> bool:
    """Whether the key itself is refused; a permission that it lacks is another thing."""
    return isinstance(observation, Answer) and observation.status == 401


def is_silence(observation: Observation) -> bool:
    """Whether a reading that came to this says that Stripe serves nobody here."""
    if isinstance(observation, Answer):
        return observation.status >= 500 or is_refusal(observation)
    return True


def in_words(observation: Observation) -> str:
    """What came back, as people are told it."""
    match observation:
        case Answer(status, error_message=str(message)):
            return f"Stripe answered {status}: {message}"
        case Answer(status):
            return f"Stripe answered {status}"
        case NotSent(cause):
            return f"Stripe was not reached ({cause})"
        case MaybeSent(cause):
            return f"Stripe gave no whole answer ({cause})"
        case _ as unreachable:
            assert_never(unreachable)


@dataclass(frozen=True, slots=True)
class History:
    """What the ledger knows of a meter event before the attempt that is being judged."""

    identifier: str
    """The identifier that was sent."""
    timestamp_s: int
    """The date that was sent, whole seconds since 1970 UTC."""
    key_generation: int
    """n of the attempt's `Idempotency-Key`."""
    possibly_executed: bool
    """An earlier attempt may have been recorded. Only a success or a duplicate ends this doubt."""
