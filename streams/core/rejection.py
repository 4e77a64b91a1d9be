"""Hop 9: an error report of Stripe's → which recorded meter events were rejected after all.

In: a report as Stripe tells it, then what the ledger knows of each meter event that it names.
Out: an `ErrorReport` or why it cannot be read; then one `Decision` a meter event.

A success of Stripe's means accepted, not counted: validation goes on behind it. What fails there is
told in reports that count all errors and name a few. A named request carries its Idempotency-Key,
which holds our identifier, or at least the id of Stripe's answer, which the attempt holds. Whose
the other errors are nobody says, so their cells are reconciled.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal, NamedTuple, assert_never

import msgspec

from streams.core.instant import SECOND_US, to_us
from streams.core.lane import MeterEventState

ERROR_REPORT: Final = "v1.billing.meter.error_report_triggered"
NO_METER_FOUND: Final = "v1.billing.meter.no_meter_found"
REPORT_TYPES: Final = (ERROR_REPORT, NO_METER_FOUND)
"""The only types of events that say something about meter events of ours."""

SENT_BEFORE_US: Final = 15 * 60 * SECOND_US
"""How long before its validation a request may have been sent."""
CLOCKS_US: Final = 5 * 60 * SECOND_US
"""How far Stripe's clock and the ledger's may differ: beyond it webhooks are refused as well, and
so are meter events of this moment."""

MESSAGE_CHARS_MAX: Final = 500
_KEY: Final = re.compile(r"(?P<identifier>.+)\.g(?P<generation>[0-9]{1,9})", re.DOTALL)


class Sample(NamedTuple):
    """One request that a report names."""

    idempotency_key: str
    """As told; some reports may name the identifier instead, or only the id of the answer."""
    code: str
    """Stripe's code; the list of codes is open."""
    message: str | None
    """Stripe's own words."""
    request_id: str | None = None
    """Id of Stripe's answer, where nothing else is told: what the attempt is found by."""

    @property
    def identifier(self) -> str | None:
        """What the meter event is found by; None where only the attempt can be."""
        if self.request_id is not None:
            return None
        matched = _KEY.fullmatch(self.idempotency_key)
        return self.idempotency_key if matched is None else matched["identifier"]

    @property
    def key_generation(self) -> int | None:
        """Number of the Idempotency-Key; None where the identifier stands alone."""
        matched = _KEY.fullmatch(self.idempotency_key)
        return None if matched is None else int(matched["generation"])


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """A report, read."""

    event_id: str
    event_type: str
    meter_id: str | None
    """Stripe's id of the meter; None where no meter was found."""
    start_us: int
    """Start of the validation that it sums up, microseconds since 1970 UTC."""
    end_us: int
    error_count: int
    unnamed: int
    """Errors beyond the samples."""
    samples: tuple[Sample, ...]

    @property
    def vague(self) -> bool:
        """Whether it counts errors of which it may be open whose they are."""
        return self.unnamed > 0 or any(sample.identifier is None for sample in self.samples)


@dataclass(frozen=True, slots=True)
class UnreadableReport:
    """A report of another shape than any we know: a person reads it, nothing is taken back."""

    event_id: str
    event_type: str
    problem: str
    """The path and the rule."""


class _Request(msgspec.Struct):
    id: str | None = None
    identifier: str | None = None
    idempotency_key: str | None = None


class _SampleError(msgspec.Struct):
    error_message: str | None = None
    request: _Request | None = None


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _ErrorType(msgspec.Struct):
    code: str = "unknown"
    error_count: _Count = 0
    sample_errors: list[_SampleError] | None = None


class _Reason(msgspec.Struct):
    error_count: _Count = 0
    error_types: list[_ErrorType] | None = None


class _Data(msgspec.Struct):
    reason: _Reason
    validation_start: str | None = None
    validation_end: str | None = None


class _Related(msgspec.Struct):
    id: str | None = None
    type: str | None = None


class _Event(msgspec.Struct):
    data: _Data
    created: str | None = None
    related_object: _Related | None = None


def read(event_id: str, event_type: str, body: bytes) -> ErrorReport | UnreadableReport:
    """Reads a report.

    Args:
        event_id: Id of the event, as it was asked for.
        event_type: One of `REPORT_TYPES`.
        body: The fetched event as JSON; the notification alone holds no data.
    """
    try:
        # Stripe's newer API writes some whole numbers as text.
        raw = msgspec.json.decode(body)
        event = msgspec.convert(raw, type=_Event, strict=False)
        start_us, end_us = _validation(event)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        return UnreadableReport(event_id, event_type, str(error))
    reason = event.data.reason
    types = reason.error_types or []
    samples = _samples(types)
    error_count = max(reason.error_count, sum(one.error_count for one in types), len(samples))
    related = event.related_object
    return ErrorReport(
        event_id=event_id,
        event_type=event_type,
        meter_id=related.id if related is not None and related.type == "billing.meter" else None,
        start_us=start_us,
        end_us=end_us,
        error_count=error_count,
        unnamed=error_count - len(samples),
        samples=samples,
    )


def _samples(types: Sequence[_ErrorType]) -> tuple[Sample, ...]:
    """Named requests, each once a code; a sample without any name names nobody."""
    found: dict[tuple[str, str], Sample] = {}
    for one in types:
        for sample in one.sample_errors or []:
            request = sample.request or _Request()
            key = request.idempotency_key or request.identifier
            name = key or request.id
            if name:
                message = (sample.error_message or "")[:MESSAGE_CHARS_MAX] or None
                request_id = None if key else name
                found.setdefault((name, one.code), Sample(name, one.code, message, request_id))
    return tuple(found.values())


def _validation(event: _Event) -> tuple[int, int]:
    start = event.data.validation_start or event.created
    end = event.data.validation_end or event.created
    if start is None or end is None:
        message = "says neither when it was validated nor when it was made - at `$.data`"
        raise ValueError(message)
    start_us, end_us = (to_us(datetime.fromisoformat(text)) for text in (start, end))
    return min(start_us, end_us), max(start_us, end_us)


class Tried(NamedTuple):
    """One attempt to send a meter event."""

    key_generation: int
    outcome: str | None
    """Name of its outcome; None: it has none yet, or its publisher died."""
    http_status: int | None

    @property
    def may_count(self) -> bool:
        """Whether this attempt itself may have been accepted."""
        return self.outcome not in NEVER_ACCEPTED and self.http_status != 400


NEVER_ACCEPTED: Final = frozenset(
    {
        "AlreadyRecorded",  # Stripe refused it for the sake of an earlier one
        "Refused",
        "Retry",
        "Systemic",
        "Hold",
        "held",
        "fenced",
        "too_old",
    }
)


@dataclass(frozen=True, slots=True)
class Accused:
    """A meter event that reports name, as the ledger has it."""

    meter_event_id: int
    state: MeterEventState
    dead_kind: str | None
    rejected: bool
    """Whether it was taken back before."""
    named: tuple[int | None, ...]
    """Generations of the keys that reports name; None stands for all."""
    tried: tuple[Tried, ...]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """It is dead: `refused` where Stripe surely counts nothing, `ambiguous` where it may."""

    dead_kind: Literal["refused", "ambiguous"]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing is to be done about it."""


Decision = TakeBack | Unchanged


def decide(accused: Accused) -> Decision:
    """What reports mean for a meter event. They may come in any order, before or after the answer.

    A report proves that the attempts up to the one it names count nothing: Stripe accepts an
    identifier once, and a repeated key gives the stored answer. Of a later attempt it proves
    nothing, because nobody says whether Stripe still holds the identifier that it rejected.
    """
    match accused.state:
        case "superseded" | "nothing":
            return Unchanged()
        case "pending" | "ambiguous" | "recorded" | "dead":
            kind = _kind(accused)
        case _:
            assert_never(accused.state)
    return Unchanged() if accused.rejected and accused.dead_kind == kind else TakeBack(kind)


def _kind(accused: Accused) -> Literal["refused", "ambiguous"]:
    generations = [named for named in accused.named if named is not None]
    tried = {t.key_generation for t in accused.tried}
    if not tried or not tried.issuperset(generations):
        # Attempts are written before they are made: a ledger that lacks a named one was restored,
        # and may have forgotten later ones as well.
        return "ambiguous"
    newest = max(generations, default=-1)
    later = {t.key_generation for t in accused.tried if t.key_generation > newest and t.may_count}
    # An identifier alone speaks of one attempt, and is clear where only one may be meant.
    spoken_for = 0 if generations else 1
    return "ambiguous" if len(later) > spoken_for else "refused"
