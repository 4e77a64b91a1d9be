"""What a log must come to, told a second time: dates and decimals instead of integers and marks.

Slow and plain on purpose; it shares no rule with the code under test but the wire format.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from tests.support.events import T0_US, Record

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LIMIT: Final = Decimal(10) ** 15


class Rule(NamedTuple):
    version: int
    since: datetime
    window: timedelta
    places: int = 0
    skew: timedelta = timedelta(hours=24)
    each: bool = False
    counts: bool = False


_HOUR: Final = timedelta(hours=1)
RULES: Final = {
    "api_calls": (
        Rule(1, EPOCH, _HOUR),
        Rule(2, EPOCH + timedelta(microseconds=T0_US, days=1), timedelta(days=1)),
    ),
    "storage": (Rule(1, EPOCH, timedelta(minutes=1), places=2, skew=_HOUR),),
    "jobs": (Rule(1, EPOCH, _HOUR, each=True),),
    "calls": (Rule(1, EPOCH, _HOUR, each=True, counts=True),),
}
"""The same rule book as `tests.support.events.METERS`."""


@dataclass(slots=True)
class Sum:
    birth: int
    count: int = 0
    total: int = 0
    digest: int = 0
    last: int = -1

    def add(self, at: int, units: int, content: str) -> None:
        self.last = at
        self.count += 1
        self.total += units
        self.digest = (self.digest + int(content, 16)) % 2**128


@dataclass(slots=True)
class Oracle:
    """Reads a log once, in order."""

    floor: datetime | None = None
    names: list[str] = field(default_factory=list)
    levels: dict[tuple[Any, ...], Sum] = field(default_factory=dict)
    cells: dict[tuple[str, datetime, str], Sum] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    corrections: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    others: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def read(self, log: Sequence[Record]) -> "Oracle":
        for record in log:
            self.names.append(self._read(record))
        return self

    def _read(self, record: Record) -> str:
        try:
            wire = msgspec.json.decode(record.value or b"")
        except ValueError:
            return "dead"
        if not isinstance(wire, dict) or "type" not in wire:
            return "dead"
        identity, content = wire["event_id"], wire["content"]
        if wire["type"] == "conflict" or self.first.get(identity, content) != content:
            if content in self.others[identity]:
                return "duplicate"
            self.others[identity].add(content)
            name = "conflict"
        elif identity in self.first:
            return "duplicate"
        else:
            self.first[identity] = content
            name = getattr(self, f"_{wire['type']}")(wire, record)
        minute = datetime.fromisoformat(wire["received_at"]).replace(second=0, microsecond=0)
        cell = self.cells.setdefault((wire["source"], minute, name), Sum(record.offset))
        cell.add(record.offset, 0, content)
        return name

    def _usage(self, wire: dict[str, Any], record: Record) -> str:
        occurred = datetime.fromisoformat(wire["occurred_at"])
        received = datetime.fromisoformat(wire["received_at"])
        logged = EPOCH + timedelta(milliseconds=record.timestamp_ms)
        if occurred > received + timedelta(minutes=5) or received > logged + _HOUR:
            return "review"
        rule = _rule(wire["metric"], occurred)
        units = Decimal(wire["quantity"]).scaleb(rule.places) if rule else Decimal(-1)
        if rule is None or units < 0 or units % 1 or (rule.counts and units != 1):
            return "dead"
        forgotten = self.floor is not None and received <= self.floor
        if units >= _LIMIT or forgotten or received > occurred + rule.skew:
            return "review"
        if rule.each:
            self.entries[wire["event_id"]] = int(units)
        else:
            start = EPOCH + (occurred - EPOCH) // rule.window * rule.window
            series = (wire["tenant_id"], wire["metric"], rule.version, start, wire["shard"])
            level = self.levels.setdefault(series, Sum(record.offset))
            level.add(record.offset, int(units), wire["content"])
        return "accepted"

    def _correction(self, wire: dict[str, Any], _record: Record) -> str:
        rule = _rule(wire["metric"], datetime.fromisoformat(wire["occurred_at"]))
        if rule is None or rule.counts:
            return "dead"
        units = Decimal(wire["delta"]).scaleb(rule.places)
        if units % 1:
            return "dead"
        if abs(units) >= _LIMIT or wire["review"]:
            return "review"
        self.corrections[wire["event_id"]] = int(units)
        return "correction"

    def _canary(self, _wire: dict[str, Any], _record: Record) -> str:
        return "canary"


def _rule(metric: str, occurred: datetime) -> Rule | None:
    in_force = [rule for rule in RULES.get(metric, ()) if rule.since <= occurred]
    return in_force[-1] if in_force else None
