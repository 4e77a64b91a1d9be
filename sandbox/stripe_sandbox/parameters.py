"""Form parameters of a request → checked values, or Stripe's refusal naming the parameter."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from typing import Final

from sandbox.stripe_sandbox import errors
from sandbox.stripe_sandbox.errors import RefusedError
from streams.core.instant import to_us

PAST_S_MAX: Final = 35 * 86_400
FUTURE_S_MAX: Final = 5 * 60
CHARS_MAX: Final = 100
DIGITS_MAX: Final = 15

_BRACKETED: Final = re.compile(r"(?P<name>\w+)\[(?P<key>[^\[\]]*)\]")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class MeterEventParameters:
    """A meter event as sent; not yet held against its meter, nor its date against a clock."""

    event_name: str
    payload: dict[str, str]
    identifier: str | None
    timestamp_s: int | None


def nested(form: Mapping[str, str], allowed: Sequence[str]) -> dict[str, dict[str, str] | str]:
    """`{"payload[value]": "1"}` → `{"payload": {"value": "1"}}`.

    Raises:
        RefusedError: A name is not one of `allowed`, or is nested deeper than Stripe takes.
    """
    result: dict[str, dict[str, str] | str] = {}
    for name, value in form.items():
        matched = _BRACKETED.fullmatch(name)
        top = name if matched is None else matched["name"]
        if top not in allowed:
            raise RefusedError(errors.unknown(name))
        if matched is None:
            result[top] = value
            continue
        group = result.setdefault(top, {})
        if isinstance(group, str):
            raise RefusedError(errors.invalid(f"Invalid {top}: must be a hash", param=top))
        group[matched["key"]] = value
    return result


def text(
    values: Mapping[str, dict[str, str] | str], name: str, chars_max: int = CHARS_MAX
) -> str | None:
    """A bounded text, or None where it is not given.

    Raises:
        RefusedError: It is empty, too long, or a hash.
    """
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, dict):
        raise RefusedError(errors.invalid(f"Invalid string: {value}", param=name))
    if not 1 <= len(value) <= chars_max:
        message = f"Invalid {name}: must be between 1 and {chars_max} characters"
        raise RefusedError(errors.invalid(message, param=name))
    return value


def required(values: Mapping[str, dict[str, str] | str], name: str) -> str:
    """A bounded text that must be there.

    Raises:
        RefusedError: It is not, or breaks a rule of `text`.
    """
    value = text(values, name)
    if value is None:
        raise RefusedError(errors.missing(name))
    return value


def group(values: Mapping[str, dict[str, str] | str], name: str) -> dict[str, str]:
    """A hash; empty where it is not given.

    Raises:
        RefusedError: It is a plain text.
    """
    value = values.get(name, {})
    if isinstance(value, str):
        raise RefusedError(errors.invalid(f"Invalid {name}: must be a hash", param=name))
    return value


def integer(values: Mapping[str, dict[str, str] | str], name: str) -> int | None:
    """A whole number, or None where it is not given.

    Raises:
        RefusedError: It is not one.
    """
    value = text(values, name)
    if value is None:
        return None
    if re.fullmatch(r"-?[0-9]{1,18}", value) is None:
        message = f"Invalid integer: {value}"
        raise RefusedError(errors.invalid(message, param=name, code="parameter_invalid_integer"))
    return int(value)


def meter_event(form: Mapping[str, str]) -> MeterEventParameters:
    """Reads a meter event; its meter and its date are not looked at yet.

    Raises:
        RefusedError: A parameter breaks a rule.
    """
    values = nested(form, ("event_name", "payload", "identifier", "timestamp", "expand"))
    event_name = required(values, "event_name")
    payload = group(values, "payload")
    if not payload:
        raise RefusedError(errors.missing("payload"))
    timestamp_s = integer(values, "timestamp")
    return MeterEventParameters(event_name, payload, text(values, "identifier"), timestamp_s)


def instant_us(raw: str) -> int:
    """An instant as the newer API writes it, in microseconds since 1970 UTC.

    Raises:
        ValueError: It is not RFC 3339, or has no offset.
    """
    return to_us(datetime.fromisoformat(raw))


def value(raw: str) -> Decimal:
    """The value of a meter event: decimal, signed, at most 15 significant digits.

    Raises:
        RefusedError: It is not.
    """
    if len(raw) > CHARS_MAX or _DECIMAL.fullmatch(raw) is None:
        reply = errors.invalid(f"Invalid value in payload: {raw}", param="payload")
        raise RefusedError(reply, "meter_event_invalid_value")
    number = Decimal(raw)
    _, digits, exponent = number.normalize(Context(prec=200)).as_tuple()
    # Trailing zeros of a whole number are digits too: 1e15 has sixteen.
    significant = len(digits) + max(0, exponent if isinstance(exponent, int) else 0)
    if significant > DIGITS_MAX:
        message = f"Invalid value in payload: at most {DIGITS_MAX} significant digits are supported"
        code = "meter_event_value_too_many_digits"
        raise RefusedError(errors.invalid(message, param="payload", code=code), code)
    return number
