"""A statement as found → its document, which every form of it is made of."""

from collections import defaultdict
from typing import Any

from streams.cli.document import instant_text, timed
from streams.cli.erasures import receipt_document
from streams.cli.statement_read import Found
from streams.core.instant import wire_text
from streams.core.statement import Placed
from streams.core.statement_line import RIGHT, Line, Span, totals

AMOUNTS = ("recorded", "corrected", "moved", *RIGHT, "difference")


def document_of(found: Found, month: str, down_to: str) -> dict[str, Any]:
    """The JSON document; down to metrics it lists only the windows that do not foot."""
    wanted = found.wanted
    shown = [line for line in found.lines if down_to != "metric" or not line.foots]
    return {
        "tenant_id": wanted.tenant,
        "month": month,
        "down_to": down_to,
        "from": wire_text(wanted.from_us),
        "to": wire_text(wanted.to_us),
        "recorded_by": found.registry.source,
        "registry_unread": found.registry.why_not or None,
        "customers": [
            {"customer": line.customer, "effective_from": instant_text(line.effective_from_us)}
            for line in found.customers
        ],
        "erasures": [receipt_document(erasure) for erasure in found.erasures],
        # Windows that are wrong by opposite amounts do not make a month that is right.
        "foots": all(line.foots for line in found.lines),
        "metrics": [_line(line) for line in totals(found.lines)],
        "windows": _windows(found, shown, events=down_to == "event"),
    }


def _windows(found: Found, shown: list[Line], *, events: bool) -> list[dict[str, Any]]:
    if not events:
        return [_line(line) for line in shown]
    placed: dict[Span, list[dict[str, Any]]] = defaultdict(list)
    for each in found.events:
        placed[each.span].append(_event(each))
    entries: dict[Span, list[dict[str, Any]]] = defaultdict(list)
    for row in found.entries:
        span = Span(row.pop("metric"), row.pop("start_us"), row.pop("end_us"))
        entries[span].append(timed(row))
    return [
        {**_line(line), "usage": placed[line.span], "entries": entries[line.span]} for line in shown
    ]


def _line(line: Line) -> dict[str, Any]:
    return {
        "metric": line.span.metric,
        "window_start": wire_text(line.span.start_us),
        "window_end": wire_text(line.span.end_us),
        "events": line.events,
        **{name: str(getattr(line, name)) for name in AMOUNTS},
        "unusable": line.unusable,
        "missing": line.missing,
        "proven": line.proven,
        "newest_received_at": instant_text(line.newest_us),
        "foots": line.foots,
    }


def _event(placed: Placed) -> dict[str, Any]:
    event = placed.event
    return {
        "event_id": event.event_id,
        "event_key": event.event_key,
        "quantity": event.quantity,
        "units": None if placed.units is None else str(placed.units),
        "occurred_at": wire_text(event.occurred_us),
        "received_at": wire_text(event.received_us),
        "where": placed.where,
        "item": placed.item,
    }
