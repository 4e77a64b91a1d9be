"""The control API, outside Stripe's paths: faults, settings, and the oracle.

In: orders under `/_sandbox/`. Out: what really was recorded and counted, to the unit, for whoever
has to prove something. Nothing here is reachable through Stripe's own API.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from sandbox.stripe_sandbox import invoices, reports
from sandbox.stripe_sandbox.delivery import Delivery
from sandbox.stripe_sandbox.errors import Body
from sandbox.stripe_sandbox.fact import Interval, Reported, Subscription
from sandbox.stripe_sandbox.faults import MEANINGS, ArmedFault, FaultSpec
from sandbox.stripe_sandbox.server import Api, counts
from sandbox.stripe_sandbox.state import State, add_up

HOUR_S = 3_600

Refuse = Callable[[web.Request, int], Awaitable[None]]
"""Closes the port for so many milliseconds."""


def oracle(state: State) -> Body:
    """The exact multiset of what was recorded, and the sums per customer, meter and UTC hour."""
    times_counted = Counter(event.identifier for event in state.recorded if state.counts(event))
    hours: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for event in state.recorded:
        if state.counts(event):
            hour_s = event.timestamp_s - event.timestamp_s % HOUR_S
            hours[event.customer, event.event_name, hour_s].append(event.value)
    return {
        "events": [
            {
                "identifier": event.identifier,
                "customer": event.customer,
                "event_name": event.event_name,
                "value": event.value,
                "timestamp": event.timestamp_s,
                "received_at_us": event.received_us,
                "idempotency_key": event.idempotency_key,
                "refused": event.refused,
                "cancelled": event.identifier in state.cancelled,
                "counted": times_counted[event.identifier],
            }
            for event in state.recorded
        ],
        "sums": [
            {
                "customer": customer,
                "event_name": event_name,
                "hour": hour_s,
                "value": f"{add_up(iter(values)):f}",
                "events": len(values),
            }
            for (customer, event_name, hour_s), values in sorted(hours.items())
        ],
    }


class SubscriptionOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subscription as ordered; the same id again replaces it."""

    id: str
    customer: str
    event_names: list[str]
    anchor_s: int
    interval: Interval = "month"
    grace_s: int = 3_600
    interval_count: int = 1


class EventOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event as ordered."""

    type: str
    data: msgspec.Raw = msgspec.Raw(b"{}")


class Control:
    """The control API's endpoints."""

    def __init__(self, api: Api, delivery: Delivery, refuse: Refuse) -> None:
        self._api = api
        self._delivery = delivery
        self._refuse = refuse

    def routes(self) -> list[web.RouteDef]:
        """Where they are found."""
        return [
            web.get("/healthz", self._health),
            web.get("/_sandbox/oracle", self._oracle),
            web.get("/_sandbox/requests", self._requests),
            web.get("/_sandbox/reads", self._reads),
            web.get("/_sandbox/events", self._events),
            web.post("/_sandbox/events", self._make_event),
            web.get("/_sandbox/faults", self._list_faults),
            web.post("/_sandbox/faults", self._arm),
            web.delete("/_sandbox/faults", self._clear),
            web.delete("/_sandbox/faults/{identity}", self._clear),
            web.get("/_sandbox/invoices", self._invoices),
            web.post("/_sandbox/subscriptions", self._subscribe),
            web.get("/_sandbox/settings", self._get_settings),
            web.post("/_sandbox/settings", self._change_settings),
        ]

    async def _health(self, _http: web.Request) -> web.Response:
        return _json({"status": "ok", "recorded": len(self._api.engine.state.recorded)})

    async def _oracle(self, _http: web.Request) -> web.Response:
        return _json(oracle(self._api.engine.state))

    async def _requests(self, _http: web.Request) -> web.Response:
        return _json(counts(self._api.requests))

    async def _reads(self, _http: web.Request) -> web.Response:
        engine = self._api.engine
        return _json({"reads": engine.reads, "allowance": engine.settings.read_allowance})

    async def _events(self, _http: web.Request) -> web.Response:
        state = self._api.engine.state
        return _json(
            {
                "events": [
                    {**reports.whole(report), "delivered": report.id in state.delivered}
                    for report in state.reports.values()
                ],
                "unreported": len(state.unreported),
                "calls": self._delivery.calls,
                "lost": self._delivery.lost,
            }
        )

    async def _make_event(self, http: web.Request) -> web.Response:
        """An event of any type, for whoever wants to see what becomes of unknown ones."""
        try:
            order = msgspec.json.decode(await http.read(), type=EventOrder)
        except msgspec.DecodeError as error:
            return _refused(str(error))
        now_us = self._api.clock()
        made = Reported(
            id=reports.event_id(f"{order.type}\n{now_us}\n{len(self._api.engine.state.reports)}"),
            kind=order.type,
            created_us=now_us,
            data=order.data,
        )
        self._api.engine.remember([made])
        return _json(reports.whole(made), 201)

    async def _list_faults(self, _http: web.Request) -> web.Response:
        return _json(
            {"faults": [_shown(fault) for fault in self._api.faults.armed], "kinds": MEANINGS}
        )

    async def _arm(self, http: web.Request) -> web.Response:
        try:
            spec = msgspec.json.decode(await http.read(), type=FaultSpec)
        except msgspec.DecodeError as error:
            return _refused(str(error))
        if not 0 <= spec.probability <= 1 or (spec.count is not None and spec.count < 1):
            return _refused("probability must be in [0, 1], count at least 1")
        if spec.kind == "refuse":
            if spec.duration_ms is None or not 1 <= spec.duration_ms <= 600_000:
                return _refused("refuse needs duration_ms, 1 to 600000: a closed port hears no end")
            await self._refuse(http, spec.duration_ms)
            return _json({"refusing_for_ms": spec.duration_ms})
        self._api.released.clear()
        return _json(_shown(self._api.faults.arm(spec)), 201)

    async def _clear(self, http: web.Request) -> web.Response:
        identity = http.match_info.get("identity")
        if identity is not None and not identity.isdecimal():
            return _refused("the fault's id is a number")
        self._api.faults.clear(None if identity is None else int(identity))
        self._api.released.set()
        return await self._list_faults(http)

    async def _invoices(self, _http: web.Request) -> web.Response:
        state = self._api.engine.state
        now_us = self._api.clock()
        found = [
            line.body()
            for subscription in state.subscriptions.values()
            for line in invoices.lines(state, subscription, now_us)
        ]
        return _json({"now_us": now_us, "lines": found})

    async def _subscribe(self, http: web.Request) -> web.Response:
        try:
            subscription = msgspec.json.decode(await http.read(), type=SubscriptionOrder)
        except msgspec.DecodeError as error:
            return _refused(str(error))
        if not 0 <= subscription.grace_s <= invoices.GRACE_S_MAX:
            return _refused("grace_s must be 0 to 259200: Stripe allows 72 hours at the most")
        made = Subscription(**msgspec.structs.asdict(subscription))
        self._api.engine.remember([made])
        return _json(msgspec.to_builtins(made), 201)

    async def _get_settings(self, _http: web.Request) -> web.Response:
        return _json(msgspec.to_builtins(self._api.engine.settings))

    async def _change_settings(self, http: web.Request) -> web.Response:
        settings = self._api.engine.settings
        try:
            changes = msgspec.json.decode(await http.read(), type=dict[str, Any])
            changed = msgspec.convert({**msgspec.to_builtins(settings), **changes}, type(settings))
        except msgspec.DecodeError as error:
            return _refused(str(error))
        for name in settings.__struct_fields__:
            setattr(settings, name, getattr(changed, name))
        return await self._get_settings(http)


def _shown(fault: ArmedFault) -> Body:
    spec: Body = msgspec.to_builtins(fault.spec)
    return {"id": fault.identity, "struck": fault.struck, "spent": fault.spent, **spec}


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json"
    )


def _refused(reason: str) -> web.Response:
    return _json({"error": reason}, 400)
