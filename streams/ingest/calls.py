"""A call's body and its content type → the events in it, or why there are none.

Every number keeps its digits: quantities are exact from the producer's text to the database. What a
rule of usage says is not asked here but in SQL, where all rules are; here stands only what cannot
be told to the database at all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from streams.ingest.cloudevents import usage_of
from streams.ingest.limits import EVENTS_MAX
from streams.ingest.outcome import Asked, CallRefusedError, Problem, Refused

DEPTH_MAX: Final = 32
DIGITS_MAX: Final = 100
"""Of a number; every quantity has fewer, and PostgreSQL refuses a whole call for a longer one."""
_LEAST_LONG: Final[int] = 10**DIGITS_MAX
_DECODER: Final = msgspec.json.Decoder(float_hook=Decimal)
_NO_MEMBER: Final = ("is not a field of an event", "leave it out: conflicts always go to review")


@dataclass(frozen=True, slots=True)
class Call:
    """What a producer sent."""

    many: bool
    """Whether it was a list, so that the answer is one."""
    events: tuple[Asked | Refused, ...]
    """In the order of the body."""


Reader = Callable[[str, object], Asked | Refused]


def usage_event(path: str, value: object) -> Asked | Refused:
    """An event in our own words."""
    if not isinstance(value, Mapping):
        fix = "send one JSON object per event"
        return Refused(Problem(path, f"must be an object, is {kind_of(value)}", fix))
    asked = Asked(path, value)
    if "on_conflict" in value:
        return Refused(asked.problem("on_conflict", *_NO_MEMBER))
    return asked


READERS: Final[Mapping[str, tuple[Reader, bool | None]]] = {
    "application/json": (usage_event, None),
    "application/cloudevents+json": (usage_of, False),
    "application/cloudevents-batch+json": (usage_of, True),
}
"""By content type, how an event is read, and whether the body is a list; None for either."""


def reader_of(content_type: str) -> tuple[Reader, bool | None]:
    """How a body of this type is read.

    Raises:
        CallRefusedError: it is not taken.
    """
    essence, _, rest = content_type.partition(";")
    found = READERS.get(essence.strip().lower())
    charset = rest.lower().replace(" ", "").replace('"', "")
    if found is None or ("charset=" in charset and "charset=utf-8" not in charset):
        known = ", ".join(READERS)
        raise CallRefusedError(
            415, f"Content-Type {content_type!r} is not taken", f"send UTF-8 as one of {known}"
        )
    return found


def read(reader: Reader, many: bool | None, body: bytes) -> Call:
    """The events of a body.

    Args:
        reader: how one event is read.
        many: whether the body must be a list; None for either.
        body: as it came.

    Raises:
        CallRefusedError: it is no JSON, or not one event or a list of 1 to `EVENTS_MAX`.
    """
    value = _decoded(body)
    is_list = isinstance(value, list)
    if many is not None and is_list is not many:
        wanted = "a list of events" if many else "one event"
        raise CallRefusedError(
            400,
            f"the body must be {wanted}, is {kind_of(value)}",
            "a CloudEvents batch has the type application/cloudevents-batch+json, one event has "
            "application/cloudevents+json",
        )
    if not is_list:
        return Call(many=False, events=(_storable(reader, "$", value),))
    if not value:
        raise CallRefusedError(400, "the list holds no event", "send at least one")
    if len(value) > EVENTS_MAX:
        raise CallRefusedError(
            413, f"{len(value)} events are too many", f"send at most {EVENTS_MAX} in a call"
        )
    events = (_storable(reader, f"$[{index}]", each) for index, each in enumerate(value))
    return Call(many=True, events=tuple(events))


def kind_of(value: object) -> str:
    """What JSON calls it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case Mapping():
            return "object"
        case _:
            return "number"


def _decoded(body: bytes) -> Any:
    try:
        return _DECODER.decode(body)
    except msgspec.DecodeError as error:
        what = f"the body is no JSON: {error}"
    except RecursionError:
        what = "the body is nested too deeply"
    except ArithmeticError:  # an exponent that no decimal number can have
        what = "the body holds a number that is out of all range"
    raise CallRefusedError(400, what, "send JSON in UTF-8, without a byte order mark")


def _storable(reader: Reader, path: str, value: object) -> Asked | Refused:
    """The event, unless it holds what PostgreSQL's JSON cannot."""
    for at, rule in _unstorable(value, path, DEPTH_MAX):
        return Refused(Problem(at, rule, "leave it out"))
    return reader(path, value)


def _unstorable(value: object, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """What it holds that cannot be stored: where, and the rule."""
    rule = _rule_of(value, depth)
    if rule is not None:
        yield path, rule
        return
    match value:
        case list():
            for index, each in enumerate(value):
                yield from _unstorable(each, f"{path}[{index}]", depth - 1)
        case Mapping():
            for name, each in value.items():
                yield from _unstorable(each, f"{path}.{name}", depth - 1)
        case _:
            return


def _rule_of(value: object, depth: int) -> str | None:
    match value:
        case str() if "\0" in value:
            return "must not hold the character U+0000"
        case int() | Decimal() if _is_long(value):
            return f"must have at most {DIGITS_MAX} digits"
        case list() | Mapping() if depth == 0:
            return f"must not be nested deeper than {DEPTH_MAX}"
        case Mapping() if any("\0" in name for name in value):
            return "must not hold a name with the character U+0000"
        case _:
            return None


def _is_long(number: int | Decimal) -> bool:
    if isinstance(number, int):
        return abs(number) >= _LEAST_LONG
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - JSON has no NaN and no infinity
    longest: int = max(len(digits), len(digits) + exponent, -exponent)
    return longest > DIGITS_MAX
