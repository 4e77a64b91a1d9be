"""What a call, and each event of it, can come to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

AGAIN: Final = "send the same again: what was recorded already is a duplicate, and counts once"
RETRY_AFTER: Final[Mapping[str, str]] = {"Retry-After": "1"}

Failure = Literal[
    "away", "late", "held", "not_whole", "catalogue", "data", "crowded", "keys", "defect"
]
"""Why a call that may be right was not recorded: the database does not answer, or not in time;
another transaction holds a key; the outbox is not installed or not for us; its catalogue changes;
it takes none of the data; there are too many calls; the file of keys is broken; we are."""


class CallRefusedError(Exception):
    """Nothing of a call was recorded, whatever is in it; the answer to it.

    Args:
        status: of HTTP.
        what: what was seen and why that stops the call.
        fix: what the producer does about it.
        headers: beside those of every answer.
        why: where the fault is ours or the database's: which.
    """

    def __init__(
        self,
        status: int,
        what: str,
        fix: str,
        headers: Mapping[str, str] | None = None,
        why: Failure | None = None,
    ) -> None:
        super().__init__(what)
        self.why = why
        self.status = status
        self.what = what
        self.fix = fix
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that an event breaks."""

    path: str
    """JSONPath of the member in the call's body."""
    rule: str
    fix: str


@dataclass(frozen=True, slots=True)
class Refused:
    """This event is not recorded; the others of its call are."""

    problem: Problem
    forbidden: bool = False
    """True where it may be right, and this key may not record it."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The two contents of a conflict."""

    offered: str
    """Hex digest of what this call brought; with the event id it names the parked item."""
    first: str
    """Hex digest of what stands under the key."""
    first_received_at: datetime
    first_metric: str
    first_quantity: str
    first_occurred_at: datetime


@dataclass(frozen=True, slots=True)
class Stored:
    """This event is committed: now, or before."""

    status: Literal["recorded", "duplicate", "conflict"]
    event_id: str
    received_at: datetime
    """Of its first recording; of a conflict when this content came first."""
    contents: Contents | None = None
    """Of a conflict."""


Outcome = Stored | Refused


@dataclass(frozen=True, slots=True)
class Asked:
    """One event of a call in the words of `metering.record_usage_batch`."""

    path: str
    """JSONPath of the event in the body."""
    item: Mapping[str, object]
    names: Mapping[str, str] = field(default_factory=dict)
    """Members that the body calls otherwise, by the names that the rules have."""

    def problem(self, member: str, rule: str, fix: str) -> Problem:
        """A rule that one of its members breaks; the member is empty for the event itself."""
        name = self.names.get(member, member)
        return Problem(f"{self.path}.{name}" if name else self.path, rule, fix)
