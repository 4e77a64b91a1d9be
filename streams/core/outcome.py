"""Outcomes: what one attempt to reach Stripe means for its meter event.

In: nothing; these are the words in which `publication` answers. Out: one union, `Outcome`, whose
members the caller takes apart with `match`.
"""

from dataclasses import dataclass
from typing import Literal

RefusedKind = Literal["data", "configuration", "too_old", "unknown"]
SystemicScope = Literal["credentials", "permission"]
Charge = Literal["never", "if_sink_up", "always"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Stripe accepted it; final once the summaries agree."""


@dataclass(frozen=True, slots=True)
class AlreadyRecorded:
    """Stripe holds the identifier, and an earlier attempt of ours explains why."""


@dataclass(frozen=True, slots=True)
class Retry:
    """This attempt recorded nothing for certain; try again."""

    next_key_generation: int
    after_ms: int | None = None
    """Stripe's own wish; None leaves it to the backoff."""
    slow_down: bool = False
    """Whether the pace of all lanes should drop."""
    charge: Charge = "never"
    """Whose failure it is; only one of this lane's own uses up an attempt."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """This meter event may be recorded; try again inside the fence with the same identifier."""

    next_key_generation: int
    charge: Charge = "if_sink_up"
    """Whose failure it is: of the meter event itself, or of a sink that may be down for all."""
    after_ms: int | None = None
    slow_down: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Stripe will never take this request, and no attempt of it was recorded."""

    code: str
    kind: RefusedKind


@dataclass(frozen=True, slots=True)
class Systemic:
    """Nobody's meter event gets through: stop sending for all, use up no attempt."""

    scope: SystemicScope
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Collision:
    """The identifier or key is known to Stripe for a reason that our books do not explain."""

    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Dated in Stripe's future: wait until then."""

    until_us: int
    """Microseconds since 1970 UTC."""


Outcome = Recorded | AlreadyRecorded | Retry | Ambiguous | Refused | Systemic | Collision | Hold
