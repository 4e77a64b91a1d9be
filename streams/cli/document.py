"""A row of a database → its part of a JSON document."""

from collections.abc import Mapping
from typing import Any

import msgspec

from streams.core.instant import wire_text


def instant_text(instant_us: int | None) -> str | None:
    """The wire form, where there is an instant."""
    return None if instant_us is None else wire_text(instant_us)


def timed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Columns `x_us` become `x_at` on the wire; the JSON text `detail` becomes JSON."""
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if name.endswith("_us"):
            shown[name.removesuffix("_us") + "_at"] = instant_text(value)
        elif name == "detail":
            shown[name] = None if value is None else msgspec.json.decode(value)
        else:
            shown[name] = value
    return shown
