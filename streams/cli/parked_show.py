"""One parked item in full: where it came from, what it says, and what each decision would do."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from streams.cli import terminal
from streams.cli.database import Connection, connected, decision_rows
from streams.cli.document import instant_text, timed
from streams.cli.errors import UsageProblemError
from streams.cli.parked_outcomes import Outcome, outcomes_of, told
from streams.cli.parked_versions import Version, read_versions
from streams.cli.queues import rule_of
from streams.cli.stack import Stack
from streams.core.instant import SECOND_US
from streams.core.quantity import from_units

Row = dict[str, Any]


def show_item(kind: str, stack: Stack, item: int, *, as_json: bool) -> None:
    """Prints one item.

    Raises:
        UsageProblemError: there is no such item of this kind.
        psycopg.Error: the ledger refused or went away.
    """
    shown = read_item(kind, stack, item)
    if as_json:
        terminal.emit_json(shown.document())
        return
    lines = _lines(shown.parked, shown.attempts, shown.decisions, shown.versions)
    for line in (*lines, *(f"{effect}:\n    {command}" for command, effect in shown.outcomes)):
        terminal.data(line)


class Shown(NamedTuple):
    """One item with everything that a person decides by."""

    parked: Row
    attempts: list[Row]
    decisions: list[Row]
    versions: list[Version]
    outcomes: list[Outcome]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return _document(*self)


def read_item(kind: str, stack: Stack, item: int) -> Shown:
    """Reads one item of a kind, `review` or `dead`.

    Raises:
        UsageProblemError: there is no such item of this kind.
        psycopg.Error: the ledger refused or went away.
    """
    settings = stack.need("ledger_dsn")
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        found = decision_rows(ledger, "parked_item", {"item": item})
        if not found or found[0]["kind"] != kind:
            raise UsageProblemError(
                f"ITEM: {item} is no {kind} item of this ledger",
                fix=f"see the numbers with `tailrace {kind} list`",
            )
        parked = found[0]
        attempts = _attempts(ledger, parked)
        decisions = decision_rows(ledger, "item_decisions", {"item": item})
        versions = read_versions(ledger, stack, parked)
    outcomes = list(outcomes_of(parked, attempts, versions))
    return Shown(parked, attempts, decisions, versions, outcomes)


def _lines(
    parked: Row, attempts: list[Row], decisions: list[Row], versions: list[Version]
) -> Iterator[str]:
    yield from terminal.table(("", ""), list(_facts(parked)))[1:]
    yield from (f"version     {version.text()}" for version in versions)
    yield from (f"entry       {_entry_text(entry)}" for entry in told(parked, "entries"))
    yield from (f"attempt     {_attempt_text(attempt)}" for attempt in attempts)
    for rejection in told(parked, "rejections"):
        yield f"taken back  {rejection['code']}: {rejection['message'] or ''}"
    for decision in decisions:
        at = instant_text(decision["decided_us"])
        yield f"decided     {decision['action']} by {decision['actor']} at {at}"
        yield f"            {decision['reason']}"


def _attempts(ledger: Connection, parked: Row) -> list[Row]:
    if parked["meter_event_id"] is None:
        return []
    return decision_rows(ledger, "item_attempts", {"event": parked["meter_event_id"]})


def _facts(parked: Row) -> Iterator[tuple[str, object]]:
    stands = f"{parked['kind']} {parked['reason']}, {parked['state']}"
    facts: list[tuple[str, object]] = [
        (f"item {parked['parked_id']}", stands),
        ("rule", rule_of(parked)),
        ("tenant", parked["tenant_id"]),
        ("metric", parked["metric"]),
        ("amount", _amount(parked)),
        ("window", _window(parked)),
        ("occurred", instant_text(parked["occurred_us"])),
        ("received", instant_text(parked["received_us"])),
        ("parked", instant_text(parked["parked_us"])),
        ("record", _coordinates(parked)),
        ("bytes", _original_text(parked["record"])),
        ("request", _request_text(parked)),
    ]
    return ((name, value) for name, value in facts if value)


def _window(parked: Row) -> str | None:
    if parked["window_start_us"] is None:
        return None
    return f"{instant_text(parked['window_start_us'])} to {instant_text(parked['window_end_us'])}"


def _coordinates(parked: Row) -> str | None:
    if parked["log_topic"] is None:
        return None
    place = f"{parked['log_topic']}, partition {parked['partition']}"
    return f"{place}, offset {parked['record_offset']}"


def _request_text(parked: Row) -> str | None:
    if parked["identifier"] is None:
        return None
    dated = instant_text(parked["timestamp_s"] * SECOND_US)
    return (
        f"{parked['customer']} {parked['event_name']} {parked['value']}, dated {dated}, "
        f"{parked['identifier']}"
    )


def _amount(parked: Row) -> str | None:
    if parked["units"] is None:
        return None
    units = f"{parked['units']} units"
    if parked["scale"]:
        return f"{from_units(int(parked['units']), parked['scale'])} ({units})"
    return units


def _original_text(record: bytes | None) -> str | None:
    return None if record is None else record.decode("utf-8", "backslashreplace")


def _attempt_text(attempt: Row) -> str:
    said = [
        str(attempt[name])
        for name in ("outcome", "http_status", "code", "request_id", "cause", "message")
        if attempt[name] is not None
    ]
    started = instant_text(attempt["started_us"])
    return f"{attempt['attempt_id']} at {started}: {' '.join(said) or 'no answer yet'}"


def _entry_text(entry: Row) -> str:
    """Where an amount of the request came from."""
    text = f"{entry['entry_id']}: {entry['kind']} {entry['delta']:+d}"
    if entry.get("offset") is not None:
        text += f", partition {entry['partition']}, offset {entry['offset']}"
    if entry.get("event_id") is not None:
        text += f", identity {entry['event_id']}"
    return text


def _document(
    parked: Row,
    attempts: list[Row],
    decisions: list[Row],
    versions: list[Version],
    outcomes: list[Outcome],
) -> dict[str, Any]:
    return {
        "item": parked["parked_id"],
        "kind": parked["kind"],
        "reason": parked["reason"],
        "rule": rule_of(parked),
        "state": parked["state"],
        "source": parked["source"],
        "tenant_id": parked["tenant_id"],
        "metric": parked["metric"],
        "units": parked["units"],
        "event_id": parked["event_id"],
        **{
            f"{name}_at": instant_text(parked[f"{name}_us"])
            for name in ("occurred", "received", "parked", "decided")
        },
        "window_start": instant_text(parked["window_start_us"]),
        "window_end": instant_text(parked["window_end_us"]),
        "window_units": parked["window_units"],
        "deadline_at": instant_text(parked["deadline_us"]),
        "closed": parked["closed"],
        "record": None
        if parked["log_topic"] is None
        else {
            "topic": parked["log_topic"],
            "partition": parked["partition"],
            "offset": parked["record_offset"],
            "text": _original_text(parked["record"]),
        },
        "request": None
        if parked["identifier"] is None
        else {
            name: parked[name]
            for name in (
                "meter_event_id", "customer", "event_name", "value", "timestamp_s", "identifier",
                "generation", "possibly_executed",
            )
        } | {"state": parked["request_state"]},
        "versions": [version.document() for version in versions],
        "attempts": [timed(attempt) for attempt in attempts],
        "decisions": [timed(decision) for decision in decisions],
        "detail": msgspec.json.decode(parked["detail"]),
        "outcomes": [{"command": command, "effect": effect} for command, effect in outcomes],
    }  # fmt: skip
