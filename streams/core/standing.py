"""How everything stands: the figures that `status`, console and metrics share, as one value.

In: the document that they were read into. Out: the part of it that remarks are made of.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from streams.core.capture import Capture


class Waiting(msgspec.Struct, frozen=True):
    """What is not settled yet."""

    oldest_request_age_s: float | None = None
    """Of the oldest request that is pending or in doubt."""
    oldest_doubt_age_s: float | None = None
    """Since the first attempt of the oldest request that Stripe may have: the fence counts it."""
    idle_s: float | None = None
    """For how long something could have been sent and nobody has sent anything."""
    deadline_in_s: float | None = None
    """Until the first billing deadline of what waits; what missed its own is not in it."""
    levels_held: int = 0
    entries_unmapped: int = 0
    tenants_unmapped: int = 0
    entries_overdue: int = 0
    lanes_paused: int = 0
    proposals_open: int = 0
    cells_to_compare: int = 0


class Unmapped(msgspec.Struct, frozen=True):
    """A tenant whose usage waits for a customer."""

    tenant_id: str
    units: str


class Sink(msgspec.Struct, frozen=True):
    """Stripe, by the last attempts of all workers."""

    failures: int = 0
    """Attempts that failed since it last answered, as if it were down for all."""
    failing_s: float | None = None
    """Since the first of them."""
    refused: bool = False
    """Whether it refused the key last."""
    cause: str | None = None
    """Of the last failure."""


class Parked(msgspec.Struct, frozen=True):
    """Open items of one kind, reason, cause and meter."""

    kind: str
    """`review` or `dead`."""
    reason: str
    count: int
    cause: str | None = None
    """What Stripe refused a request with, or the path of what a record broke."""
    by_code: bool = False
    """Whether the cause is the code of attempts, by which they can be selected."""
    outcome: str | None = None
    """How the last attempt of a request ended."""
    rule: str | None = None
    """The rule that a record broke; one of them where there are several."""
    rules: int = 0
    """How many rules were broken by them."""
    metric: str | None = None
    """None where they are of several, or of none that is known."""


class Finding(msgspec.Struct, frozen=True):
    """Contradictions of one kind that nobody has cleared."""

    kind: str
    count: int


class WrongMeter(msgspec.Struct, frozen=True):
    """A meter at Stripe by which something else would be billed than was used, or nothing."""

    event_name: str
    kind: str
    """As `streams.core.live_meter` calls it; other releases may know more."""
    rule: str


class Halt(msgspec.Struct, frozen=True):
    """Publishing stands still for all."""

    kind: str
    detail: str


class Pause(msgspec.Struct, frozen=True):
    """Somebody paused publishing."""

    scope: str
    subject: str | None
    by: str
    reason: str
    units_waiting: str
    """What is not sent and is concerned, whatever else holds it."""
    units_unmapped: str = "0"
    """Of these, what waits for a customer too."""


class Held(msgspec.Struct, frozen=True):
    """A partition that waits at a record or for help."""

    partition: int
    why: str


class Audited(msgspec.Struct, frozen=True):
    """The last audit of a source."""

    source: str
    age_s: float
    lost: int
    double: int


class Position(msgspec.Struct, frozen=True):
    """A partition whose facts the ledger has."""

    partition: int


class Standing(msgspec.Struct, frozen=True):
    """All of it."""

    waiting: Waiting = Waiting()
    unmapped: tuple[Unmapped, ...] = ()
    """The largest amounts first; of many tenants not all."""
    sink: Sink = Sink()
    parked: tuple[Parked, ...] = ()
    findings: tuple[Finding, ...] = ()
    meters: tuple[WrongMeter, ...] = ()
    halts: tuple[Halt, ...] = ()
    pauses: tuple[Pause, ...] = ()
    held: tuple[Held, ...] = ()
    audits: tuple[Audited, ...] = ()
    positions: tuple[Position, ...] = ()
    canary_under_way_s: float | None = None
    capture: Capture = Capture()


def read(document: Mapping[str, Any]) -> Standing:
    """The figures of a document that keeps `schemas/cli/status.json`.

    Raises:
        msgspec.ValidationError: it does not.
    """
    return msgspec.convert(document, Standing)
