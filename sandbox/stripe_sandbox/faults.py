"""Faults on order: which requests go wrong, how, and how often.

In: fault specifications through the control API, and each request. Out: the fault that strikes it,
if any. Where it strikes (before the execution, around it, after it) is part of its kind.
"""

from collections.abc import Sequence
from random import Random
from typing import Final, Literal

import msgspec

Kind = Literal[
    "outage",
    "refuse",
    "http_500",
    "http_500_cached",
    "http_502_html",
    "429",
    "lock_timeout",
    "401",
    "drop_before",
    "drop_after",
    "truncate",
    "stall",
    "slow",
    "reject",
]

MEANINGS: Final[dict[str, str]] = {
    "outage": "nothing is executed: connections break, or 503 as JSON or HTML, by turns",
    "refuse": "the port is closed for `duration_ms`; connections that are open are cut",
    "http_500": "500 before execution; not recorded unless `recorded`; the key stays free",
    "http_500_cached": "500 that the key keeps; recorded if `recorded`",
    "http_502_html": "a proxy's 502 in HTML; not recorded unless `recorded`",
    "429": "the limiter's refusal with `reason` (null: no reason header), never stored",
    "lock_timeout": "429 from inside the execution, without the reason header, kept by the key",
    "401": "the API key is refused",
    "drop_before": "the connection breaks before anything is executed",
    "drop_after": "recorded, and the connection breaks instead of an answer",
    "truncate": "recorded, and the body ends in the middle",
    "stall": "recorded, half the body, then nothing for `duration_ms`",
    "reject": "accepted, and refused afterwards with `code`: never counted, told in a report",
    "slow": "executed and answered after `delay_ms`, in flight all the while",
}


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests a fault can strike; a field that is not given matches all."""

    customer: str | None = None
    event_name: str | None = None
    path: str | None = None
    """Start of the path; meter events only, unless given."""


class FaultSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault as ordered."""

    kind: Kind
    match: Match = Match()
    count: int | None = None
    """Strikes so many times; until cleared, if not given."""
    probability: float = 1.0
    seed: int | None = None
    """Seed of this fault's own chance; the stand-in's, if not given."""
    delay_ms: int = 2_000
    duration_ms: int | None = None
    recorded: bool = False
    reason: str | None = "global-rate"
    retry_after_s: int | None = None
    code: str = "meter_event_invalid_value"


class ArmedFault:
    """A fault that waits for requests."""

    def __init__(self, identity: int, spec: FaultSpec, seed: int) -> None:
        self.identity = identity
        self.spec = spec
        self.struck = 0
        chosen = seed + identity if spec.seed is None else spec.seed
        self._random = Random(chosen)  # noqa: S311 - repeatable faults, not secrets

    @property
    def spent(self) -> bool:
        """Whether it has struck as often as ordered."""
        return self.spec.count is not None and self.struck >= self.spec.count

    def strikes(self, path: str, customer: str | None, event_name: str | None) -> bool:
        """Whether it strikes this request; counts if so."""
        if self.spent or not self._matches(path, customer, event_name):
            return False
        if self._random.random() >= self.spec.probability:
            return False
        self.struck += 1
        return True

    def turn(self, choices: Sequence[str]) -> str:
        """One of several ways to strike, by turns."""
        return choices[(self.struck - 1) % len(choices)]

    def _matches(self, path: str, customer: str | None, event_name: str | None) -> bool:
        match = self.spec.match
        everywhere = "/" if self.spec.kind in {"outage", "401"} else "/v1/billing/meter_events"
        return (
            path.startswith(match.path or everywhere)
            and match.customer in {None, customer}
            and match.event_name in {None, event_name}
        )


class Faults:
    """All faults that are armed, oldest first."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._next = 1
        self.armed: list[ArmedFault] = []

    def arm(self, spec: FaultSpec) -> ArmedFault:
        """Arms a fault."""
        fault = ArmedFault(self._next, spec, self._seed)
        self._next += 1
        self.armed.append(fault)
        return fault

    def clear(self, identity: int | None = None) -> None:
        """Disarms one fault, or all."""
        self.armed = [
            fault for fault in self.armed if identity is not None and fault.identity != identity
        ]

    def strike(self, path: str, form: dict[str, str]) -> ArmedFault | None:
        """The first armed fault that strikes a request."""
        customer = form.get("payload[stripe_customer_id]")
        event_name = form.get("event_name")
        for fault in self.armed:
            if fault.strikes(path, customer, event_name):
                return fault
        return None
