"""Lanes: one (customer, event name) pair, in order, one request in flight.

In: a lane that the ledger lent to this publisher until a deadline, with one frozen request.
Out: the `Settlement` of that attempt, written in one ledger transaction.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

MeterEventState = Literal["pending", "recorded", "ambiguous", "dead", "superseded", "nothing"]
DeadKind = Literal["refused", "exhausted", "ambiguous"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A frozen request, lent to one publisher; its attempt row is already written.

    `key_generation` is n of the Idempotency-Key `identifier.g{n}`. `attempts_used` counts failures
    of this very meter event before this attempt. `first_attempt_at_us`, `lease_until_us` and
    `now_us` are the ledger's clock. `possibly_executed`: an earlier attempt may have reached
    Stripe's books, which no later answer but a success or a duplicate can undo.
    """

    lane_id: int
    meter_event_id: int
    attempt_id: int
    customer: str
    event_name: str
    value: str
    timestamp_s: int
    identifier: str
    payload_hash: str
    key_generation: int
    attempts_used: int
    previous_attempts: int
    first_attempt_at_us: int
    possibly_executed: bool
    now_us: int
    lease_until_us: int

    @property
    def idempotency_key(self) -> str:
        """Stripe's first layer; the identifier in it is how error reports are joined."""
        return f"{self.identifier}.g{self.key_generation}"


class LastAttempt(NamedTuple):
    """The last attempt of any lane, by number and the ledger's time when it began, microseconds.

    Both together name one attempt for ever: a ledger that was restored gives the number again.
    """

    attempt_id: int
    started_us: int


class Standing(NamedTuple):
    """What a ledger says of an attempt that a worker remembers."""

    stands: bool
    """It is there, or a person has adopted the ledger since; False: it went back."""
    last: LastAttempt | None
    """The last that the ledger has; None for none."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of one attempt, for the person who asks later."""

    outcome: str
    http_status: int | None = None
    code: str | None = None
    message: str | None = None
    request_id: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What one attempt did to its meter event.

    `retry_delay_ms` is None unless `state` is pending or ambiguous. `attempt_used` is False for
    failures that are not this meter event's own (sink down for all, credentials).
    """

    claim: Claim
    state: MeterEventState
    dead_kind: DeadKind | None
    key_generation: int
    possibly_executed: bool
    attempt_used: bool
    retry_delay_ms: int | None
    evidence: Evidence
