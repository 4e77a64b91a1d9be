"""Figures as pages write them: instants, ages, bytes, counts."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from streams.cli import terminal
from streams.core.instant import SECOND_US, wire_text

NOTHING: Final = "–"
_THOUSAND: Final = 1024


def instant(instant_us: int | None) -> str:
    """As in `2026-11-30 08:15:02Z`."""
    if instant_us is None:
        return NOTHING
    return f"{wire_text(instant_us)[:19].replace('T', ' ')}Z"


def age(seconds: float | None) -> str:
    """As in `12 s`, `3.1 h`."""
    return NOTHING if seconds is None else terminal.age(seconds)


def apart(from_us: int | None, to_us: int | None) -> str:
    """How long after `from_us` something happened: `29.8 h later`, `6 min earlier`."""
    if from_us is None or to_us is None:
        return NOTHING
    seconds = (to_us - from_us) / SECOND_US
    return f"{terminal.age(abs(seconds))} {'later' if seconds >= 0 else 'earlier'}"


def lasted(from_us: int | None, to_us: int | None) -> str:
    """How long something took: `0.12 s`, `31 s`."""
    if from_us is None or to_us is None:
        return NOTHING
    seconds = (to_us - from_us) / SECOND_US
    return f"{seconds:.2f} s" if abs(seconds) < 10 else terminal.age(seconds)


def size(count: int | None) -> str:
    """As in `16 MiB`."""
    if count is None:
        return NOTHING
    left = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(left) < _THOUSAND:
            return f"{left:.0f} {unit}" if left >= 10 or unit == "B" else f"{left:.1f} {unit}"
        left /= _THOUSAND
    return f"{left:.1f} TiB"


def count(number: float | str | None) -> str:
    """Whole numbers in groups of three; exact whatever their length."""
    if number is None:
        return NOTHING
    if isinstance(number, float):
        return f"{number:.1f}" if number < 100 else f"{number:,.0f}"
    try:
        return f"{int(number):,}"
    except ValueError:
        return str(number)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "instant": instant, "age": age, "apart": apart, "lasted": lasted, "size": size, "count": count,
    "quoted": shlex.quote,
}  # fmt: skip
