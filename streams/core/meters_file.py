"""meters.toml → the lines to append to the catalogue, or every problem in it at once.

In: the text of the file and the history in the ledger. Out: new `MeterVersion`s (none when nothing
changed), each dated so that no event already judged would be judged differently.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast, get_args

from streams.core.aggregation import AGGREGATIONS
from streams.core.catalogue import (
    BEGINNING_US,
    DEFAULT_SKEW_US,
    PLAIN_NAME,
    RULES,
    Carry,
    MeterVersion,
    Publish,
)
from streams.core.instant import DAY_US, MINUTE_US, duration_us, to_us, wire_text
from streams.core.window import WINDOW_LENGTHS_US

SCALE_MAX: Final = 12
WAY_MAX_US: Final = 34 * DAY_US
"""Stripe takes dates up to 35 days back; a day is left for outages. `skew_max` and `close_delay`
together may take no more, or usage that is on time could not be sent any more."""
_WAY_MAX: Final = f"{WAY_MAX_US // DAY_US}d, since Stripe takes usage for 35 days"
_KEYS: Final = frozenset(
    {
        "event_name", "window", "publish", "scale", "skew_max", "close_delay", "carry",
        "effective_from", "aggregation",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MeterProblem:
    """One broken rule, by the path in the file."""

    path: str
    rule: str

    def __str__(self) -> str:
        """`meters.api_calls.scale: must be …`."""
        return f"{self.path}: {self.rule}"


@dataclass(frozen=True, slots=True)
class Meters:
    """What a file asks for, one entry a meter; `effective_from_us` is None where not given."""

    wanted: tuple[tuple[MeterVersion, int | None], ...]
    problems: tuple[MeterProblem, ...]


def parse(text: str) -> Meters:
    """Reads and checks the file by itself, without regard to any history."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Meters((), (MeterProblem("meters.toml", f"is not TOML: {error}"),))
    problems = [
        MeterProblem(name, "unknown table; meters stand under [meters.NAME]")
        for name in document
        if name != "meters"
    ]
    meters = document.get("meters")
    if not isinstance(meters, dict) or not meters:
        problems.append(
            MeterProblem("meters", "is missing or empty; add at least one [meters.NAME]")
        )
        return Meters((), tuple(problems))
    wanted = []
    for name, table in meters.items():
        reader = _Reader(f"meters.{name}", table if isinstance(table, dict) else {}, problems)
        if not isinstance(table, dict):
            reader.problem("", "must be a table: [meters.NAME] with its settings below")
        if PLAIN_NAME.fullmatch(name) is None or name.startswith("tailrace."):
            reader.problem("", "a name has 1 to 100 of A-Z a-z 0-9 _ . : - and no tailrace. prefix")
        wanted.append(_meter(name, reader))
    meant = [meter for meter, _ in wanted]
    problems += _at_odds(meant, meant)
    return Meters(tuple(wanted), tuple(problems))


def plan(
    history: Sequence[MeterVersion], meters: Meters, now_us: int, notice_us: int
) -> tuple[list[MeterVersion], list[MeterProblem]]:
    """The lines to append so that the catalogue says what the file says.

    A metric's first line may date from the beginning: nothing was judged by another. A change lies
    at least `notice_us` ahead and on a boundary of its old and its new windows; without an
    `effective_from` the next such instant is taken.
    """
    newest: dict[str, MeterVersion] = {}
    for line in sorted(history, key=lambda v: v.version):
        newest[line.metric] = line
    additions: list[MeterVersion] = []
    problems: list[MeterProblem] = []
    for wanted, effective_us in meters.wanted:
        current = newest.get(wanted.metric)
        if current is None:
            additions.append(wanted._replace(effective_from_us=effective_us or BEGINNING_US))
        elif not _same_rules(current, wanted):
            step = math.lcm(current.window_us, wanted.window_us)
            earliest = -(-max(now_us + notice_us, current.effective_from_us + 1) // step) * step
            chosen = earliest if effective_us is None else effective_us
            if chosen < earliest or chosen % step:
                rule = (
                    f"a change takes effect at {wire_text(earliest)} at the earliest and on a "
                    f"multiple of {step // MINUTE_US} min, so that no judged event changes"
                )
                problems.append(MeterProblem(f"meters.{wanted.metric}.effective_from", rule))
            additions.append(wanted._replace(version=current.version + 1, effective_from_us=chosen))
    problems += _at_odds(additions, history)
    return (additions, problems) if not problems else ([], problems)


def _at_odds(meters: Sequence[MeterVersion], others: Sequence[MeterVersion]) -> list[MeterProblem]:
    """Meters that would add up in one meter of Stripe's with others that count something else.

    Versions that are no longer in force count too: Stripe still has what they sent.
    """
    problems = []
    for meter in meters:
        sharing = [other for other in others if other.event_name == meter.event_name]
        scale = next((o for o in sharing if o.scale != meter.scale), None)
        counted = next((o for o in sharing if o.aggregation != meter.aggregation), None)
        path = f"meters.{meter.metric}"
        if scale is not None:
            rule = (
                f"event name {meter.event_name} counts units of scale {scale.scale} by "
                f"meters.{scale.metric}, not of scale {meter.scale}; use another event_name"
            )
            problems.append(MeterProblem(f"{path}.scale", rule))
        if counted is not None:
            rule = (
                f"event name {meter.event_name} is a {counted.aggregation} by "
                f"meters.{counted.metric}, not a {meter.aggregation}; use another event_name"
            )
            problems.append(MeterProblem(f"{path}.aggregation", rule))
    return problems


def _same_rules(left: MeterVersion, right: MeterVersion) -> bool:
    return left._replace(version=0, effective_from_us=0) == right._replace(
        version=0, effective_from_us=0
    )


def _meter(name: str, reader: "_Reader") -> tuple[MeterVersion, int | None]:
    for key in reader.table:
        if key not in _KEYS:
            reader.problem(key, f"unknown setting; known are {', '.join(sorted(_KEYS))}")
    window = reader.choice("window", "hour", tuple(WINDOW_LENGTHS_US))
    publish = cast("Publish", reader.choice("publish", "window", get_args(Publish)))
    aggregation = reader.choice("aggregation", "sum", tuple(AGGREGATIONS))
    if not AGGREGATIONS[aggregation].signed and publish != "event":
        reader.problem("aggregation", f'{aggregation} meters have no levels; set publish = "event"')
    meter = MeterVersion(
        metric=name,
        version=1,
        event_name=reader.text("event_name", name),
        window_us=WINDOW_LENGTHS_US[window],
        publish=publish,
        scale=reader.whole("scale", 0, SCALE_MAX),
        skew_max_us=reader.duration("skew_max", DEFAULT_SKEW_US),
        close_delay_us=reader.duration("close_delay", MINUTE_US),
        carry=cast("Carry", reader.choice("carry", "review", get_args(Carry))),
        aggregation=aggregation,
        rules=RULES,
        effective_from_us=BEGINNING_US,
    )
    if meter.skew_max_us + meter.close_delay_us > WAY_MAX_US:
        reader.problem("close_delay", f"with skew_max must be at most {_WAY_MAX}")
    return meter, reader.instant("effective_from")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Takes settings out of one table; whatever is wrong becomes a problem and a default."""

    path: str
    table: Mapping[str, Any]
    problems: list[MeterProblem]

    def problem(self, key: str, rule: str) -> None:
        self.problems.append(MeterProblem(f"{self.path}.{key}" if key else self.path, rule))

    def text(self, key: str, default: str) -> str:
        value = self.table.get(key, default)
        if not isinstance(value, str) or not 1 <= len(value) <= 100 or not value.isprintable():
            self.problem(key, "must be text of 1 to 100 printable characters")
            return default
        return value

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.table.get(key, default)
        if value not in choices:
            self.problem(key, f"must be one of {', '.join(choices)}")
            return default
        return str(value)

    def whole(self, key: str, default: int, most: int) -> int:
        value = self.table.get(key, default)
        if type(value) is not int or not 0 <= value <= most:
            self.problem(key, f"must be a whole number from 0 to {most}")
            return default
        return value

    def duration(self, key: str, default_us: int) -> int:
        value = self.table.get(key)
        if value is None:
            return default_us
        try:
            found_us = duration_us(value if isinstance(value, str) else str(value))
        except ValueError as error:
            self.problem(key, str(error))
            return default_us
        if found_us > WAY_MAX_US:
            self.problem(key, f"must be at most {_WAY_MAX}")
            return default_us
        return found_us

    def instant(self, key: str) -> int | None:
        value = self.table.get(key)
        if value is None:
            return None
        try:
            parsed = datetime.fromisoformat(value) if isinstance(value, str) else value
            if isinstance(parsed, datetime):
                return to_us(parsed)
        except ValueError:
            pass
        self.problem(key, "must be an instant with a time zone, as in 2026-12-01T00:00:00Z")
        return None
