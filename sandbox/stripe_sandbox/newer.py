"""The newer API (v2): JSON, its own error codes, and a stream that answers before it looks.

In: a request that passed the gates, its body as JSON. Out: an answer and facts. In the stream
nothing is said of a single meter event: what is wrong is refused afterwards, and a repeated
identifier is dropped without a word.
"""

import hashlib
from typing import Final, TypeVar

import msgspec

from sandbox.stripe_sandbox import errors, parameters
from sandbox.stripe_sandbox.engine import ApiRequest
from sandbox.stripe_sandbox.errors import Body, RefusedError, Reply
from sandbox.stripe_sandbox.fact import Cancelled, Fact, Session
from sandbox.stripe_sandbox.meter_events import MeterEvents, Result
from sandbox.stripe_sandbox.parameters import MeterEventParameters
from sandbox.stripe_sandbox.settings import US_PER_S
from sandbox.stripe_sandbox.state import State
from streams.core.instant import wire_text

T = TypeVar("T")
SESSION_US: Final = 15 * 60 * US_PER_S
STREAM_EVENTS_MAX: Final = 100

_CODES: Final = {
    "meter_event_invalid_value": "payload_invalid_value",
    "meter_event_value_too_many_digits": "payload_invalid_value",
    "meter_event_value_not_found": "payload_no_value_defined",
    "meter_event_no_customer_defined": "payload_no_customer_defined",
    "timestamp_too_far_in_past": "invalid_timestamp",
    "timestamp_in_future": "invalid_timestamp",
}
"""Codes of v1 and of reports → what v2 calls the same, where it has another word."""


class _Sent(msgspec.Struct, forbid_unknown_fields=True):
    event_name: str
    payload: dict[str, str]
    identifier: str | None = None
    timestamp: str | None = None


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    events: list[_Sent]


class _Cancel(msgspec.Struct, forbid_unknown_fields=True):
    identifier: str


class _Adjustment(msgspec.Struct, forbid_unknown_fields=True):
    event_name: str
    type: str
    cancel: _Cancel


class NewerMeterEvents:
    """The endpoints of v2."""

    def __init__(self, state: State, events: MeterEvents) -> None:
        self._state = state
        self._events = events

    def create(self, request: ApiRequest, now_us: int) -> Result:
        """`POST /v2/billing/meter_events`: one, checked before the answer.

        Raises:
            RefusedError: it is refused; carries the answer.
        """
        sent = _parameters(_body(request, _Sent))
        try:
            recorded, facts = self._events.accept(request, sent, now_us, later=False)
        except RefusedError as error:
            code = _CODES.get(error.code, error.code)
            raise RefusedError(errors.refused_v2(code, error.message)) from None
        body: Body = {
            "object": "v2.billing.meter_event",
            "created": wire_text(now_us),
            "event_name": recorded.event_name,
            "identifier": recorded.identifier,
            "livemode": False,
            "payload": dict(sent.payload),
            "timestamp": wire_text(recorded.timestamp_s * US_PER_S),
        }
        return Reply(200, body), facts

    def open_session(self, _request: ApiRequest, now_us: int) -> Result:
        """`POST /v2/billing/meter_event_session`: a token for a quarter of an hour."""
        digest = hashlib.sha256(f"{now_us}\n{len(self._state.sessions)}".encode()).hexdigest()
        session = Session(f"token_test_{digest[:40]}", now_us + SESSION_US)
        body: Body = {
            "id": f"mes_test_{digest[40:]}",
            "object": "v2.billing.meter_event_session",
            "authentication_token": session.token,
            "created": wire_text(now_us),
            "expires_at": wire_text(session.expires_us),
            "livemode": False,
        }
        return Reply(200, body), [session]

    def stream(self, request: ApiRequest, now_us: int) -> Result:
        """`POST /v2/billing/meter_event_stream`: up to 100, nothing said of any.

        Raises:
            RefusedError: the request as a whole cannot be read.
        """
        batch = _body(request, _Batch)
        if not 1 <= len(batch.events) <= STREAM_EVENTS_MAX:
            message = f"events must hold 1 to {STREAM_EVENTS_MAX} meter events"
            raise RefusedError(errors.refused_v2("invalid_events", message))
        facts: list[Fact] = []
        taken: set[str] = set()
        for number, one in enumerate(batch.events):
            sent = _parameters(one, number)
            if sent.identifier in taken:
                continue
            try:
                recorded, made = self._events.accept(request, sent, now_us, later=True)
            except RefusedError:
                continue  # a duplicate: dropped without a word
            taken.add(recorded.identifier)
            facts += made
        return Reply(200, {}), facts

    def adjust(self, request: ApiRequest, now_us: int) -> Result:
        """`POST /v2/billing/meter_event_adjustments`.

        Raises:
            RefusedError: it is refused; carries the answer.
        """
        asked = _body(request, _Adjustment)
        if asked.type != "cancel":
            raise RefusedError(errors.refused_v2("invalid_type", "type must be cancel"))
        try:
            self._events.check_cancel(asked.cancel.identifier, now_us)
        except RefusedError as error:
            raise RefusedError(errors.refused_v2("invalid_cancel", error.message)) from None
        digest = hashlib.sha256(asked.cancel.identifier.encode()).hexdigest()[:24]
        body: Body = {
            "id": f"mea_test_{digest}",
            "object": "v2.billing.meter_event_adjustment",
            "created": wire_text(now_us),
            "event_name": asked.event_name,
            "type": "cancel",
            "cancel": {"identifier": asked.cancel.identifier},
            "status": "pending",
            "livemode": False,
        }
        return Reply(200, body), [Cancelled(asked.cancel.identifier, now_us)]


def _body(request: ApiRequest, kind: type[T]) -> T:
    try:
        return msgspec.convert(request.json, kind)
    except msgspec.ValidationError as error:
        raise RefusedError(errors.refused_v2("invalid_payload", str(error))) from None


def _parameters(sent: _Sent, number: int = 0) -> MeterEventParameters:
    texts = {"event_name": sent.event_name, "identifier": sent.identifier or "generated"}
    for name, text in texts.items():
        if not 1 <= len(text) <= parameters.CHARS_MAX:
            message = f"events[{number}].{name} must have 1 to {parameters.CHARS_MAX} characters"
            raise RefusedError(errors.refused_v2(f"invalid_{name}", message))
    timestamp_s = None
    if sent.timestamp is not None:
        try:
            timestamp_s = parameters.instant_us(sent.timestamp) // US_PER_S
        except ValueError as error:
            raise RefusedError(errors.refused_v2("invalid_timestamp", str(error))) from None
    return MeterEventParameters(sent.event_name, sent.payload, sent.identifier, timestamp_s)
