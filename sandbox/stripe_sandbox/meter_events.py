"""Meter events: checked, held against identifiers, recorded; and adjustments that take them back.

In: a request that passed the gates. Out: an answer and the facts it leaves. What is wrong with a
meter event is found before the answer or, if so set, only afterwards: then it is accepted, recorded
with the code of its refusal, and never counted.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sandbox.stripe_sandbox import errors, parameters
from sandbox.stripe_sandbox.engine import ApiRequest
from sandbox.stripe_sandbox.errors import Body, RefusedError, Reply
from sandbox.stripe_sandbox.fact import Cancelled, Fact, Meter, Recorded
from sandbox.stripe_sandbox.parameters import MeterEventParameters
from sandbox.stripe_sandbox.settings import US_PER_S, Settings
from sandbox.stripe_sandbox.state import State

CANCEL_S_MAX: Final = 86_400
"""An adjustment reaches back 24 hours from receipt."""

Result = tuple[Reply, Sequence[Fact]]


def meter_id(event_name: str, created_us: int) -> str:
    """An id that follows from what the meter is: the same run gives the same ids."""
    digest = hashlib.sha256(f"{event_name}\n{created_us}".encode()).hexdigest()
    return f"mtr_test_{digest[:24]}"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a meter event: told at once, or afterwards by its code."""

    reply: Reply
    code: str


class MeterEvents:
    """The endpoints of v1, and what the newer ones share with them."""

    def __init__(self, state: State, settings: Settings) -> None:
        self._state = state
        self._settings = settings

    def create(self, request: ApiRequest, now_us: int) -> Result:
        """`POST /v1/billing/meter_events`.

        Raises:
            RefusedError: it is refused; carries the answer.
        """
        sent = parameters.meter_event(request.form)
        later = self._settings.asynchronous_validation
        recorded, facts = self.accept(request, sent, now_us, later=later)
        body: Body = {
            "object": "billing.meter_event",
            "created": recorded.received_us // US_PER_S,
            "event_name": recorded.event_name,
            "identifier": recorded.identifier,
            "livemode": False,
            "payload": dict(sent.payload),
            "timestamp": recorded.timestamp_s,
        }
        return Reply(200, body), facts

    def accept(
        self, request: ApiRequest, sent: MeterEventParameters, now_us: int, *, later: bool
    ) -> tuple[Recorded, list[Fact]]:
        """A meter event as it is recorded, and all that is to be remembered.

        Args:
            request: What it came in.
            sent: Its parameters.
            now_us: The time.
            later: Whether what is wrong with it is only found afterwards.

        Raises:
            RefusedError: it is refused at once.
        """
        made = self._made_for(sent, now_us)
        meter = made or self._state.meter_named(sent.event_name)
        problem = self._problem(sent, meter, now_us)
        if problem is not None and not later:
            raise RefusedError(problem.reply, problem.code)
        identifier = sent.identifier or self._generated(request, now_us)
        if self.holds(identifier, now_us):
            raise RefusedError(errors.duplicate(identifier), "duplicate_meter_event")
        known = meter or self._state.meter_ever_named(sent.event_name)
        customer = sent.payload.get(known.customer_key if known else "stripe_customer_id", "")
        refused = None if problem is None else problem.code
        if refused is None and self._settings.unknown_customer(customer):
            refused = "meter_event_customer_not_found"
        value_key = known.value_key if known else "value"
        recorded = Recorded(
            identifier=identifier,
            customer=customer,
            event_name=sent.event_name,
            value=sent.payload.get(value_key, "1"),
            timestamp_s=now_us // US_PER_S if sent.timestamp_s is None else sent.timestamp_s,
            received_us=now_us,
            idempotency_key=request.idempotency_key,
            refused=refused,
            meter_id=None if known is None else known.id,
        )
        return recorded, [recorded] if made is None else [made, recorded]

    def holds(self, identifier: str, now_us: int) -> bool:
        """Whether an identifier cannot be used again yet."""
        held_us = self._state.held_since_us.get(identifier)
        if held_us is None or now_us - held_us >= self._settings.identifier_window_s * US_PER_S:
            return False
        return not (self._settings.rejected_frees_identifier and self._state.spent[identifier])

    def _made_for(self, sent: MeterEventParameters, now_us: int) -> Meter | None:
        name = sent.event_name
        if not self._settings.auto_create_meters or self._state.meter_named(name) is not None:
            return None
        return Meter(meter_id(name, 0), name, name, now_us // US_PER_S)

    def _problem(
        self, sent: MeterEventParameters, meter: Meter | None, now_us: int
    ) -> Problem | None:
        dated = _date_problem(sent, now_us // US_PER_S)
        if dated is not None:
            return dated
        if meter is None:
            archived = self._state.meter_ever_named(sent.event_name) is not None
            code = "archived_meter" if archived else "no_meter"
            return Problem(errors.no_meter(sent.event_name), code)
        return _payload_problem(sent, meter)

    def _generated(self, request: ApiRequest, now_us: int) -> str:
        seed = f"{now_us}\n{len(self._state.recorded)}\n{request.fingerprint()}"
        return hashlib.sha256(seed.encode()).hexdigest()[:32]

    def adjust(self, request: ApiRequest, now_us: int) -> Result:
        """`POST /v1/billing/meter_event_adjustments`: takes a recent meter event back.

        Raises:
            RefusedError: it is refused; carries the answer.
        """
        values = parameters.nested(request.form, ("event_name", "type", "cancel", "expand"))
        event_name = parameters.required(values, "event_name")
        if parameters.required(values, "type") != "cancel":
            raise RefusedError(errors.invalid("Invalid type: must be cancel", param="type"))
        identifier = parameters.required(dict(parameters.group(values, "cancel")), "identifier")
        self.check_cancel(identifier, now_us)
        body: Body = {
            "object": "billing.meter_event_adjustment",
            "event_name": event_name,
            "type": "cancel",
            "cancel": {"identifier": identifier},
            "status": "pending",
            "livemode": False,
        }
        return Reply(200, body), [Cancelled(identifier, now_us)]

    def check_cancel(self, identifier: str, now_us: int) -> None:
        """Whether a meter event can be taken back.

        Raises:
            RefusedError: it cannot.
        """
        held_us = self._state.held_since_us.get(identifier)
        if held_us is None or now_us - held_us > CANCEL_S_MAX * US_PER_S:
            message = f"No event within the last 24 hours has identifier {identifier}."
            raise RefusedError(errors.invalid(message, param="cancel"))
        if identifier in self._state.cancelled:
            message = f"The event with identifier {identifier} is already cancelled."
            raise RefusedError(errors.invalid(message, param="cancel"))


def _date_problem(sent: MeterEventParameters, now_s: int) -> Problem | None:
    if sent.timestamp_s is None:
        return None
    if sent.timestamp_s < now_s - parameters.PAST_S_MAX:
        return Problem(errors.too_old(now_s - parameters.PAST_S_MAX), "timestamp_too_far_in_past")
    if sent.timestamp_s > now_s + parameters.FUTURE_S_MAX:
        return Problem(errors.too_early(now_s + parameters.FUTURE_S_MAX), "timestamp_in_future")
    return None


def _payload_problem(sent: MeterEventParameters, meter: Meter) -> Problem | None:
    if not sent.payload.get(meter.customer_key):
        code = "meter_event_no_customer_defined"
        message = f"Missing customer in payload: {meter.customer_key}"
        return Problem(errors.invalid(message, param="payload", code=code), code)
    value = sent.payload.get(meter.value_key)
    if meter.formula == "count" and value is None:
        return None
    if value is None:
        code = "meter_event_value_not_found"
        message = f"Missing value in payload: {meter.value_key}"
        return Problem(errors.invalid(message, param="payload", code=code), code)
    try:
        parameters.value(value)
    except RefusedError as error:
        return Problem(error.reply, error.code)
    return None
