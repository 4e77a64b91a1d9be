"""A CloudEvent in structured mode → the usage event that it tells of.

| CloudEvents 1.0 | usage event |
|---|---|
| `source`, `id` | `event_key`: both in one JSON list, so no two pairs share a key |
| `subject` | `tenant_id` |
| `data.metric`, else `type` | `metric` |
| `data.quantity` | `quantity` |
| `time` | `occurred_at`, cut to the microsecond |
| `data.attributes` | `attributes` |

Other attributes of the envelope are the transport's and are not kept.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from streams.ingest.outcome import Asked, Problem, Refused

_DATA: Final = ("metric", "quantity", "attributes")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def usage_of(path: str, value: object) -> Asked | Refused:
    """The usage event, or the first rule of CloudEvents or of ours that it breaks.

    Args:
        path: JSONPath of the event in the body.
        value: as it was decoded.
    """
    if not isinstance(value, Mapping):
        fix = "send one CloudEvent in structured mode"
        return Refused(Problem(path, "must be an object", fix))
    event = Asked(path, value)
    for check in (_envelope, _content):
        problem = check(event, value)
        if problem is not None:
            return Refused(problem)
    return _asked(path, value)


def _envelope(event: Asked, value: Mapping[str, object]) -> Problem | None:
    if value.get("specversion") != "1.0":
        return event.problem("specversion", "must be '1.0'", "send CloudEvents 1.0")
    for name in ("id", "source", "type", "subject"):
        text = value.get(name)
        if not isinstance(text, str) or not text:
            return event.problem(
                name, "must be a text that is not empty", "the tenant is `subject`"
            )
    time = value.get("time")
    if time is not None and (not isinstance(time, str) or _TIME.fullmatch(time) is None):
        fix = "write it as 2026-11-29T15:01:09.817658Z"
        return event.problem("time", "must be an instant of RFC 3339", fix)
    return None


def _content(event: Asked, value: Mapping[str, object]) -> Problem | None:
    if "data_base64" in value:
        return event.problem("data_base64", "is not taken", "send `data` as JSON")
    kind = value.get("datacontenttype")
    if kind is not None and (not isinstance(kind, str) or _essence(kind) != "application/json"):
        return event.problem("datacontenttype", "must be application/json", "send `data` as JSON")
    data = value.get("data")
    if not isinstance(data, Mapping):
        return event.problem("data", "must be an object", 'send {"quantity": …} as `data`')
    unknown = sorted(data.keys() - set(_DATA))
    if unknown:
        fix = f"known are {', '.join(_DATA)}; put the rest into `attributes`"
        return event.problem(f"data.{unknown[0]}", "is not a field of an event", fix)
    return None


def _essence(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _asked(path: str, value: Mapping[str, object]) -> Asked:
    data = value["data"]
    members = dict(data) if isinstance(data, Mapping) else {}
    of_data = members.get("metric") is not None
    time = value.get("time")
    item = {
        **members,
        "metric": members["metric"] if of_data else value["type"],
        "tenant_id": value["subject"],
        "event_key": msgspec.json.encode([value["source"], value["id"]]).decode(),
        "occurred_at": _instant(time) if isinstance(time, str) else None,
    }
    names = {
        "tenant_id": "subject",
        "event_key": "id",
        "occurred_at": "time",
        "metric": "data.metric" if of_data else "type",
        "quantity": "data.quantity",
        "attributes": "data.attributes",
    }
    return Asked(path, item, names)


def _instant(time: str) -> str:
    """The same instant as SQL takes it; producers in other languages write nanoseconds.

    Cut and not rounded: a retry says the same text, and so comes to the same instant.
    """
    found = _TIME.fullmatch(time)
    if found is None:  # refused before
        return time
    date, clock, fraction, zone = found.groups()
    return f"{date}T{clock}{(fraction or '')[:7]}{zone.upper()}"
