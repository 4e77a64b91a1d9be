"""What was accepted and refused afterwards → error reports, and every event as Stripe shows it.

In: the state and a time. Out: reports that are due, each for one meter and ten seconds of receipt,
with all errors counted and the first few named; bodies of events, thin and whole; pages of a list.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from sandbox.stripe_sandbox import errors, parameters
from sandbox.stripe_sandbox.errors import Body, RefusedError
from sandbox.stripe_sandbox.fact import Recorded, Reported
from sandbox.stripe_sandbox.settings import US_PER_S, Settings
from sandbox.stripe_sandbox.state import VALIDATION_US, Group, State
from streams.core.instant import DAY_US, wire_text

KEPT_US: Final = 30 * DAY_US
"""How long an event can be fetched."""


def due(state: State, settings: Settings, now_us: int) -> list[Reported]:
    """Reports of validations that have ended."""
    latest_us = now_us - VALIDATION_US - settings.report_lag_s * US_PER_S
    if not state.unreported or state.report_of(state.unreported[0])[2] > latest_us:
        # Asked at every request: what came first is what is due first.
        return []
    groups: dict[Group, list[Recorded]] = {}
    for event in state.unreported:
        groups.setdefault(state.report_of(event), []).append(event)
    ended = [group for group in groups if group[2] <= latest_us]
    ended.sort(key=lambda group: (group[2], group[0], group[1] or ""))
    return [
        _report(group, groups[group], settings, len(state.reports) + number, now_us)
        for number, group in enumerate(ended)
    ]


def _report(
    group: Group, events: Iterable[Recorded], settings: Settings, number: int, now_us: int
) -> Reported:
    event_type, meter_id, window_us = group
    codes: dict[str, list[Recorded]] = {}
    for event in events:
        codes.setdefault(event.refused or "unknown", []).append(event)
    count = sum(len(refused) for refused in codes.values())
    data = {
        "developer_message_summary": f"There were {count} invalid meter events.",
        "reason": {
            "error_count": count,
            "error_types": [
                {
                    "code": code,
                    "error_count": len(refused),
                    "sample_errors": [
                        _sample(event, settings) for event in refused[: settings.samples_max]
                    ],
                }
                for code, refused in codes.items()
            ],
        },
        "validation_start": wire_text(window_us),
        "validation_end": wire_text(window_us + VALIDATION_US),
    }
    seed = f"{event_type}\n{meter_id}\n{window_us}\n{number}"
    return Reported(
        id=event_id(seed),
        kind=event_type,
        created_us=now_us,
        meter_id=meter_id,
        data=msgspec.Raw(msgspec.json.encode(data)),
        window_us=window_us,
    )


def event_id(seed: str) -> str:
    """An event's id: the same for the same seed."""
    return f"evt_test_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"


def _sample(event: Recorded, settings: Settings) -> Body:
    key = event.idempotency_key or event.identifier
    shapes: dict[str, Body] = {
        "key_as_identifier": {"identifier": key},
        "identifier": {"identifier": event.identifier},
        "key": {
            "id": f"req_{hashlib.sha256(key.encode()).hexdigest()[:14]}",
            "idempotency_key": key,
        },
    }
    message = f"The meter event was refused: {event.refused}."
    return {"error_message": message, "request": shapes[settings.sample_shape]}


def notification(report: Reported) -> Body:
    """The thin event, as a webhook carries it."""
    body: Body = {
        "id": report.id,
        "object": "v2.core.event",
        "type": report.kind,
        "created": wire_text(report.created_us),
        "livemode": False,
        "context": None,
    }
    if report.meter_id is not None:
        url = f"/v1/billing/meters/{report.meter_id}"
        body["related_object"] = {"id": report.meter_id, "type": "billing.meter", "url": url}
    return body


def whole(report: Reported) -> Body:
    """The event as it is fetched."""
    return {**notification(report), "reason": None, "changes": None, "data": report.data}


def find(state: State, identity: str, now_us: int) -> Reported:
    """An event by its id.

    Raises:
        RefusedError: There is none, or it is older than 30 days.
    """
    report = state.reports.get(identity)
    if report is None or now_us - report.created_us > KEPT_US:
        raise RefusedError(errors.refused_v2("not_found", f"No such event: '{identity}'", 404))
    return report


def page(state: State, query: Mapping[str, str], now_us: int) -> Body:
    """A page of events, youngest first; 20 unless asked otherwise, 100 at most.

    Raises:
        RefusedError: A parameter breaks a rule.
    """
    limit = parameters.integer(dict(query), "limit") or 20
    if not 1 <= limit <= 100:
        raise RefusedError(errors.refused_v2("invalid_limit", "limit must be 1 to 100"))
    asked = {name: text for name, text in query.items() if name not in {"limit", "page"}}
    # A page's address repeats the question, so that no question changes between two pages.
    first = _cursor(query.get("page"))
    found = [r for r in reversed(state.reports.values()) if _matches(r, asked, now_us)]
    last = first + limit
    rest = "&".join(f"{name}={text}" for name, text in asked.items())
    following = f"/v2/core/events?limit={limit}&page={_token(last)}&{rest}".rstrip("&")
    return {
        "data": [whole(report) for report in found[first:last]],
        "next_page_url": following if last < len(found) else None,
        "previous_page_url": None,
    }


def _matches(report: Reported, asked: Mapping[str, str], now_us: int) -> bool:
    types = {text for name, text in asked.items() if name.startswith("types")}
    if now_us - report.created_us > KEPT_US or (types and report.kind not in types):
        return False
    bounds = {
        "created[gt]": lambda at: report.created_us > at,
        "created[gte]": lambda at: report.created_us >= at,
        "created[lt]": lambda at: report.created_us < at,
        "created[lte]": lambda at: report.created_us <= at,
    }
    if not all(bounds[name](_instant(text)) for name, text in asked.items() if name in bounds):
        return False
    return asked.get("object_id") in {None, report.meter_id}


def _instant(text: str) -> int:
    try:
        return parameters.instant_us(text)
    except ValueError:
        raise RefusedError(
            errors.refused_v2("invalid_timestamp", f"Invalid timestamp: {text}")
        ) from None


def _token(first: int) -> str:
    return base64.urlsafe_b64encode(str(first).encode()).decode().rstrip("=")


def _cursor(token: str | None) -> int:
    if token is None:
        return 0
    try:
        return int(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except ValueError:
        raise RefusedError(errors.refused_v2("invalid_page", f"Invalid page: {token}")) from None
