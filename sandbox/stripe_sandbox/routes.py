"""What the stand-in's endpoints do: a checked request → an answer and the facts it leaves.

In: a request that passed the gates. Out: a `Reply` and facts. Each endpoint is one method of
`Routes`; they read the state and change nothing themselves.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Final, Literal, cast

import msgspec

from sandbox.stripe_sandbox import errors, invoices, parameters, reports, summaries
from sandbox.stripe_sandbox.engine import STREAM_PATH, ApiRequest
from sandbox.stripe_sandbox.errors import Body, RefusedError, Reply
from sandbox.stripe_sandbox.fact import Formula, Meter
from sandbox.stripe_sandbox.meter_events import MeterEvents, Result, meter_id
from sandbox.stripe_sandbox.newer import NewerMeterEvents
from sandbox.stripe_sandbox.settings import US_PER_S, Settings
from sandbox.stripe_sandbox.state import State

ACCOUNT_ID: Final = "acct_sandbox"


class Routes:
    """The endpoints, bound to a state and settings."""

    def __init__(self, state: State, settings: Settings) -> None:
        self._state = state
        self._settings = settings
        events = MeterEvents(state, settings)
        newer = NewerMeterEvents(state, events)
        self._table: tuple[tuple[str, re.Pattern[str], Callable[..., Result]], ...] = (
            ("GET", re.compile(r"/v1/account"), self._account),
            ("POST", re.compile(r"/v1/customers"), self._create_customer),
            ("GET", re.compile(r"/v1/customers/(?P<identity>[^/]+)"), self._customer),
            ("GET", re.compile(r"/v1/subscriptions"), self._list_subscriptions),
            ("POST", re.compile(r"/v1/billing/meter_events"), events.create),
            ("POST", re.compile(r"/v1/billing/meter_event_adjustments"), events.adjust),
            ("POST", re.compile(r"/v2/billing/meter_events"), newer.create),
            ("POST", re.compile(r"/v2/billing/meter_event_adjustments"), newer.adjust),
            ("POST", re.compile(r"/v2/billing/meter_event_session"), newer.open_session),
            ("POST", re.compile(STREAM_PATH), newer.stream),
            ("GET", re.compile(r"/v2/core/events"), self._list_events),
            ("GET", re.compile(r"/v2/core/events/(?P<identity>[^/]+)"), self._event),
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

    def _list_events(self, request: ApiRequest, now_us: int) -> Result:
        return Reply(200, reports.page(self._state, request.query, now_us)), ()

    def _event(self, _request: ApiRequest, now_us: int, identity: str) -> Result:
        return Reply(200, reports.whole(reports.find(self._state, identity, now_us))), ()

    def _account(self, _request: ApiRequest, _now_us: int) -> Result:
        return Reply(200, {"id": ACCOUNT_ID, "object": "account", "livemode": False}), ()

    def _customer(self, _request: ApiRequest, _now_us: int, identity: str) -> Result:
        if self._settings.unknown_customer(identity):
            raise RefusedError(errors.not_found("customer", identity))
        return Reply(200, {"id": identity, "object": "customer", "livemode": False}), ()

    def _create_customer(self, request: ApiRequest, now_us: int) -> Result:
        values = parameters.nested(request.form, ("name", "email", "description", "expand"))
        # Nothing is to be remembered: whoever is not unknown exists.
        digest = hashlib.sha256(f"{now_us}\n{request.fingerprint()}".encode()).hexdigest()
        body: Body = {
            "id": f"cus_{digest[:14]}",
            "object": "customer",
            "created": now_us // US_PER_S,
            "name": parameters.text(values, "name"),
            "livemode": False,
        }
        return Reply(200, body), ()

    def _list_subscriptions(self, request: ApiRequest, now_us: int) -> Result:
        wanted = request.query.get("customer")
        rows = [
            invoices.subscription_body(subscription, now_us // US_PER_S)
            for subscription in self._state.subscriptions.values()
            if wanted in {None, subscription.customer}
        ]
        return Reply(200, summaries.page(rows, request.query, request.path)), ()

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

    def _rename_meter(self, request: ApiRequest, now_us: int, identity: str) -> Result:
        values = parameters.nested(request.form, ("display_name", "expand"))
        name = parameters.text(values, "display_name", 250)
        meter = self._meter(identity)
        if name is not None:
            now_s = now_us // US_PER_S
            meter = msgspec.structs.replace(meter, display_name=name, updated_s=now_s)
        return Reply(200, meter_body(meter)), [meter]

    def _switch_meter(self, _request: ApiRequest, now_us: int, identity: str, verb: str) -> Result:
        meter = self._meter(identity)
        if verb == "reactivate" and self._state.meter_named(meter.event_name) not in {None, meter}:
            message = f"A meter with event name {meter.event_name} already exists."
            raise RefusedError(errors.invalid(message, param="event_name", stored=True))
        active = verb == "reactivate"
        now_s = now_us // US_PER_S
        meter = msgspec.structs.replace(
            meter, active=active, deactivated_s=None if active else now_s, updated_s=now_s
        )
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


def meter_body(meter: Meter) -> Body:
    """A meter as the API shows it."""
    return {
        "id": meter.id,
        "object": "billing.meter",
        "created": meter.created_s,
        "updated": meter.created_s if meter.updated_s is None else meter.updated_s,
        "customer_mapping": {"event_payload_key": meter.customer_key, "type": "by_id"},
        "default_aggregation": {"formula": meter.formula},
        "dimension_payload_keys": None,
        "display_name": meter.display_name,
        "event_name": meter.event_name,
        "event_time_window": meter.event_time_window,
        "livemode": False,
        "status": "active" if meter.active else "inactive",
        "status_transitions": {"deactivated_at": meter.deactivated_s},
        "value_settings": {"event_payload_key": meter.value_key},
    }
