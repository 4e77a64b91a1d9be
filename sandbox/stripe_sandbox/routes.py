"""What the stand-in's endpoints do: a checked request → an answer and the facts it leaves.

In: a request that passed the gates. Out: a `Reply` and facts. Each endpoint is one method of
`Routes`; they read the state and change nothing themselves.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, cast

import msgspec

from sandbox.stripe_sandbox import errors, invoices, parameters, summaries
from sandbox.stripe_sandbox.engine import US_PER_S, ApiRequest, Settings
from sandbox.stripe_sandbox.errors import Body, RefusedError, Reply
from sandbox.stripe_sandbox.fact import Cancelled, Fact, Formula, Meter, Recorded
from sandbox.stripe_sandbox.state import State

ACCOUNT_ID: Final = "acct_sandbox"
CANCEL_S_MAX: Final = 86_400
"""An adjustment reaches back 24 hours from receipt."""

Result = tuple[Reply, Sequence[Fact]]


def meter_id(event_name: str, created_us: int) -> str:
    """An id that follows from what the meter is: the same run gives the same ids."""
    digest = hashlib.sha256(f"{event_name}\n{created_us}".encode()).hexdigest()
    return f"mtr_test_{digest[:24]}"


class Routes:
    """The endpoints, bound to a state and settings."""

    def __init__(self, state: State, settings: Settings) -> None:
        self._state = state
        self._settings = settings
        self._table: tuple[tuple[str, re.Pattern[str], Callable[..., Result]], ...] = (
            ("GET", re.compile(r"/v1/account"), self._account),
            ("GET", re.compile(r"/v1/customers/(?P<identity>[^/]+)"), self._customer),
            ("GET", re.compile(r"/v1/subscriptions"), self._list_subscriptions),
            ("POST", re.compile(r"/v1/billing/meter_events"), self._meter_event),
            ("POST", re.compile(r"/v1/billing/meter_event_adjustments"), self._adjustment),
            ("POST", re.compile(r"/v1/billing/meters"), self._create_meter),
            ("GET", re.compile(r"/v1/billing/meters"), self._list_meters),
            ("GET", re.compile(r"/v1/billing/meters/(?P<identity>[^/]+)"), self._get_meter),
            ("POST", re.compile(r"/v1/billing/meters/(?P<identity>[^/]+)"), self._rename_meter),
            (
                "POST",
                re.compile(r"/v1/billing/meters/(?P<identity>[^/]+)/(?P<verb>(de|re)activate)"),
                self._switch_meter,
            ),
            (
                "GET",
                re.compile(r"/v1/billing/meters/(?P<identity>[^/]+)/event_summaries"),
                self._event_summaries,
            ),
        )

    def __call__(self, request: ApiRequest, now_us: int) -> Result:
        """Executes a request.

        Raises:
            RefusedError: It is refused; carries the answer.
        """
        for method, pattern, endpoint in self._table:
            matched = pattern.fullmatch(request.path)
            if matched is not None and method == request.method:
                return endpoint(request, now_us, **matched.groupdict())
        raise RefusedError(errors.unknown_url(request.method, request.path))

    def _account(self, _request: ApiRequest, _now_us: int) -> Result:
        return Reply(200, {"id": ACCOUNT_ID, "object": "account", "livemode": False}), ()

    def _customer(self, _request: ApiRequest, _now_us: int, identity: str) -> Result:
        if self._unknown_customer(identity):
            raise RefusedError(errors.not_found("customer", identity))
        return Reply(200, {"id": identity, "object": "customer", "livemode": False}), ()

    def _list_subscriptions(self, request: ApiRequest, now_us: int) -> Result:
        wanted = request.query.get("customer")
        rows = [
            invoices.subscription_body(subscription, now_us // US_PER_S)
            for subscription in self._state.subscriptions.values()
            if wanted in {None, subscription.customer}
        ]
        return Reply(200, summaries.page(rows, request.query, request.path)), ()

    def _meter_event(self, request: ApiRequest, now_us: int) -> Result:
        now_s = now_us // US_PER_S
        sent = parameters.meter_event(request.form, now_s)
        new: list[Fact] = []
        meter = self._state.meter_named(sent.event_name)
        if meter is None and self._settings.auto_create_meters:
            meter = Meter(meter_id(sent.event_name, 0), sent.event_name, sent.event_name, now_s)
            new.append(meter)
        if meter is None:
            raise RefusedError(errors.no_meter(sent.event_name))
        customer, value = self._payload(meter, sent.payload)
        identifier = sent.identifier or self._generated(request, now_us)
        held_us = self._state.held_since_us.get(identifier)
        window_us = self._settings.identifier_window_s * US_PER_S
        if held_us is not None and now_us - held_us < window_us:
            raise RefusedError(errors.duplicate(identifier))
        recorded = Recorded(
            identifier=identifier,
            customer=customer,
            event_name=sent.event_name,
            value=value,
            timestamp_s=now_s if sent.timestamp_s is None else sent.timestamp_s,
            received_us=now_us,
            idempotency_key=request.idempotency_key,
            refused=(
                "meter_event_customer_not_found" if self._unknown_customer(customer) else None
            ),
        )
        return Reply(200, _meter_event_body(recorded, sent.payload)), [*new, recorded]

    def _payload(self, meter: Meter, payload: dict[str, str]) -> tuple[str, str]:
        customer = payload.get(meter.customer_key)
        if not customer:
            message = f"Missing customer in payload: {meter.customer_key}"
            code = "meter_event_no_customer_defined"
            raise RefusedError(errors.invalid(message, param="payload", code=code))
        if meter.formula == "count":
            return customer, payload.get(meter.value_key, "1")
        value = payload.get(meter.value_key)
        if value is None:
            message = f"Missing value in payload: {meter.value_key}"
            code = "meter_event_value_not_found"
            raise RefusedError(errors.invalid(message, param="payload", code=code))
        parameters.value(value)
        return customer, value

    def _unknown_customer(self, customer: str) -> bool:
        prefix = self._settings.unknown_customer_prefix
        return prefix != "" and customer.startswith(prefix)

    def _generated(self, request: ApiRequest, now_us: int) -> str:
        seed = f"{now_us}\n{len(self._state.recorded)}\n{request.fingerprint()}"
        return hashlib.sha256(seed.encode()).hexdigest()[:32]

    def _adjustment(self, request: ApiRequest, now_us: int) -> Result:
        values = parameters.nested(request.form, ("event_name", "type", "cancel", "expand"))
        event_name = parameters.required(values, "event_name")
        if parameters.required(values, "type") != "cancel":
            raise RefusedError(errors.invalid("Invalid type: must be cancel", param="type"))
        identifier = parameters.required(dict(parameters.group(values, "cancel")), "identifier")
        held_us = self._state.held_since_us.get(identifier)
        if held_us is None or now_us - held_us > CANCEL_S_MAX * US_PER_S:
            message = f"No event within the last 24 hours has identifier {identifier}."
            raise RefusedError(errors.invalid(message, param="cancel"))
        if identifier in self._state.cancelled:
            message = f"The event with identifier {identifier} is already cancelled."
            raise RefusedError(errors.invalid(message, param="cancel"))
        body: Body = {
            "object": "billing.meter_event_adjustment",
            "event_name": event_name,
            "type": "cancel",
            "cancel": {"identifier": identifier},
            "status": "pending",
            "livemode": False,
        }
        return Reply(200, body), [Cancelled(identifier, now_us)]

    def _create_meter(self, request: ApiRequest, now_us: int) -> Result:
        values = parameters.nested(
            request.form,
            (
                "display_name",
                "event_name",
                "default_aggregation",
                "customer_mapping",
                "value_settings",
                "event_time_window",
                "expand",
            ),
        )
        event_name = parameters.required(values, "event_name")
        if self._state.meter_named(event_name) is not None:
            message = f"A meter with event name {event_name} already exists."
            raise RefusedError(errors.invalid(message, param="event_name", stored=True))
        formula = parameters.group(values, "default_aggregation").get("formula", "")
        if formula not in {"sum", "count", "last"}:
            message = "Invalid default_aggregation[formula]: must be one of sum, count, last"
            raise RefusedError(errors.invalid(message, param="default_aggregation[formula]"))
        window = parameters.text(values, "event_time_window")
        if window not in {None, "hour", "day"}:
            message = "Invalid event_time_window: must be one of hour, day"
            raise RefusedError(errors.invalid(message, param="event_time_window"))
        meter = Meter(
            id=meter_id(event_name, now_us),
            event_name=event_name,
            display_name=parameters.required(values, "display_name"),
            created_s=now_us // US_PER_S,
            formula=cast(Formula, formula),
            customer_key=parameters.group(values, "customer_mapping").get(
                "event_payload_key", "stripe_customer_id"
            ),
            value_key=parameters.group(values, "value_settings").get("event_payload_key", "value"),
            event_time_window=cast(Literal["hour", "day"] | None, window),
        )
        return Reply(200, meter_body(meter)), [meter]

    def _list_meters(self, request: ApiRequest, _now_us: int) -> Result:
        meters = sorted(self._state.meters.values(), key=lambda meter: (-meter.created_s, meter.id))
        wanted = request.query.get("status")
        rows = [
            meter_body(meter)
            for meter in meters
            if wanted is None or (wanted == "active") == meter.active
        ]
        return Reply(200, summaries.page(rows, request.query, "/v1/billing/meters")), ()

    def _get_meter(self, _request: ApiRequest, _now_us: int, identity: str) -> Result:
        return Reply(200, meter_body(self._meter(identity))), ()

    def _rename_meter(self, request: ApiRequest, _now_us: int, identity: str) -> Result:
        values = parameters.nested(request.form, ("display_name", "expand"))
        name = parameters.text(values, "display_name", 250)
        meter = self._meter(identity)
        if name is not None:
            meter = msgspec.structs.replace(meter, display_name=name)
        return Reply(200, meter_body(meter)), [meter]

    def _switch_meter(self, _request: ApiRequest, _now_us: int, identity: str, verb: str) -> Result:
        meter = msgspec.structs.replace(self._meter(identity), active=verb == "reactivate")
        return Reply(200, meter_body(meter)), [meter]

    def _event_summaries(self, request: ApiRequest, now_us: int, identity: str) -> Result:
        query = summaries.parse(request.query)
        seen_until_us = now_us - self._settings.summary_lag_s * US_PER_S
        rows = summaries.rows(self._state, self._meter(identity), query, seen_until_us)
        return Reply(200, summaries.page(rows, request.query, request.path)), ()

    def _meter(self, identity: str) -> Meter:
        meter = self._state.meters.get(identity)
        if meter is None:
            raise RefusedError(errors.not_found("billing.meter", identity))
        return meter


def _meter_event_body(recorded: Recorded, payload: dict[str, str]) -> Body:
    return {
        "object": "billing.meter_event",
        "created": recorded.received_us // US_PER_S,
        "event_name": recorded.event_name,
        "identifier": recorded.identifier,
        "livemode": False,
        "payload": dict(payload),
        "timestamp": recorded.timestamp_s,
    }


def meter_body(meter: Meter) -> Body:
    """A meter as the API shows it."""
    return {
        "id": meter.id,
        "object": "billing.meter",
        "created": meter.created_s,
        "updated": meter.created_s,
        "customer_mapping": {"event_payload_key": meter.customer_key, "type": "by_id"},
        "default_aggregation": {"formula": meter.formula},
        "dimension_payload_keys": None,
        "display_name": meter.display_name,
        "event_name": meter.event_name,
        "event_time_window": meter.event_time_window,
        "livemode": False,
        "status": "active" if meter.active else "inactive",
        "status_transitions": {"deactivated_at": None},
        "value_settings": {"event_payload_key": meter.value_key},
    }
