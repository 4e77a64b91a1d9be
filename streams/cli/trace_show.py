"""Trace, showing: a journey → its steps in the order of the path, and its JSON document."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from streams.cli.document import instant_text, timed
from streams.cli.erasures import receipt_document, receipt_text
from streams.cli.trace_read import Journey
from streams.core.instant import MINUTE_US, SECOND_US, wire_text
from streams.core.quantity import from_units


class Step(NamedTuple):
    """One step of the path; `at_us` is None where nothing has a time yet."""

    at_us: int | None
    name: str
    text: str


def steps(journey: Journey) -> list[Step]:
    """Every step reached, and what the next one waits for."""
    return [
        *_recorded(journey),
        *_verdict(journey),
        *_skipped(journey),
        *_window(journey),
        *_entries(journey),
        *_requests(journey),
        *_holds(journey),
        *_end(journey),
    ]


def _recorded(journey: Journey) -> Iterator[Step]:
    recorded = journey.recorded
    if not recorded.read:
        return
    text = (
        f"{recorded.metric} {recorded.quantity}, occurred {wire_text(recorded.occurred_at_us)}, "
        f"key {recorded.kafka_key}"
    )
    yield Step(recorded.received_at_us, "outbox row", text)
    if recorded.conflicts:
        yield Step(None, "conflicts", f"{recorded.conflicts} other contents under the same key")


def _verdict(journey: Journey) -> Iterator[Step]:
    rule = f": {journey.rule}" if journey.rule else ""
    yield Step(None, "verdict", f"{journey.verdict}{rule}, says {journey.basis or 'nobody yet'}")
    for item in journey.parked:
        where = (
            "" if item["partition"] is None else f" ({item['partition']}@{item['record_offset']})"
        )
        text = f"{item['kind']} {item['reason']}, item {item['parked_id']} {item['state']}{where}"
        if item in journey.copies:
            text = f"a copy, by decision (receipt {item['skip_receipt']}); {text}"
            yield Step(item["parked_us"], "skipped", text)
            continue
        if item["state"] == "open":
            text += f"{_against(item, journey)}: `tailrace {item['kind']} show {item['parked_id']}`"
        yield Step(item["parked_us"], "parked", text)
        if item["decided_us"] is not None:
            decision = f"{item['state']} by {item['decided_by']}: {item['why']}"
            yield Step(item["decided_us"], "decision", decision)


def _against(item: dict[str, Any], journey: Journey) -> str:
    """Of a conflict both amounts."""
    if item["reason"] != "conflict" or item["units"] is None:
        return ""
    scale = 0 if journey.meter is None else journey.meter.scale
    other = from_units(int(item["units"]), scale)
    first = journey.recorded.quantity or "what the registry has, which was not read"
    return f", says {other} where the first recording says {first}, which counts"


def _skipped(journey: Journey) -> Iterator[Step]:
    for named in journey.named:
        place = f"{named['partition']}@{named['record_offset']}"
        end = "sent again since, and judged by that" if journey.sent_again else "not billed"
        text = f"its record ({place}) was skipped, {end}; {named['actor']} named it"
        yield Step(named["named_us"], "skipped", text)


def _window(journey: Journey) -> Iterator[Step]:
    series, meter = journey.series, journey.meter
    if series is None or meter is None or meter.publish != "window":
        return
    minutes = (series.window_end_us - series.window_start_us) // MINUTE_US
    yield Step(series.window_start_us, "window", f"{minutes} min, meter version {meter.version}")
    for level in journey.levels:
        held = ", held: its readings contradict each other" if level["held"] else ""
        text = f"{level['count']} events, {level['total']} units, shard {level['shard']}{held}"
        yield Step(level["updated_us"], "level", text)
        if level["due_us"] is not None:
            yield Step(level["due_us"], "due", "the next entry is cut then")
    if not journey.levels and journey.verdict == "accepted":
        yield Step(None, "level", "not yet told to the ledger")


def _entries(journey: Journey) -> Iterator[Step]:
    for entry in journey.entries:
        revision = "" if entry["revision"] is None else f" revision {entry['revision']}"
        text = f"{entry['entry_id']} {entry['kind']}{revision}, {entry['delta']:+d} units"
        yield Step(entry["created_us"], "entry", text)


def _requests(journey: Journey) -> Iterator[Step]:
    for event in journey.meter_events:
        text = (
            f"{event['meter_event_id']} {event['event_name']} {event['value'] or 0} for "
            f"{event['customer']}, {event['state']}"
        )
        yield Step(event["created_us"], "meter event", text)
        for attempt in journey.attempts:
            if attempt["meter_event_id"] == event["meter_event_id"]:
                yield Step(attempt["started_us"], "attempt", _attempt(attempt))
        if event["settled_us"] is not None:
            timestamp = "" if event["timestamp_s"] is None else _dated(event["timestamp_s"])
            yield Step(event["settled_us"], "settlement", f"{event['state']}{timestamp}")
        elif event["next_attempt_us"] is not None:
            yield Step(event["next_attempt_us"], "next attempt", f"after {event['attempts_used']}")


def _dated(timestamp_s: int) -> str:
    return f", counted by Stripe at {wire_text(timestamp_s * SECOND_US)}"


def _attempt(attempt: dict[str, Any]) -> str:
    said = [
        str(attempt[name])
        for name in ("outcome", "http_status", "code", "request_id", "cause", "message")
        if attempt[name] is not None
    ]
    return f"{attempt['attempt_id']} by {attempt['worker']}: {' '.join(said) or 'no answer yet'}"


def _holds(journey: Journey) -> Iterator[Step]:
    """In the order in which they must go: a number each where there are several."""
    several = len(journey.holds) > 1
    for number, hold in enumerate(journey.holds, 1):
        yield Step(None, f"waits {number}" if several else "waits", str(hold))


def _end(journey: Journey) -> Iterator[Step]:
    if journey.sealed_us is not None:
        yield Step(journey.sealed_us, "proven", "an audit sealed its minute")
    for erasure in journey.erasures:
        yield Step(erasure["erased_us"], "erased", f"its words; {receipt_text(erasure)}")


def document(journey: Journey) -> dict[str, Any]:
    """The journey as JSON."""
    recorded, series = journey.recorded, journey.series
    return {
        "event_id": recorded.event_id,
        "kind": recorded.kind,
        "recorded": {
            "metric": recorded.metric,
            "quantity": recorded.quantity,
            "kafka_key": recorded.kafka_key,
            "shard": recorded.shard,
            "occurred_at": wire_text(recorded.occurred_at_us),
            "received_at": wire_text(recorded.received_at_us),
            "conflicts": recorded.conflicts,
        }
        if recorded.read
        else None,
        "verdict": {"class": journey.verdict, "basis": journey.basis, "rule": journey.rule},
        "window": None
        if series is None
        else {
            "start": wire_text(series.window_start_us),
            "end": wire_text(series.window_end_us),
            "version": series.catalogue_version,
        },
        "parked": [timed(row) for row in journey.parked],
        "levels": [timed(row) for row in journey.levels],
        "entries": [timed(row) for row in journey.entries],
        "meter_events": [timed(row) for row in journey.meter_events],
        "attempts": [timed(row) for row in journey.attempts],
        "waiting": [timed(row) for row in journey.waiting],
        "erasures": [receipt_document(erasure) for erasure in journey.erasures],
        "holds": [hold._asdict() for hold in journey.holds],
        "sealed_at": instant_text(journey.sealed_us),
        "steps": [
            {
                "at": instant_text(step.at_us),
                "step": step.name,
                "text": step.text,
            }
            for step in steps(journey)
        ],
    }
